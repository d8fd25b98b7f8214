"""The key variable: what two walks through one function read differently where they part, or where they lead on.

Statements are compared by their text, so that the two sides may have other versions of a library. From the place
that decided, values that differ are followed back on both sides together, to the farthest ones that still differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.pysource.line_trace import LineTrace, OriginKind, TraceLine, TraceStep

# A decision made by a decision before it, and so on: `why_not_fast = "..."` under an `if`.
MAX_PARTINGS = 8
# The branch that decided is near what it decided; aligning all of two long loops takes long.
MAX_ALIGNED = 500


@dataclass(frozen=True, slots=True)
class KeyVariable:
    """What decided, with both values. A value is None also where the other side alone reads the variable."""

    key: str
    kind: OriginKind
    value_a: Setting
    value_b: Setting
    place_a: Place | None
    """Where it is set."""
    place_b: Place | None
    at_a: Place | None
    """The branch or call that it decided."""
    at_b: Place | None
    trail: tuple[str, ...] = ()
    """A sentence for each step from there back to where it is set."""


def find_key_variable(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    """Return the variable that sent two walks through one function different ways; None where none is seen to differ.

    What the statement that leads on calls comes first, then the branch that parted the walks before it, then what
    that statement is given. Where no statement leads on, the first branch that parts the walks.
    """
    if a.led is None or b.led is None:
        return _explain_whole(a, b)
    if a.lines[a.led].text != b.lines[b.led].text:
        return _explain_ends(a, b, a.led, b.led, MAX_PARTINGS) or _explain_first_parting(a, b)
    called = _explain_line(a, b, a.led, b.led, callees=True)
    return called or _explain_first_parting(_until_led(a), _until_led(b)) or _explain_line(a, b, a.led, b.led)


def _until_led(walk: LineTrace) -> LineTrace:
    return replace(walk, lines=walk.lines[: (walk.led or 0) + 1])


def _explain_whole(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    found = _explain_first_parting(a, b)
    if found is not None or _texts(a) != _texts(b):
        return found
    called = _first(_explain_line(a, b, at, at, callees=True) for at in range(len(a.lines)))
    return called or _first(_explain_line(a, b, at, at) for at in range(len(a.lines)))


def _texts(walk: LineTrace) -> list[str]:
    return [line.text for line in walk.lines]


def _first(found: Iterable[KeyVariable | None]) -> KeyVariable | None:
    return next((each for each in found if each is not None), None)


def _explain_first_parting(a: LineTrace, b: LineTrace) -> KeyVariable | None:
    pairs = zip(a.lines, b.lines, strict=False)
    alike = next((at for at, (x, y) in enumerate(pairs) if x.text != y.text), min(len(a.lines), len(b.lines)))
    if alike == len(a.lines) == len(b.lines):
        return None
    branch = _branch_before(a, b, alike, alike)
    return _explain_line(a, b, *branch) if branch else None


def _explain_ends(a: LineTrace, b: LineTrace, end_a: int, end_b: int, left: int) -> KeyVariable | None:
    """Return the variable of the last branch that both walks ran before each came to a statement of its own."""
    from_a, from_b = max(0, end_a + 1 - MAX_ALIGNED), max(0, end_b + 1 - MAX_ALIGNED)
    texts_a, texts_b = _texts(a)[from_a : end_a + 1], _texts(b)[from_b : end_b + 1]
    blocks = SequenceMatcher(None, texts_a, texts_b, autojunk=False).get_matching_blocks()
    for block in reversed(blocks[:-1]):  # the last one is empty
        branch = _branch_before(a, b, from_a + block.a + block.size, from_b + block.b + block.size)
        if branch is not None:
            return _explain_line(a, b, *branch, left=left)
    return None


def _branch_before(a: LineTrace, b: LineTrace, at_a: int, at_b: int) -> tuple[int, int] | None:
    """Return the last branch among the equal statements before two places."""
    while at_a > 0 and at_b > 0 and a.lines[at_a - 1].text == b.lines[at_b - 1].text:
        at_a, at_b = at_a - 1, at_b - 1
        if a.lines[at_a].branch:
            return at_a, at_b
    return None


def _explain_line(
    a: LineTrace, b: LineTrace, at_a: int, at_b: int, *, callees: bool = False, left: int = MAX_PARTINGS
) -> KeyVariable | None:
    """Return the variable behind what one statement reads differently; with `callees`, behind what it calls."""
    pairs = pair_atoms(_atoms(a, at_a, callees=callees), _atoms(b, at_b, callees=callees))
    trails = [follow(a, b, pair) for pair in pairs if pair.differs]
    if not trails:
        return None
    trail = max(trails, key=rank)  # of equals the first: what is called comes before what it is given
    earlier = _explain_two_settings(a, b, at_a, at_b, trail, left) if left else None
    return earlier or _key_variable(trail, _place(a, a.lines[at_a]), _place(b, b.lines[at_b]))


def _atoms(walk: LineTrace, at: int, *, callees: bool) -> list[TraceStep]:
    line = walk.lines[at]
    return [walk.steps[step] for step in (line.atoms[: line.callees] if callees else line.atoms)]


def _explain_two_settings(
    a: LineTrace, b: LineTrace, at_a: int, at_b: int, trail: Trail, left: int
) -> KeyVariable | None:
    """Return what decided that a statement which one walk alone ran set a variable."""
    if trail[-1].by_hand:
        return None
    for pair in reversed(trail):
        set_a, set_b = _own_setting(a, pair.a, at_a, b), _own_setting(b, pair.b, at_b, a)
        if set_a is not None or set_b is not None:
            ends = at_a - 1 if set_a is None else set_a, at_b - 1 if set_b is None else set_b
            return _explain_ends(a, b, *ends, left - 1)
    return None


def _own_setting(walk: LineTrace, step: TraceStep | None, before: int, other: LineTrace) -> int | None:
    """Return the place in a walk of the statement that gave a name its value, where the other walk has no such one."""
    at = _setting(walk, step, before)
    return None if at is None or walk.lines[at].text in _texts(other) else at


def _setting(walk: LineTrace, step: TraceStep | None, before: int) -> int | None:
    if step is None or step.kind != "assignment" or step.place is None or step.place.function != walk.function:
        return None
    at = range(before - 1, -1, -1)
    return next((i for i in at if walk.lines[i].line == step.place.line and step.name in walk.lines[i].binds), None)


def _key_variable(trail: Trail, at_a: Place | None, at_b: Place | None) -> KeyVariable:
    """Return the end of a trail under the last name that both sides have for it."""
    end = trail[-1]
    named = next((pair for pair in reversed(trail) if pair.is_named), trail[0])
    places = end.place_a, end.place_b
    return KeyVariable(
        named.step.key, named.step.kind, end.value_a, end.value_b, *places, at_a, at_b, sentences(trail, at_a, at_b)
    )


def _place(walk: LineTrace, line: TraceLine) -> Place:
    at = line.line - walk.first
    text = walk.source[at].strip() if 0 <= at < len(walk.source) else line.text
    return Place(walk.file, line.line, walk.function, text)


MAX_DEPTH = 40
MAX_PAIRS = 2000

# A person sets these; what lies between is made of them.
_BY_HAND: tuple[OriginKind, ...] = ("config", "environment", "call")


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing as both sides read it; None on a side that does not."""

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
        """Return the side that is there, a's first."""
        found = self.a or self.b
        assert found is not None
        return found

    @property
    def by_hand(self) -> bool:
        """Return whether a person sets it, as the name says: a configuration, the environment, a mode."""
        return all(each.kind in _BY_HAND for each in (self.a, self.b) if each is not None)

    @property
    def is_named(self) -> bool:
        """Return whether both sides have one name for it."""
        sides = [each for each in (self.a, self.b) if each is not None]
        return len({each.name for each in sides}) == 1 and all(each.kind != "constant" for each in sides)


