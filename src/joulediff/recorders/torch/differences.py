"""Where the traced and the captured step did not run the same operators."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.recorders.torch.match import Matched, is_quiet, plain_name
from joulediff.recorders.torch.traced import Call
from joulediff.runs import Op


@dataclass(frozen=True, slots=True)
class Differences:
    """Calls that are no captured operator, and operators without a call."""

    traced: tuple[int, ...]
    captured: tuple[int, ...]
    notes: tuple[str, ...]


def find_differences(
    calls: Sequence[Call], ops: Sequence[Op], matched: Matched, *, outside: Container[int] = ()
) -> Differences:
    """Return what only one of the two steps did."""
    traced = tuple(_find_unmatched(calls, _names_of(ops), matched, outside))
    found = {*matched.ops.values()}
    captured = tuple(op.id for op in ops if op.id not in found and not is_quiet(op.name))
    names = {op.id: op.name for op in ops}
    notes = []
    if traced:
        before = _op_before(calls, traced[0], matched.ops)
        place = "at the begin" if before is None else f"after {names[before]} (op {before})"
        what = f"{_count(traced)} that the captured one did not"
        notes.append(f"the traced step ran {what}, first {calls[traced[0]].name} {place}")
    if captured:
        what = f"{_count(captured)} that the traced one did not"
        notes.append(f"the captured step ran {what}, first {names[captured[0]]} (op {captured[0]})")
    return Differences(traced, captured, tuple(notes))


def find_loose(calls: Sequence[Call], matched: Matched, *, outside: Container[int] = ()) -> Iterator[int]:
    """Yield every outermost operator among the calls that has none of the captured ones in or above it."""
    opened = _ancestors(calls, matched.ops)
    at = 0
    while at < len(calls):
        call = calls[at]
        is_operator = "::" in call.name
        if at not in matched.ops and at not in outside and at not in opened and is_operator and not is_quiet(call.name):
            yield at
        at = at + 1 if at in opened or not (is_operator or at in outside) else call.end


def _names_of(ops: Sequence[Op]) -> set[str]:
    """Return the names that are never shown for a mere composite of operators.

    In inference mode composite operators arrive whole, so their names say nothing about the rest of the step.
    """
    plain = {plain_name(op.name) for op in ops if not op.inference} or {plain_name(op.name) for op in ops}
    return {name for name in plain if not is_quiet(name)}


def _find_unmatched(
    calls: Sequence[Call], names: Container[str], matched: Matched, outside: Container[int]
) -> Iterator[int]:
    opened = _ancestors(calls, matched.ops)
    at = 0
    while at < len(calls):
        call = calls[at]
        if at in matched.ops or at in outside:
            at = call.end
        elif at not in opened and plain_name(call.name) in names:
            yield at
            at = call.end
        else:
            at += 1


def _ancestors(calls: Sequence[Call], below: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    for at in below:
        parent = calls[at].parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = calls[parent].parent
    return found


def _op_before(calls: Sequence[Call], at: int, ops: Mapping[int, int]) -> int | None:
    before = [call for call in ops if call < at and calls[call].thread == calls[at].thread]
    return ops[max(before)] if before else None


def _count(found: Sequence[object]) -> str:
    return "1 operator" if len(found) == 1 else f"{len(found)} operators"
