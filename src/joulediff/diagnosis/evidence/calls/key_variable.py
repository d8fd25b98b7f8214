"""Find the key variable: the value that made two traces of one function part, or lead to different code.

Statements are compared by their text, so the two sides may have different versions of a library. From the statement
that decided, values that differ are followed back on both sides together, to the first ones that still differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.pysource.line_trace import LineTrace, OriginKind, TraceLine, TraceStep

# Limit on decisions that depend on earlier decisions: `why_not_fast = "..."` under an `if`.
MAX_DECISIONS = 8
# The branch that decided is near the statement that it decided; aligning two whole long loops takes long.
MAX_ALIGNED = 500


@dataclass(frozen=True, slots=True)
class KeyVariable:
    """The variable that decided, with both values. A value is None also if only the other side reads the variable."""

    key: str
    kind: OriginKind
    value_a: Setting
    value_b: Setting
    place_a: Place | None
    """Where it is set."""
    place_b: Place | None
    at_a: Place | None
    """The branch or the call that it decided."""
    at_b: Place | None
    trail: tuple[str, ...] = ()
    """A sentence for each step from that branch back to the line that sets the variable."""


def find_key_variable(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    """Return the variable that made two traces of one function differ; None if no value is seen to differ.

    The functions called by the statement that leads on are compared first, then the branch before it at which the
    traces part, then its arguments. If no statement leads on, the first branch at which the traces part.
    """
    if a.led is None or b.led is None:
        return _explain_whole(a, b)
    if a.lines[a.led].text != b.lines[b.led].text:
        return _explain_ends(a, b, a.led, b.led, MAX_DECISIONS) or _explain_first_branch(a, b)
    called = _explain_line(a, b, a.led, b.led, callees=True)
    return called or _explain_first_branch(_until_lead(a), _until_lead(b)) or _explain_line(a, b, a.led, b.led)


def _until_lead(trace: LineTrace) -> LineTrace:
    return replace(trace, lines=trace.lines[: (trace.led or 0) + 1])


def _explain_whole(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    found = _explain_first_branch(a, b)
    if found is not None or _texts(a) != _texts(b):
        return found
    called = _first(_explain_line(a, b, at, at, callees=True) for at in range(len(a.lines)))
    return called or _first(_explain_line(a, b, at, at) for at in range(len(a.lines)))


def _texts(trace: LineTrace) -> list[str]:
    return [line.text for line in trace.lines]


def _first(found: Iterable[KeyVariable | None]) -> KeyVariable | None:
    return next((each for each in found if each is not None), None)


def _explain_first_branch(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    pairs = zip(a.lines, b.lines, strict=False)
    alike = next((at for at, (x, y) in enumerate(pairs) if x.text != y.text), min(len(a.lines), len(b.lines)))
    if alike == len(a.lines) == len(b.lines):
        return None
    branch = _branch_before(a, b, alike, alike)
    return _explain_line(a, b, *branch) if branch else None


def _explain_ends(a: LineTrace, b: LineTrace, end_a: int, end_b: int, left: int) -> KeyVariable | None:
    """Return the variable of the last branch that both traces ran before their statements differ."""
    from_a, from_b = max(0, end_a + 1 - MAX_ALIGNED), max(0, end_b + 1 - MAX_ALIGNED)
    texts_a, texts_b = _texts(a)[from_a : end_a + 1], _texts(b)[from_b : end_b + 1]
    blocks = SequenceMatcher(None, texts_a, texts_b, autojunk=False).get_matching_blocks()
    for block in reversed(blocks[:-1]):  # the last one is empty
        branch = _branch_before(a, b, from_a + block.a + block.size, from_b + block.b + block.size)
        if branch is not None:
            return _explain_line(a, b, *branch, left=left)
    return None


def _branch_before(a: LineTrace, b: LineTrace, at_a: int, at_b: int) -> tuple[int, int] | None:
    """Return the last branch among the equal statements before two positions."""
    while at_a > 0 and at_b > 0 and a.lines[at_a - 1].text == b.lines[at_b - 1].text:
        at_a, at_b = at_a - 1, at_b - 1
        if a.lines[at_a].branch:
            return at_a, at_b
    return None


def _explain_line(
    a: LineTrace, b: LineTrace, at_a: int, at_b: int, *, callees: bool = False, left: int = MAX_DECISIONS
) -> KeyVariable | None:
    """Return the variable behind a value that one statement reads; with `callees`, behind a function that it calls."""
    pairs = pair_reads(_reads(a, at_a, callees=callees), _reads(b, at_b, callees=callees))
    trails = [follow(a, b, pair) for pair in pairs if pair.differs]
    if not trails:
        return None
    trail = max(trails, key=rank)  # the first of equals: functions come before their arguments
    earlier = _explain_assignments(a, b, at_a, at_b, trail, left) if left else None
    return earlier or _key_variable(trail, _place(a, a.lines[at_a]), _place(b, b.lines[at_b]))


def _reads(trace: LineTrace, at: int, *, callees: bool) -> list[TraceStep]:
    line = trace.lines[at]
    return [trace.steps[step] for step in (line.atoms[: line.callees] if callees else line.atoms)]


def _explain_assignments(
    a: LineTrace, b: LineTrace, at_a: int, at_b: int, trail: Trail, left: int
) -> KeyVariable | None:
    """Return the variable that decided that only one trace ran a statement which sets a variable."""
    if trail[-1].by_hand:
        return None
    for pair in reversed(trail):
        set_a, set_b = _own_assignment(a, pair.a, at_a, b), _own_assignment(b, pair.b, at_b, a)
        if set_a is not None or set_b is not None:
            ends = at_a - 1 if set_a is None else set_a, at_b - 1 if set_b is None else set_b
            return _explain_ends(a, b, *ends, left - 1)
    return None


def _own_assignment(trace: LineTrace, step: TraceStep | None, before: int, other: LineTrace) -> int | None:
    """Return the position of the statement that set a name; None if the other trace has the same statement."""
    at = _assignment(trace, step, before)
    return None if at is None or trace.lines[at].text in _texts(other) else at


def _assignment(trace: LineTrace, step: TraceStep | None, before: int) -> int | None:
    if step is None or step.kind != "assignment" or step.place is None or step.place.function != trace.function:
        return None
    at = range(before - 1, -1, -1)
    return next((i for i in at if trace.lines[i].line == step.place.line and step.name in trace.lines[i].binds), None)


def _key_variable(trail: Trail, at_a: Place | None, at_b: Place | None) -> KeyVariable:
    """Return the end of a trail, named by the last name that both sides use for it."""
    end = trail[-1]
    named = next((pair for pair in reversed(trail) if pair.is_named), trail[0])
    places = end.place_a, end.place_b
    return KeyVariable(
        named.step.key, named.step.kind, end.value_a, end.value_b, *places, at_a, at_b, sentences(trail, at_a, at_b)
    )


def _place(trace: LineTrace, line: TraceLine) -> Place:
    at = line.line - trace.first
    text = trace.source[at].strip() if 0 <= at < len(trace.source) else line.text
    return Place(trace.file, line.line, trace.function, text)


MAX_DEPTH = 40
MAX_PAIRS = 2000

# Origins of values that a person sets.
_BY_HAND: tuple[OriginKind, ...] = ("config", "environment", "call")


@dataclass(frozen=True, slots=True)
class ReadPair:
    """One value as both sides read it; None for a side that does not read it."""

    a: TraceStep | None
    b: TraceStep | None

    @property
    def value_a(self) -> Setting:
        """Return the value on side a."""
        return self.a.value if self.a else None

    @property
    def value_b(self) -> Setting:
        """Return the value on side b."""
        return self.b.value if self.b else None

    @property
    def place_a(self) -> Place | None:
        """Return where it is set on side a."""
        return self.a.place if self.a else None

    @property
    def place_b(self) -> Place | None:
        """Return where it is set on side b."""
        return self.b.place if self.b else None

    @property
    def differs(self) -> bool:
        """Return whether the values differ, or one side has none."""
        return (self.a is None) != (self.b is None) or self.value_a != self.value_b

    @property
    def step(self) -> TraceStep:
        """Return the step of a side that reads it, a's first."""
        found = self.a or self.b
        assert found is not None
        return found

    @property
    def by_hand(self) -> bool:
        """Return whether a person sets it: a configuration, the environment, a mode."""
        return all(each.kind in _BY_HAND for each in (self.a, self.b) if each is not None)

    @property
    def is_named(self) -> bool:
        """Return whether both sides use the same name for it."""
        sides = [each for each in (self.a, self.b) if each is not None]
        return len({each.name for each in sides}) == 1 and all(each.kind != "constant" for each in sides)