Trail = tuple[Pair, ...]


def pair_atoms(a: Sequence[TraceStep], b: Sequence[TraceStep]) -> list[Pair]:
    """Return what two equal statements read, paired by name; what one side alone could read has no partner."""
    return [
        *_same_names(a, b),
        *(Pair(each, None) for each in _rest(a, b)),
        *(Pair(None, each) for each in _rest(b, a)),
    ]


def follow(a: LineTrace, b: LineTrace, begin: Pair) -> Trail:
    """Return the best trail from a pair that differs: to what a person sets, otherwise by the shortest way."""
    queue: deque[Trail] = deque([(begin,)])
    ends: list[Trail] = []
    seen = {begin}
    while queue and len(seen) < MAX_PAIRS:
        trail = queue.popleft()
        behind = [pair for pair in _behind(a, b, trail[-1]) if pair.differs]
        if not behind or len(trail) >= MAX_DEPTH:
            ends.append(trail)
        for pair in behind:
            if pair not in seen:
                seen.add(pair)
                queue.append((*trail, pair))
    return max(ends, key=rank, default=(begin,))


def rank(trail: Trail) -> int:
    """Return how much the end of a trail is worth as a cause: most, where a person sets it."""
    end = trail[-1]
    sides = [each for each in (end.a, end.b) if each is not None]
    if end.by_hand:
        return 4
    if all(each.kind == "constant" for each in sides):
        return 3 if len(trail) > 1 and trail[-2].step.kind in ("argument", "attribute") else 2
    return 1 if all(each.exact for each in sides) else 0


