"""Find a sequence of operators in the tree of calls that a profiler saw.

The tree holds more than the sequence: composite operators above (`aten::linear` over `aten::addmm`) and inner
ones below (`aten::empty` in `aten::clone`). A call is either the next operator, with all that is below it, or it
is opened. In pre-order that makes a path along a line: an operator leaps over its subtree, an opened call is one
pace. The search follows the cheapest paths; when even the best goes astray, it starts again from where it last
was right, at the nearest place from which both sides run alike for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

_MISSED = 4
"""The cost of an operator without a call, in calls that bear an operator's name and are none."""
_MARGIN = 3 * _MISSED
"""How much dearer than the best a path may be."""
_ASTRAY = 10 * _MISSED
"""What a path may spend before it counts as lost. One that only opens composite operators spends less."""
_KEPT = 15 / 16
"""How much of what was spent still counts after the next operator."""
_ALIKE = 12
"""Operators in a row that are not alike by chance."""


class _Match(NamedTuple):
    before: _Match | None
    call: int
    op: int


class _Path(NamedTuple):
    cost: int
    astray: float
    last: _Match | None
    home: _Match | None
    """The last match before it began to go astray."""

    def pace(self, cost: int) -> _Path:
        return _Path(self.cost + cost, self.astray + cost, self.last, self.home)

    def leap(self, cost: int, call: int, op: int) -> _Path:
        match = _Match(self.last, call, op)
        astray = (self.astray + cost) * _KEPT
        return _Path(self.cost + cost, astray, match, match if astray < _MARGIN else self.home)


def align(
    calls: Sequence[str], ends: Sequence[int], ops: Sequence[str], *, unsure: Collection[str] = ()
) -> list[tuple[int, int]]:
    """Return pairs of a call and an operator of one name, in the order of both, no call below another.

    `calls` are names in pre-order; `ends[i]` is the place after the last call below `calls[i]`. Operators with
    a name in `unsure` may lack a call.
    """
    # Nearly all steps agree: then the cheapest path alone is right, and found ten times faster.
    found = _search(calls, ends, ops, unsure, margin=0)
    missing = {*range(len(ops))} - {op for _, op in found}
    return found if all(ops[op] in unsure for op in missing) else _search(calls, ends, ops, unsure, margin=_MARGIN)


def _search(
    calls: Sequence[str], ends: Sequence[int], ops: Sequence[str], unsure: Collection[str], *, margin: int
) -> list[tuple[int, int]]:
    places = _places_of(ops)
    toll = [0, *accumulate(0 if name in unsure else _MISSED for name in ops)]
    likeness = _Likeness(calls, ends, ops) if margin else None
    # From a call to the paths that reach it, each by the next operator it expects.
    paths: dict[int, dict[int, _Path]] = {0: {0: _Path(0, 0.0, None, None)}}
    ahead, ahead_at = paths[0][0], 0
    call = 0
    while call < len(calls):
        here = paths.pop(call, None)
        if here is None:
            call += 1
            continue
        best = min(here.values(), key=lambda path: path.cost)
        if call < ahead_at and ahead.cost < best.cost:
            best = ahead
        if likeness and best.astray > _ASTRAY and (place := likeness.find_after(best.home)) is not None:
            call = place[0]
            ahead, ahead_at = _Path(0, 0.0, best.home, best.home), 0
            paths = {call: {place[1]: ahead}}
            continue
        limit = best.cost + margin
        known = places.get(calls[call], ())
        for op, path in _undominated(here, toll):
            if path.cost > limit:
                continue
            _offer(paths.setdefault(call + 1, {}), op, path.pace(1 if known else 0))
            if (at := bisect_left(known, op)) == len(known):
                continue
            leap = path.leap(toll[known[at]] - toll[op], call, known[at])
            if leap.cost <= limit:
                _offer(paths.setdefault(ends[call], {}), known[at] + 1, leap)
                if call >= ahead_at or leap.cost <= ahead.cost:
                    ahead, ahead_at = leap, ends[call]
        call += 1
    arrived = paths[len(calls)] 
    last = min(arrived, key=lambda op: arrived[op].cost - toll[op])
    return list(_follow(arrived[last].last))[::-1]


def _places_of(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        places.setdefault(name, []).append(at)
    return places


class _Likeness:
    """Finds where both sides run alike for a while, taking for operators the topmost calls with their names."""

    def __init__(self, calls: Sequence[str], ends: Sequence[int], ops: Sequence[str]) -> None:
        self._calls = list(_topmost(calls, ends, {*ops}))
        self._names = [calls[call] for call in self._calls]
        self._places: dict[tuple[str, ...], list[int]] = {}
        for op in range(len(ops) - _ALIKE + 1):
            self._places.setdefault(tuple(ops[op : op + _ALIKE]), []).append(op)
        self._last = -1

    def find_after(self, home: _Match | None) -> tuple[int, int] | None:
        """Return the nearest such place, as call and operator; each time a later one."""
        first_call, first_op = (home.call + 1, home.op + 1) if home else (0, 0)
        nearest: tuple[int, int, int] | None = None
        first = bisect_left(self._calls, max(first_call, self._last + 1))
        for at in range(first, len(self._calls) - _ALIKE + 1):
            if nearest is not None and at - first >= nearest[0]:
                break
            places = self._places.get(tuple(self._names[at : at + _ALIKE]), [])
            if (next_ := bisect_left(places, first_op)) < len(places):
                found = (at - first + places[next_] - first_op, self._calls[at], places[next_])
                nearest = min(nearest or found, found)
        if nearest is None:
            return None
        self._last = nearest[1]
        return nearest[1:]


def _topmost(calls: Sequence[str], ends: Sequence[int], names: Collection[str]) -> Iterator[int]:
    call = 0
    while call < len(calls):
        if calls[call] in names:
            yield call
        call = ends[call] if calls[call] in names else call + 1


def _undominated(paths: Mapping[int, _Path], toll: Sequence[int]) -> Iterator[tuple[int, _Path]]:
    """Yield the paths that no other one can join as cheaply by missing operators."""
    lowest: float = float("inf")
    for op in sorted(paths):
        if (rest := paths[op].cost - toll[op]) < lowest:
            lowest = rest
            yield op, paths[op]


def _offer(paths: dict[int, _Path], op: int, path: _Path) -> None:
    if op not in paths or path.cost < paths[op].cost:
        paths[op] = path


def _follow(match: _Match | None) -> Iterator[tuple[int, int]]:
    while match is not None:
        yield match.call, match.op
        match = match.before