Trail = tuple[ReadPair, ...]


def pair_reads(a: Sequence[TraceStep], b: Sequence[TraceStep]) -> list[ReadPair]:
    """Return the values that two equal statements read, paired by name; a value of one side alone has no partner."""
    return [
        *_same_names(a, b),
        *(ReadPair(each, None) for each in _rest(a, b)),
        *(ReadPair(None, each) for each in _rest(b, a)),
    ]


def follow(a: LineTrace, b: LineTrace, begin: ReadPair) -> Trail:
    """Return the best trail from a pair that differs: to a value that a person sets, else the shortest one."""
    queue: deque[Trail] = deque([(begin,)])
    ends: list[Trail] = []
    seen = {begin}
    while queue and len(seen) < MAX_PAIRS:
        trail = queue.popleft()
        behind = [pair for pair in _sources(a, b, trail[-1]) if pair.differs]
        if not behind or len(trail) >= MAX_DEPTH:
            ends.append(trail)
        for pair in behind:
            if pair not in seen:
                seen.add(pair)
                queue.append((*trail, pair))
    return max(ends, key=rank, default=(begin,))


def rank(trail: Trail) -> int:
    """Return how good the end of a trail is as a cause; a value that a person sets is best."""
    end = trail[-1]
    sides = [each for each in (end.a, end.b) if each is not None]
    if end.by_hand:
        return 4
    if all(each.kind == "constant" for each in sides):
        return 3 if len(trail) > 1 and trail[-2].step.kind in ("argument", "attribute") else 2
    return 1 if all(each.exact for each in sides) else 0


