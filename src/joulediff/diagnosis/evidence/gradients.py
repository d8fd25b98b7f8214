"""Evidence: the expensive side computes gradients of work that both sides do, and the cheap side does without them.

The extra operators are backward ones whose forward operators have a counterpart: the work itself is the same, so its
result should be detached before the part that asks for the gradients, or its weights should need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from joulediff.diagnosis.comparison import Comparison, ops_of, to_place
from joulediff.diagnosis.evidence.calls.extra_call import extra_ops, own_frames
from joulediff.diagnosis.evidence.calls.source_calls import calls_in
from joulediff.diagnosis.lead import Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_detaching
from joulediff.frameworks.framework import detaching_call
from joulediff.model.energy import joules_of
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.run import Frame, Setting

# Part of the extra energy that is that of backward operators, and of these whose forward operators both sides run.
_MOST = 0.75
# A single operator is named by its call.
_LEAST_OPS = 2


@dataclass(slots=True)
class _Inside:
    """The energy of gradients of the work below a line, the part of it that is extra, and the functions it calls."""

    depth: int
    all_j: float = 0.0
    extra_j: float = 0.0
    functions: set[str] = field(default_factory=set)


def find_gradients(subject: Subject) -> list[Lead]:
    """Return the lead of a call of the user's whose gradients only the expensive side computes."""
    comparison, side = subject.comparison, subject.expensive
    run, costs = comparison.run(side), comparison.costs[side]
    extra = [op for op in extra_ops(subject) if run.index.kernels[op]]
    backward = [op for op in extra if run.ops[op].phase == "backward" and run.ops[op].forward is not None]
    if len(backward) < _LEAST_OPS:
        return []
    shared = _with_counterpart(comparison, side, backward)
    extra_j, shared_j = (joules_of(costs.of(ops)) for ops in (extra, shared))
    if len(shared) < _LEAST_OPS or shared_j < _MOST * extra_j:
        return []
    call, detach = _find_call(comparison, side, shared), detaching_call(run)
    if call is None or detach is None:
        return []
    frame, name = call
    values: Pair[Setting] = pair_from(side, f"gradients of {name}", None)
    evidence = (
        f"{len(shared)} operators compute gradients of {name}, whose work both sides do; "
        f"{other_side(side).upper()} computes none of them there"
    )
    cause = make_cause("redundancy", detach, values, pair_from(side, to_place(run, frame), None), (evidence,))
    return [Lead("redundant", cause, (), suggest_detaching(cause, side, name=name))]


def _with_counterpart(comparison: Comparison, side: SideName, backward: Iterable[int]) -> list[int]:
    """Return the backward operators whose forward operators the other side runs as well."""
    run = comparison.run(side)
    both = {op for each in comparison.regions if ops_of(each, other_side(side)) for op in ops_of(each, side)}
    return [op for op in backward if run.ops[op].forward in both]


def _find_call(comparison: Comparison, side: SideName, backward: Sequence[int]) -> tuple[Frame, str] | None:
    """Return the user's outermost line that does little else than work with such gradients, and the call in it."""
    run, costs = comparison.run(side), comparison.costs[side]
    each_j = {op.id: joules_of(costs.of([op.id])) for op in run.ops if op.forward is not None}
    extra, extra_j = set(backward), sum(each_j[op] for op in backward)
    inside: dict[int, _Inside] = {}
    for op, own_j in each_j.items():
        forward = run.ops[op].forward
        assert forward is not None
        own = own_frames(run, run.ops[forward].frame)
        for depth, (at, _) in enumerate(own):
            found = inside.setdefault(at, _Inside(depth))
            found.all_j += own_j
            found.extra_j += own_j if op in extra else 0.0
            found.functions.update(frame.function for _, frame in own[depth + 1 : depth + 2])
    fitting = [at for at, each in inside.items() if each.extra_j >= _MOST * max(each.all_j, extra_j)]
    for at in sorted(fitting, key=lambda each: inside[each].depth):
        frame = run.frames[at]
        calls = calls_in(run.line_text(frame.file, frame.line) or "")
        if calls:
            return frame, _named_by(inside[at].functions, calls)
    return None


def _named_by(functions: Iterable[str], calls: Sequence[str]) -> str:
    """Return the call in a line that enters a function by its name; the outermost one if none has it."""
    words = {word for function in functions for word in function.split(".")}
    return next((call for call in calls if call in words), calls[0])
