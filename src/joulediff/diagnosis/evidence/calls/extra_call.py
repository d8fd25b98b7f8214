"""Names the call of the user's own function that the extra work of a region lies in.

Where a region has many operators, none of them names it. Operators are extra if the cheap side of the region has none
of the same name and shapes left for them. The call is the outermost one on the way to them that does little else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from joulediff.diagnosis.comparison import ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import calls_in
from joulediff.diagnosis.lead import Subject
from joulediff.frameworks.framework import place_of
from joulediff.model.energy import joules_of
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run

# Part of the work of a call that is extra, and part of the extra work that lies in it.
_MOST, _CHIEF = 0.75, 0.5
# A call with this part of a step's work is the program itself.
_WHOLE = 0.8
# A line with this part of the extra work is named by what it calls.
_ONE_LINE = 0.5


@dataclass(frozen=True, slots=True)
class ExtraCall:
    """A function of the user's own, as its callers write it, and the line that calls it."""

    name: str
    place: Place | None
    is_done_less: bool
    """The cheap side runs operators like those as well, and fewer of them."""


@dataclass(slots=True)
class _Inside:
    """The energy below a line, the part of it that is extra, and the own functions that the line calls."""

    depth: int
    all_j: float = 0.0
    extra_j: float = 0.0
    callees: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def find_extra_call(subject: Subject) -> ExtraCall | None:
    """Return the call that most of the extra work lies in; None if one line does it, or if no call holds it alone."""
    side = subject.expensive
    comparison, run = subject.comparison, subject.comparison.run(side)
    costs = comparison.costs[side]
    each_j = {op.id: joules_of(costs.of([op.id])) for op in run.ops if costs.kernels[op.id]}
    extra = extra_ops(subject) & each_j.keys()
    total_j, extra_j = sum(each_j.values()), sum(each_j[op] for op in extra)
    if extra_j <= 0 or _is_named_by_line(subject, extra, each_j, extra_j):
        return None
    lines: dict[int, _Inside] = {}
    for op, own_j in each_j.items():
        own = _own_path(run, op)
        for depth, (at, frame) in enumerate(own):
            inside = lines.setdefault(at, _Inside(depth))
            inside.all_j += own_j
            inside.extra_j += own_j if op in extra else 0.0
            callee = next((each.function for _, each in own[depth + 1 :] if each.function != frame.function), None)
            if callee is not None:
                inside.callees[callee] += own_j
    fitting = [at for at, inside in lines.items() if _holds_extra(inside, total_j, extra_j)]
    if not fitting:
        return None
    at = min(fitting, key=lambda each: (lines[each].depth, -lines[each].extra_j))
    callees = lines[at].callees
    callee = max(callees, key=lambda each: callees[each])
    below = {op for op in extra if any(each == at for each, _ in _own_path(run, op))}
    place = to_place(run, run.frames[at])
    return ExtraCall(as_called(callee), place, _is_done_less(subject, below))


def _is_done_less(subject: Subject, extra: set[int]) -> bool:
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    known = {_form(other, op.id) for op in other.ops}
    return sum(_form(run, op) in known for op in extra) >= _MOST * len(extra)


def _holds_extra(inside: _Inside, total_j: float, extra_j: float) -> bool:
    most_j = max(inside.callees.values(), default=0.0)
    is_one_call = most_j >= _MOST * inside.all_j
    is_extra = inside.extra_j >= _MOST * inside.all_j and inside.extra_j >= _CHIEF * extra_j
    return is_one_call and is_extra and inside.all_j < _WHOLE * total_j


def extra_ops(subject: Subject) -> set[int]:
    """Return the operators of the expensive side of a region, and of those like it, that the cheap side lacks."""
    comparison, side = subject.comparison, subject.expensive
    alike = next((group.regions for group in comparison.groups if subject.region.id in group.regions), ())
    regions = [comparison.by_id[number] for number in alike] or [subject.region]
    run, other = comparison.run(side), comparison.run(subject.cheap)
    left = Counter(_form(other, op) for region in regions for op in ops_of(region, subject.cheap))
    found = set()
    for op in (op for region in regions for op in ops_of(region, side)):
        form = _form(run, op)
        if left[form]:
            left[form] -= 1
        else:
            found.add(op)
    return found


def _form(run: Run, op: int) -> tuple[object, ...]:
    found = run.ops[op]
    return (found.name, *(run.values[value].shape for value in found.inputs))


def _is_named_by_line(subject: Subject, extra: set[int], each_j: dict[int, float], extra_j: float) -> bool:
    """Return whether the line of the costliest operator has a call, and most of the extra work."""
    run, frame = subject.comparison.run(subject.expensive), subject.frame(subject.expensive)
    if frame is None or not calls_in(run.line_text(frame.file, frame.line) or ""):
        return False
    line_j = sum(each_j[op] for op in extra if _line(place_of(run, op)) == _line(frame))
    return line_j >= _ONE_LINE * extra_j


def _line(frame: Frame | None) -> tuple[str, int] | None:
    return None if frame is None else (frame.file, frame.line)


def _own_path(run: Run, op: int) -> list[tuple[int, Frame]]:
    forward, at = run.ops[op].forward, run.ops[op].frame
    return own_frames(run, run.ops[forward].frame if at is None and forward is not None else at)


def own_frames(run: Run, at: int | None) -> list[tuple[int, Frame]]:
    """Return the user's own frames on the way to a frame with their numbers, outermost first, no comprehensions."""
    found = []
    while at is not None:
        frame = run.frames[at]
        if frame.owner is None and not frame.function.rpartition(".")[2].startswith("<"):
            found.append((at, frame))
        at = frame.parent
    return found[::-1]


def as_called(function: str) -> str:
    """Return the name of a function as its callers write it: a module or an object is called by its class."""
    return function.rpartition("<locals>.")[2].removesuffix(".__call__").removesuffix(".forward")
