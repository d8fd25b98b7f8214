"""Evidence: the expensive side computes more numbers with the same operator.

Either nothing reads the others, such as logits of all tokens, or the calls around the operator agree in their outputs
nevertheless, as with padding or without a cache.
"""

from __future__ import annotations

import math
from dataclasses import replace

from joulediff.diagnosis.evidence.calls.call_path import NOT_TRACED, call_lead, key_lead, trace_both
from joulediff.diagnosis.evidence.calls.deviation import shared_frames
from joulediff.diagnosis.evidence.calls.extra_call import as_called
from joulediff.diagnosis.evidence.calls.key_variable import KeyVariable
from joulediff.diagnosis.lead import Lead, Subject
from joulediff.diagnosis.suggest import suggest_smaller
from joulediff.frameworks.framework import short_name
from joulediff.model.run import Run

# Prefix of a tensor's description. Different shapes are the difference to explain, not its cause.
_TENSOR = "tensor("


def find_discarded_outputs(subject: Subject) -> list[Lead]:
    """Return a lead if the same operator computes more numbers than the other side needs for its outputs."""
    op = subject.op(subject.expensive)
    if op is None or not makes_more(subject) or _is_read_whole(subject, op):
        return []
    like = subject.op(subject.cheap)
    assert like is not None
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    name, made, needed = short_name(run.ops[op].name), _count_made(run, op), _count_made(other, like)
    why = "the rest is not read"
    if subject.region.basis == "call":
        why = "the outputs of the calls around it are equal"
    evidence = f"{name} makes {made:,} numbers where the other side makes {needed:,}; {why}"
    key = _find_argument(subject)
    if isinstance(key, KeyVariable):
        lead = key_lead(subject, key, (evidence, *key.trail))
    else:
        lead = call_lead(subject, (evidence, *([key] if key else [])))
        lead = _named_by_function(subject, lead, made / needed) if needed else lead
    return [replace(lead, kind="redundant")]


def _named_by_function(subject: Subject, lead: Lead, times: float) -> Lead:
    """Return the lead with the user's function around the operator as its name, if both sides make the same call."""
    side, cause = subject.expensive, lead.cause
    place = subject.functions.of(side)
    run = subject.comparison.run(side)
    own = [frame for frame in run.frames if place is not None and frame.function == place.function]
    is_own = bool(own) and all(frame.owner is None and frame.parent is not None for frame in own)
    if place is None or not is_own or cause.value_a != cause.value_b:
        return lead
    named = replace(cause, key=as_called(place.function))
    return replace(lead, cause=named, suggestion=suggest_smaller(named, side, times=times))


def makes_more(subject: Subject) -> bool:
    """Return whether the costliest operators are the same and that of the expensive side computes more numbers."""
    op, like = subject.op(subject.expensive), subject.op(subject.cheap)
    if op is None or like is None:
        return False
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    return run.ops[op].name == other.ops[like].name and _count_made(run, op) > _count_made(other, like)


def _count_made(run: Run, op: int) -> int:
    return sum(math.prod(run.values[value].shape) for value in run.ops[op].outputs)


def _is_read_whole(subject: Subject, op: int) -> bool:
    """Return whether the region's outputs have as many numbers as one of its operators computes."""
    run = subject.comparison.run(subject.expensive)
    outputs = subject.region.outputs_of(subject.expensive)
    return any(math.prod(run.values[value].shape) >= _count_made(run, op) for value in outputs)


def _find_argument(subject: Subject) -> KeyVariable | str | None:
    """Return the argument that differs in the innermost function that both sides run, or why none is known."""
    assert subject.op_a is not None and subject.op_b is not None
    if len(subject.live) < 2:
        return NOT_TRACED
    paths = subject.comparison.a.call_path(subject.op_a), subject.comparison.b.call_path(subject.op_b)
    for common in shared_frames(*paths):
        key = trace_both(subject, common)
        if isinstance(key, KeyVariable) and not _is_tensor(key.value_a) and not _is_tensor(key.value_b):
            return key
    return None


def _is_tensor(value: object) -> bool:
    return str(value).startswith(_TENSOR)