def _behind(a: LineTrace, b: LineTrace, pair: Pair) -> Iterator[Pair]:
    """Yield what the two sides of a pair are made of."""
    if pair.a is None or pair.b is None:
        return
    sources = [a.steps[at] for at in pair.a.sources], [b.steps[at] for at in pair.b.sources]
    yield from _same_names(*sources)
    rest_a, rest_b = _rest(*sources), _rest(*reversed(sources))
    if len(rest_a) == len(rest_b) == 1:
        yield Pair(rest_a[0], rest_b[0])
    # One side is at its end: the other goes on alone as long as the value is only handed on.
    elif not sources[0]:
        yield from (Pair(pair.a, each) for each in rest_b if _handed_on(pair.b, each, len(rest_b)))
    elif not sources[1]:
        yield from (Pair(each, pair.b) for each in rest_a if _handed_on(pair.a, each, len(rest_a)))


def _handed_on(step: TraceStep, source: TraceStep, count: int) -> bool:
    return count == 1 and source.value == step.value


def _same_names(a: Sequence[TraceStep], b: Sequence[TraceStep]) -> list[Pair]:
    by_name = {each.name: each for each in reversed(b)}
    return [Pair(each, by_name[each.name]) for each in a if each.name in by_name]


def _rest(mine: Sequence[TraceStep], others: Sequence[TraceStep]) -> list[TraceStep]:
    names = {each.name for each in others}
    return [each for each in mine if each.name not in names]


def sentences(trail: Trail, at_a: Place | None, at_b: Place | None) -> tuple[str, ...]:
    """Return a trail in words, from what was read back to where it is set."""
    first = trail[0]
    found = [f"{_name(first)} is {_values(first)}{_where(at_a, at_b)}"]
    for pair in trail[1:]:
        found.append(f"from {_name(pair)}: {_values(pair)}{_where(pair.place_a, pair.place_b)}")
    return tuple(found)


def _name(pair: Pair) -> str:
    names = dict.fromkeys(f"`{each.name}`" for each in (pair.a, pair.b) if each is not None)
    return " ↔ ".join(names)


def _values(pair: Pair) -> str:
    return f"{_value(pair.a)} ↔ {_value(pair.b)}"


def _value(step: TraceStep | None) -> str:
    if step is None:
        return "not there"
    return repr(step.value) if step.exact else f"`{step.value}`"


def _where(a: Place | None, b: Place | None) -> str:
    places = dict.fromkeys(f"{each.file}:{each.line}" for each in (a, b) if each is not None)
    return f" ({' ↔ '.join(places)})" if places else ""
