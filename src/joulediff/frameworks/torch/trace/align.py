"""Finds a sequence of operators in the tree of calls that a profiler recorded.

The tree has more calls than the sequence has operators: composite operators above (`aten::linear` over `aten::addmm`)
and inner ones below (`aten::empty` in `aten::clone`). A call either is the next operator, with its whole subtree, or
its children are searched. In pre-order this is a path along a line: an operator skips its subtree, any other call
advances by one. The search follows the cheapest paths. If even the best path fails, it restarts after the last good
match, at the nearest position from which both sides agree for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import NamedTuple

from joulediff.frameworks.torch.trace.traced import Call
from joulediff.model.run import Op

_MISSED = 4
"""The cost of an operator without a call, in calls that bear an operator's name and are none."""
_MARGIN = 3 * _MISSED
"""The largest extra cost of a path over the best one."""
_ASTRAY = 10 * _MISSED
"""The cost at which a path counts as lost. A path that only opens composite operators costs less."""
_KEPT = 15 / 16
"""The share of the cost that still counts after the next operator."""
_ALIKE = 8
"""A run of this many equal operators is no coincidence."""
_BRIDGED = 1_000_000
"""Calls times operators that can be searched with no limit in about a second."""

Pairs = list[tuple[int, int]]


def align(
    calls: Sequence[str], ends: Sequence[int], ops: Sequence[str], *, unsure: Collection[str] = ()
) -> list[tuple[int, int]]:
    """Return pairs of a call and an operator of one name, in the order of both, no call below another.

    `calls` are names in pre-order; `ends[i]` is the place after the last call below `calls[i]`. Operators with
    a name in `unsure` may lack a call.
    """
    sides = _Sides(calls, ends, ops, unsure)
    # Nearly all steps agree: then the cheapest path alone is right, and found ten times faster.
    found = _search(sides, margin=0)
    missing = {*range(len(ops))} - {op for _, op in found}
    if all(ops[op] in unsure for op in missing):
        return found
    if len(calls) * len(ops) <= _BRIDGED:
        return _search(sides, margin=_BRIDGED)
    return _search(sides, margin=_MARGIN, finds_back=True)


class _Sides:
    def __init__(self, calls: Sequence[str], ends: Sequence[int], ops: Sequence[str], unsure: Collection[str]) -> None:
        self.calls, self.ends, self.ops, self.unsure = calls, ends, ops, unsure
        self.places: dict[str, list[int]] = {}
        """Where in the sequence a name is."""
        for op, name in enumerate(ops):
            self.places.setdefault(name, []).append(op)
        self.tolls = [0, *accumulate(0 if name in unsure else _MISSED for name in ops)]
        """The cost of missing all operators before each one."""

    def between(self, call: int, op: int, call_end: int, op_end: int) -> _Sides:
        """Return a part of both sides. Calls that reach beyond it can be opened and nothing else."""
        names = [self.calls[at] if self.ends[at] <= call_end else "" for at in range(call, call_end)]
        ends = [min(end, call_end) - call for end in self.ends[call:call_end]]
        return _Sides(names, ends, self.ops[op:op_end], self.unsure)


class _Match(NamedTuple):
    before: _Match | None
    call: int
    op: int


class _Path(NamedTuple):
    cost: int
    astray: float
    last: _Match | None
    home: _Match | None
    """The last match before the path began to fail."""

    @property
    def last_call(self) -> int:
        return -1 if self.last is None else self.last.call

    def pace(self, cost: int) -> _Path:
        return _Path(self.cost + cost, self.astray + cost, self.last, self.home)

    def leap(self, cost: int, call: int, op: int) -> _Path:
        match = _Match(self.last, call, op)
        astray = (self.astray + cost) * _KEPT
        return _Path(self.cost + cost, astray, match, match if astray < _MARGIN else self.home)


