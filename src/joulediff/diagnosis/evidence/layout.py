"""Evidence: the same operator reads inputs of another data type, memory layout or alignment on the two sides.

The origin is followed back through the operators that keep a layout, to a tensor that the step was given or to the
operator that made the layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from joulediff.diagnosis.comparison import function_of, ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import calls_in
from joulediff.diagnosis.lead import CALLS_OF_OTHER_SIDE, Change, Lead, Subject, make_cause, make_subject
from joulediff.diagnosis.suggest import suggest_layout, suggest_no_cast, suggest_no_copy
from joulediff.frameworks.framework import is_copy, is_copy_call, place_of, short_name
from joulediff.model.finding import FindingKind
from joulediff.model.pair import Pair, pair_from
from joulediff.model.run import Run, Setting, Value

Aspect = Literal["dtype", "memory_format", "strides", "alignment"]

_MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class LayoutDifference:
    """One input of an operator whose layout differs between the two sides."""

    position: int
    aspect: Aspect
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a layout began: at operator `op`, or at a tensor that the step was given and that `op` reads first."""

    op: int
    given: str | None
    """The name or the kind of the tensor that the step was given; None if `op` made the layout."""


def find_layout(subject: Subject) -> list[Lead]:
    """Return a lead for each aspect in which the inputs of the same operator differ.

    A cast that only the expensive side runs is named by the data type that its reader gets.
    """
    if subject.relation == "one_sided":
        return _cast_lead(subject)
    calls = _same_calls(subject) if subject.relation == "same_operators" else None
    if calls is None:
        return []
    comparison = subject.comparison
    differences = find_differences(comparison.a, calls.a, comparison.b, calls.b)
    leads = [_layout_lead(subject, calls.of(subject.expensive), each) for each in differences]
    first_of_key = {lead.cause.key: lead for lead in reversed(leads)}
    return list(reversed(first_of_key.values()))


def _cast_lead(subject: Subject) -> list[Lead]:
    """Return the lead of a cast whose result an operator reads that gets another type on the cheap side."""
    comparison, side, casts = subject.comparison, subject.expensive, ops_of(subject.region, subject.expensive)
    for region in comparison.readers_of(casts, side):
        reader = make_subject(comparison, region, side, subject.live)
        calls = _same_calls(reader) if reader.relation == "same_operators" else None
        differences = [] if calls is None else find_differences(comparison.a, calls.a, comparison.b, calls.b)
        for each in differences:
            op = None if calls is None else calls.of(side)
            if op is None or each.aspect != "dtype" or find_origin(comparison.run(side), op, each).op not in casts:
                continue
            return [replace(_layout_lead(reader, op, each), changes=(Change("the cast left out", calls=True),))]
    return []


def _layout_lead(subject: Subject, op: int, difference: LayoutDifference) -> Lead:
    side, run = subject.expensive, subject.comparison.run(subject.expensive)
    origin = find_origin(run, op, difference)
    copy_call = None if origin.given is not None else _copy_call(run, origin.op)
    kind: FindingKind = "misconfiguration" if origin.given is not None else "api_misuse"
    values: Pair[Setting] = Pair(difference.text_a, difference.text_b)
    began = f"given to the step as {origin.given}"
    if origin.given is None:
        began = f"made by {run.ops[origin.op].name}"
    name = run.ops[op].name
    evidence = (
        f"{short_name(name)} reads {values.of(side)} where the other side has {values.of(subject.cheap)}; {began}"
    )
    locations = pair_from(side, to_place(run, place_of(run, origin.op)), subject.place(subject.cheap))
    cause = make_cause("layout", copy_call or difference.aspect, values, locations, (evidence,))
    aspect = difference.aspect.replace("_", " ")
    inputs = Change(f"inputs with the {aspect} of the other side", layout=(difference.aspect,))
    suggestion = suggest_layout(cause, side, op=name) if copy_call is None else suggest_no_copy(cause, side)
    if (
        difference.aspect == "dtype"
        and origin.given is None
        and _is_cast_from(run, origin.op, values.of(subject.cheap))
    ):
        suggestion = suggest_no_cast(cause, side, inside=function_of(subject.comparison, side, [origin.op]))
    return Lead(kind, cause, (inputs, CALLS_OF_OTHER_SIDE), suggestion)


def _is_cast_from(run: Run, op: int, dtype: Setting) -> bool:
    """Return whether an operator reads one tensor, of this data type."""
    return [run.values[value].dtype for value in run.ops[op].inputs] == [dtype]


def _copy_call(run: Run, op: int) -> str | None:
    """Return the call in the source that copied a tensor to another layout; None if there is none."""
    if not is_copy(run.ops[op].name):
        return None
    frame = place_of(run, op)
    text = None if frame is None else run.line_text(frame.file, frame.line)
    return next((name for name in calls_in(text or "") if is_copy_call(name)), None)


