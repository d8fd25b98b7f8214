"""Find the captured operators among the calls of a trace, thread by thread.

A dispatch mode and the profiler do not tell quite the same story of one step: under a mode autograd adds
out of place, `reshape` calls another view, and a tensor is sometimes detached where the profiler shows nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from joulediff.recorders.torch.align import align
from joulediff.recorders.torch.traced import Call
from joulediff.runs import Op

# What PyTorch's dispatcher keeps from observers (ATen/core/dispatch/ObservedOperators.cpp), and `detach`, which
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


def match_ops(calls: Sequence[Call], ops: Sequence[Op], *, outside: Container[int] = ()) -> Matched:
    """Return which calls are which operators. Calls in `outside`, and those below them, are none."""
    spans = dict(_spans_of(calls))
    by_thread: dict[int, list[Op]] = {}
    for op in ops:
        by_thread.setdefault(op.thread, []).append(op)
    threads = _pair_threads(calls, spans, by_thread)
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
    calls: Sequence[Call], spans: Mapping[int, range], by_thread: Mapping[int, Sequence[Op]]
) -> dict[int, int]:
    """Pair the callers of the step, then the threads that have most names in common."""
    traced = {thread: Counter(plain_name(calls[at].name) for at in span) for thread, span in spans.items()}
    captured = {thread: Counter(plain_name(op.name) for op in ops) for thread, ops in by_thread.items()}
    pairs = {0: 0} if 0 in traced and 0 in captured else {}
    likeness = {(a, b): (traced[a] & captured[b]).total() for a in traced for b in captured if a and b}
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