def _search(sides: _Sides, *, margin: int, finds_back: bool = False) -> Pairs:
    calls, ends, tolls = sides.calls, sides.ends, sides.tolls
    likeness = _Likeness(sides) if finds_back else None
    # From a call to the paths that reach it, each by the operator it expects next.
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
            call, op = place
            home = _bridge(sides, best.home, call, op)
            ahead, ahead_at = _Path(0, 0.0, home, home), call
            paths = {call: {op: ahead}}
            continue
        known = sides.places.get(calls[call], [])
        for op, path in _undominated(here, tolls):
            if path.cost > best.cost + margin:
                continue
            _offer(paths.setdefault(call + 1, {}), op, path.pace(1 if known else 0))
            if (at := bisect_left(known, op)) == len(known):
                continue
            leap = path.leap(tolls[known[at]] - tolls[op], call, known[at])
            if leap.cost <= best.cost + margin:
                _offer(paths.setdefault(ends[call], {}), known[at] + 1, leap)
                if call >= ahead_at or leap.cost <= ahead.cost:
                    ahead, ahead_at = leap, ends[call]
        call += 1
    arrived = paths[len(calls)]
    nearest = min(arrived, key=lambda op: arrived[op].cost - tolls[op])
    return _pairs(arrived[nearest].last)


def _undominated(paths: Mapping[int, _Path], tolls: Sequence[int]) -> Iterator[tuple[int, _Path]]:
    """Yield the paths that no other one can join as cheaply by missing operators."""
    lowest: float = float("inf")
    for op in sorted(paths):
        if (rest := paths[op].cost - tolls[op]) < lowest:
            lowest = rest
            yield op, paths[op]


def _offer(paths: dict[int, _Path], op: int, path: _Path) -> None:
    """Keep the cheaper path; at equal cost, the path that found its operators earlier."""
    old = paths.get(op)
    if old is None or path.cost < old.cost or (path.cost == old.cost and path.last_call < old.last_call):
        paths[op] = path


def _pairs(match: _Match | None) -> Pairs:
    found = []
    while match is not None:
        found.append((match.call, match.op))
        match = match.before
    return found[::-1]


def _bridge(sides: _Sides, home: _Match | None, call_end: int, op_end: int) -> _Match | None:
    """Return the matches up to `home` and, where the gap is not too wide, those from there to a place."""
    call, op = (sides.ends[home.call], home.op + 1) if home else (0, 0)
    if (call_end - call) * (op_end - op) <= _BRIDGED:
        for inner_call, inner_op in _search(sides.between(call, op, call_end, op_end), margin=_BRIDGED):
            home = _Match(home, call + inner_call, op + inner_op)
    return home


class _Likeness:
    """Finds where both sides run alike for a while, taking for operators the topmost calls with their names."""

    def __init__(self, sides: _Sides) -> None:
        self._calls = [*_topmost(sides)]
        self._names = [sides.calls[call] for call in self._calls]
        self._places: dict[tuple[str, ...], list[int]] = {}
        for op in range(len(sides.ops) - _ALIKE + 1):
            self._places.setdefault(tuple(sides.ops[op : op + _ALIKE]), []).append(op)
        self._last = -1

    def find_after(self, home: _Match | None) -> tuple[int, int] | None:
        """Return the nearest such place, as call and operator; each time one that is further on."""
        call, op = (home.call + 1, home.op + 1) if home else (0, 0)
        first = bisect_left(self._calls, max(call, self._last + 1))
        nearest: tuple[int, int, int] | None = None
        for at in range(first, len(self._calls) - _ALIKE + 1):
            if nearest is not None and at - first >= nearest[0]:
                break
            places = self._places.get(tuple(self._names[at : at + _ALIKE]), [])
            if (found := bisect_left(places, op)) < len(places):
                place = (at - first + places[found] - op, self._calls[at], places[found])
                nearest = min(nearest or place, place)
        if nearest is None:
            return None
        self._last = nearest[1]
        return nearest[1:]


def _topmost(sides: _Sides) -> Iterator[int]:
    call = 0
    while call < len(sides.calls):
        is_known = sides.calls[call] in sides.places
        if is_known:
            yield call
        call = sides.ends[call] if is_known else call + 1


# Operators that PyTorch hides from profilers (ATen/core/dispatch/ObservedOperators.cpp), and `detach`, which
# stands for copies of a tensor's handle under a mode: saving it for backward, `.data`, making a parameter.
_QUIET = ("aten::detach", "aten::size", "aten::is_leaf", "aten::output_nr", "aten::_version", "aten::is_complex")
_QUIET_NAMESPACES = ("profiler::", "prim::")
_ALIASES = {"aten::_reshape_alias": "aten::view"}
# `torch.tensor` fills memory and moves it to the device before a mode sees the first operator, `lift_fresh`.
_LIFT, _BEFORE_LIFT = "aten::lift_fresh", ("aten::to", "aten::empty")