def _same_calls(subject: Subject) -> Pair[int] | None:
    """Return the expensive side's costliest operator and the cheap side's n-th one of the same name."""
    op, comparison = subject.op(subject.expensive), subject.comparison
    if op is None:
        return None
    name = comparison.run(subject.expensive).ops[op].name
    mine, others = (
        [each for each in ops_of(subject.region, side) if comparison.run(side).ops[each].name == name]
        for side in (subject.expensive, subject.cheap)
    )
    if len(mine) != len(others):
        return None
    return pair_from(subject.expensive, op, others[mine.index(op)])


def find_differences(a: Run, op_a: int, b: Run, op_b: int) -> list[LayoutDifference]:
    """Return how the inputs of two calls of one operator differ: data types first, then layout, then alignment."""
    found = []
    pairs = zip(a.ops[op_a].inputs, b.ops[op_b].inputs, strict=False)
    for position, (left, right) in enumerate((a.values[x], b.values[y]) for x, y in pairs):
        if left.dtype != right.dtype:
            found.append(LayoutDifference(position, "dtype", left.dtype, right.dtype))
        if _order(left) != _order(right) or _has_gaps(left) != _has_gaps(right):
            is_format = _is_format(left) and _is_format(right) and _order(left) != _order(right)
            aspect: Aspect = "memory_format" if is_format else "strides"
            found.append(LayoutDifference(position, aspect, _describe(left, aspect), _describe(right, aspect)))
        elif left.is_aligned != right.is_aligned:
            texts = ("aligned" if value.is_aligned else "not aligned to 16 bytes" for value in (left, right))
            found.append(LayoutDifference(position, "alignment", *texts))
    rank = {"dtype": 0, "memory_format": 1, "strides": 2, "alignment": 3}
    return sorted(found, key=lambda each: rank[each.aspect])


def find_origin(run: Run, op: int, difference: LayoutDifference) -> Origin:
    """Return where the layout of an input began."""
    value, reader = run.ops[op].inputs[difference.position], op
    for _ in range(_MAX_STEPS):
        found = run.values[value]
        maker = found.producer
        if maker is None:
            return Origin(reader, found.name or found.kind)
        source = next(
            (v for v in run.ops[maker].inputs if _keeps_layout(run.values[v], found, difference.aspect)), None
        )
        if source is None:
            return Origin(maker, None)
        value, reader = source, maker
    return Origin(reader, None)


def _keeps_layout(source: Value, made: Value, aspect: Aspect) -> bool:
    """Return whether a tensor has the layout of its source tensor."""
    if aspect == "dtype":
        return source.dtype == made.dtype
    if aspect == "alignment":
        return source.is_aligned == made.is_aligned
    same = len(source.shape) == len(made.shape) and _order(source) == _order(made)
    return same and _has_gaps(source) == _has_gaps(made)


def _order(value: Value) -> tuple[int, ...]:
    """Return the dimensions from the outermost in memory to the innermost; those of length 1 do not count."""
    real = [at for at, length in enumerate(value.shape) if length > 1]
    if len(value.strides) != len(value.shape):
        return ()
    ordered = sorted(real, key=lambda at: (-value.strides[at], at))
    ranks = {at: rank for rank, at in enumerate(real)}
    found = tuple(ranks[at] for at in ordered)
    return () if found == tuple(range(len(found))) else found


def _is_format(value: Value) -> bool:
    return len(value.shape) in (4, 5) and _format(value) is not None


def _format(value: Value) -> str | None:
    dims = tuple(range(len(value.shape)))
    strides = value.strides
    if not strides or len(strides) != len(dims):
        return None
    order = tuple(sorted(dims, key=lambda at: (-strides[at], at)))
    if order == dims:
        return "contiguous"
    return "channels_last" if order == (0, *dims[2:], 1) else None


def _describe(value: Value, aspect: Aspect) -> str:
    if aspect == "memory_format":
        return _format(value) or "?"
    shape = "x".join(map(str, value.shape))
    is_dense = not _order(value) and not _has_gaps(value)
    return f"{shape}, {'contiguous' if is_dense else 'strides ' + ','.join(map(str, value.strides))}"


def _has_gaps(value: Value) -> bool:
    """Return whether a tensor skips memory between its elements, as a slice of a larger tensor does."""
    if len(value.strides) != len(value.shape) or 0 in value.strides or 0 in value.shape:
        return False
    span = 1 + sum((length - 1) * stride for length, stride in zip(value.shape, value.strides, strict=True))
    return span > math.prod(value.shape)
