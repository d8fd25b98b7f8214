"""Follow a value that two walks read differently back to where each side got it.

Both sides go back together: what one is made of is paired with what the other is made of, by name, and followed
as long as it differs. The trail ends where nothing behind it is known to differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from joulediff.findings import Place
from joulediff.recorders.walks import OriginKind, Step, Walk
from joulediff.runs import Setting

MAX_DEPTH = 40
MAX_PAIRS = 2000

# A person sets these; what lies between is made of them.
_BY_HAND: tuple[OriginKind, ...] = ("config", "environment", "call")


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing as both sides read it; None on a side that does not."""

    a: Step | None
    b: Step | None

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
    def step(self) -> Step:
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


def pair_atoms(a: Sequence[Step], b: Sequence[Step]) -> list[Pair]:
    """Return what two equal statements read, paired by name; what one side alone could read has no partner."""
    return [
        *_same_names(a, b),
        *(Pair(each, None) for each in _rest(a, b)),
        *(Pair(None, each) for each in _rest(b, a)),
    ]


def follow(a: Walk, b: Walk, begin: Pair) -> Trail:
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


def _behind(a: Walk, b: Walk, pair: Pair) -> Iterator[Pair]:
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


def _handed_on(step: Step, source: Step, count: int) -> bool:
    return count == 1 and source.value == step.value


def _same_names(a: Sequence[Step], b: Sequence[Step]) -> list[Pair]:
    by_name = {each.name: each for each in reversed(b)}
    return [Pair(each, by_name[each.name]) for each in a if each.name in by_name]


def _rest(mine: Sequence[Step], others: Sequence[Step]) -> list[Step]:
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


def _value(step: Step | None) -> str:
    if step is None:
        return "not there"
    return repr(step.value) if step.exact else f"`{step.value}`"


def _where(a: Place | None, b: Place | None) -> str:
    places = dict.fromkeys(f"{each.file}:{each.line}" for each in (a, b) if each is not None)
    return f" ({' ↔ '.join(places)})" if places else ""