@dataclass(frozen=True, slots=True)
class Matched:
    """`ops`: from a call to the operator it is, or belongs to. `threads`: from traced to captured threads."""

    ops: Mapping[int, int]
    threads: Mapping[int, int]


def match_ops(
    calls: Sequence[Call],
    ops: Sequence[Op],
    *,
    outside: Container[int] = (),
    tasks: Mapping[int, int] = MappingProxyType({}),
) -> Matched:
    """Return which calls are which operators. Calls in `outside`, and those below them, are none.

    `tasks` are pairs of a traced and a captured thread that stand for the same task.
    """
    spans = dict(_spans_of(calls))
    by_thread: dict[int, list[Op]] = {}
    for op in ops:
        by_thread.setdefault(op.thread, []).append(op)
    threads = _pair_threads(calls, spans, by_thread, tasks)
    found: dict[int, int] = {}
    for thread, captured in threads.items():
        found.update(_match_thread(calls, spans[thread], by_thread[captured], outside))
    for lift in [call for call in found if calls[call].name == _LIFT]:
        found.update(dict.fromkeys(_find_filling(calls, lift, found), found[lift]))
    return Matched(found, threads)


def plain_name(name: str) -> str:
    """Return the name under which a call and an operator are the same, in place or not."""
    return _ALIASES.get(name, name).rstrip("_") if "::" in name else name


def is_quiet(name: str) -> bool:
    """Return whether the profiler may not show an operator."""
    return plain_name(name) in _QUIET or name.startswith(_QUIET_NAMESPACES)


def _spans_of(calls: Sequence[Call]) -> Iterator[tuple[int, range]]:
    for thread, places in groupby(range(len(calls)), key=lambda at: calls[at].thread):
        first, *rest = places
        yield thread, range(first, first + 1 + len(rest))


def _pair_threads(
    calls: Sequence[Call],
    spans: Mapping[int, range],
    by_thread: Mapping[int, Sequence[Op]],
    tasks: Mapping[int, int],
) -> dict[int, int]:
    """Pair the callers of the step and equal tasks, then the threads that have most names in common."""
    pairs = {a: b for a, b in {0: 0, **tasks}.items() if a in spans and b in by_thread}
    left = by_thread.keys() - pairs.values() - {0}
    traced = {a: Counter(plain_name(calls[at].name) for at in spans[a]) for a in spans.keys() - pairs.keys() - {0}}
    captured = {b: Counter(plain_name(op.name) for op in by_thread[b]) for b in left}
    likeness = {(a, b): (traced[a] & captured[b]).total() for a in traced for b in captured}
    for a, b in sorted(likeness, key=lambda pair: (-likeness[pair], pair)):
        if likeness[a, b] and a not in pairs and b not in pairs.values():
            pairs[a] = b
    return pairs


def _match_thread(
    calls: Sequence[Call], span: range, ops: Sequence[Op], outside: Container[int]
) -> Iterator[tuple[int, int]]:
    kept = list(_skip(calls, span, outside))
    names = [plain_name(op.name) for op in ops]
    pairs = align(
        [plain_name(calls[at].name) for at in kept],
        [bisect_left(kept, calls[at].end) for at in kept],
        names,
        unsure={name for name in names if is_quiet(name)},
    )
    return ((kept[call], ops[op].id) for call, op in pairs)


def _skip(calls: Sequence[Call], span: range, outside: Container[int]) -> Iterator[int]:
    at = span.start
    while at < span.stop:
        if at not in outside:
            yield at
        at = calls[at].end if at in outside else at + 1


def _find_filling(calls: Sequence[Call], lift: int, found: Mapping[int, int]) -> Iterator[int]:
    """Yield the calls just before a `lift_fresh` that made its tensor."""
    at = lift
    for name in _BEFORE_LIFT:
        before = _sibling_before(calls, at)
        if before is None or calls[before].name != name or any(c in found for c in range(before, calls[before].end)):
            return
        yield before
        at = before


def _sibling_before(calls: Sequence[Call], at: int) -> int | None:
    parent, before = calls[at].parent, at - 1
    if before < 0 or before == parent or calls[before].thread != calls[at].thread:
        return None
    while (above := calls[before].parent) != parent:
        if above is None:
            return None
        before = above
    return before