def _sources(a: LineTrace, b: LineTrace, pair: ReadPair) -> Iterator[ReadPair]:
    """Yield the values that the two sides of a pair are made of."""
    if pair.a is None or pair.b is None:
        return
    sources = [a.steps[at] for at in pair.a.sources], [b.steps[at] for at in pair.b.sources]
    yield from _same_names(*sources)
    rest_a, rest_b = _rest(*sources), _rest(*reversed(sources))
    if len(rest_a) == len(rest_b) == 1:
        yield ReadPair(rest_a[0], rest_b[0])
    # One side has no source left: the other is followed as long as its value is only passed on.
    elif not sources[0]:
        yield from (ReadPair(pair.a, each) for each in rest_b if _passed_on(pair.b, each, len(rest_b)))
    elif not sources[1]:
        yield from (ReadPair(each, pair.b) for each in rest_a if _passed_on(pair.a, each, len(rest_a)))


def _passed_on(step: TraceStep, source: TraceStep, count: int) -> bool:
    return count == 1 and source.value == step.value


def _same_names(a: Sequence[TraceStep], b: Sequence[TraceStep]) -> list[ReadPair]:
    by_name = {each.name: each for each in reversed(b)}
    return [ReadPair(each, by_name[each.name]) for each in a if each.name in by_name]


def _rest(mine: Sequence[TraceStep], others: Sequence[TraceStep]) -> list[TraceStep]:
    names = {each.name for each in others}
    return [each for each in mine if each.name not in names]


def sentences(trail: Trail, at_a: Place | None, at_b: Place | None) -> tuple[str, ...]:
    """Return a trail in sentences, from the value that was read back to the line that sets it."""
    first = trail[0]
    found = [f"{_name(first)} is {_values(first)}{_where(at_a, at_b)}"]
    for pair in trail[1:]:
        found.append(f"from {_name(pair)}: {_values(pair)}{_where(pair.place_a, pair.place_b)}")
    return tuple(found)


def _name(pair: ReadPair) -> str:
    names = dict.fromkeys(f"`{each.name}`" for each in (pair.a, pair.b) if each is not None)
    return " ↔ ".join(names)


def _values(pair: ReadPair) -> str:
    return f"{_value(pair.a)} ↔ {_value(pair.b)}"


def _value(step: TraceStep | None) -> str:
    if step is None:
        return "not there"
    return repr(step.value) if step.exact else f"`{step.value}`"


def _where(a: Place | None, b: Place | None) -> str:
    places = dict.fromkeys(f"{each.file}:{each.line}" for each in (a, b) if each is not None)
    return f" ({' ↔ '.join(places)})" if places else ""
