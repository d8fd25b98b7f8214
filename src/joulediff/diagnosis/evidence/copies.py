"""Evidence: the expensive side repeats a tensor or parts of it, and does the same work on every copy.

A call repeats a tensor if its output has the elements of its input several times: `repeat`, `expand`, `cat` of equal
tensors, `stack` of windows that overlap. It is a lead only if an operator that follows from it works on as many times
the elements as on the cheap side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from joulediff.diagnosis.comparison import ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import call_behind, find_call
from joulediff.diagnosis.lead import CALLS_OF_OTHER_SIDE, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_fewer_copies
from joulediff.frameworks.framework import is_product, place_of, short_name
from joulediff.model.pair import Pair, pair_from
from joulediff.model.run import Run, Setting, is_view
from joulediff.model.signature import compare

# Copies are exact; their sums are added in another order.
_SAME = 1e-6
# Operators before the costliest one that are searched.
_MOST_BEFORE = 2000


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A call that repeats its input `times`; parts of it are repeated if that is no whole number."""

    op: int
    times: float

    @property
    def copies(self) -> str:
        """The copies in words."""
        return f"{self.times:g} copies" if self.times % 1 == 0 else f"{self.times:.3g} copies on average"


def find_copies(subject: Subject) -> list[Lead]:
    """Return a lead for the call that makes the copies that the costliest operator works on."""
    op = subject.op(subject.expensive)
    if op is None or subject.relation == "one_sided":
        return []
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    factors = _factors(subject, op)
    if not factors:
        return []
    theirs = {each for at in _cheap_ops(subject) for each in _repeats_before(other, at)}
    known = Counter(_name(other, each) for each in theirs)
    mine = [each for each in _repeats_before(run, op) if _is_among(each.times, factors)]
    extra = Counter(_name(run, each) for each in mine) - known
    found = next((each for each in mine if extra[_name(run, each)]), None)
    return [] if found is None else [_lead(subject, op, found)]


def _is_among(times: float, factors: Iterable[float]) -> bool:
    return any(math.isclose(times, each, rel_tol=_SAME) for each in factors)


def _name(run: Run, found: _Repeat) -> tuple[str, float]:
    return run.ops[found.op].name, found.times


def _lead(subject: Subject, op: int, found: _Repeat) -> Lead:
    side, run = subject.expensive, subject.comparison.run(subject.expensive)
    frame = place_of(run, found.op)
    key = call_behind(run, found.op, frame)
    name = short_name(run.ops[op].name)
    sizes = pair_from(side, _shape(run, op), _shape(subject.comparison.run(subject.cheap), subject.op(subject.cheap)))
    evidence = (
        f"{key} makes {found.copies} of a tensor, and {name} works on each of them",
        f"{name} makes {sizes.a} in A and {sizes.b} in B",
    )
    values: Pair[Setting] = pair_from(side, found.copies, None)
    cause = make_cause("shape", key, values, pair_from(side, to_place(run, frame), None), evidence)
    return Lead("redundant", cause, (CALLS_OF_OTHER_SIDE,), suggest_fewer_copies(cause, side, copies=found.copies))


def _shape(run: Run, op: int | None) -> str:
    outputs = () if op is None else run.ops[op].outputs
    return "×".join(map(str, run.values[outputs[0]].shape)) if outputs else "no tensor"


def _factors(subject: Subject, op: int) -> set[float]:
    """Return how many times the elements of an operator are those of one like it on the cheap side."""
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    mine = _elements(run, op)
    sizes = {_elements(other, at) for at in _cheap_ops(subject) if _is_like(run, op, other, at)}
    return {mine / size for size in sizes if 0 < size < mine}


def _cheap_ops(subject: Subject) -> list[int]:
    run = subject.comparison.run(subject.cheap)
    return [op for op in ops_of(subject.region, subject.cheap) if run.index.kernels[op]]


def _is_like(a: Run, op_a: int, b: Run, op_b: int) -> bool:
    names = a.ops[op_a].name, b.ops[op_b].name
    return names[0] == names[1] or all(map(is_product, names))


def _elements(run: Run, op: int) -> int:
    return sum(signature.count for value in run.ops[op].outputs if (signature := run.signature_of(value)) is not None)


def _repeats_before(run: Run, op: int) -> Iterator[_Repeat]:
    """Yield the calls that repeat a tensor and that an operator follows from, the nearest first."""
    waiting, seen = {op}, {op}
    for _ in range(_MOST_BEFORE):
        if not waiting:
            return
        at = max(waiting)  # operators are numbered in the order of their calls
        waiting.remove(at)
        times = 1.0 if at == op else _times_repeated(run, at) or _times_overlapping(run, at)
        # A product expands the smaller of its matrices by itself, as a view.
        if times > 1 and (not is_view(run, at) or find_call(run, at, place_of(run, at)) is not None):
            yield _Repeat(at, times)
        made_by = (run.values[value].producer for value in run.ops[at].inputs)
        before = {each for each in made_by if each is not None} - seen
        waiting |= before
        seen |= before


def _times_repeated(run: Run, op: int) -> float:
    """Return how often an operator repeats its first input in its only output; 0 for any other operator."""
    found = run.ops[op]
    if not found.inputs or len(found.outputs) != 1 or found.writes:
        return 0.0
    given, made = run.signature_of(found.inputs[0]), run.signature_of(found.outputs[0])
    if given is None or made is None or given.constant or not given.count or made.count % given.count:
        return 0.0
    times = made.count // given.count
    is_copied = (given.low, given.high) == (made.low, made.high) and compare(
        given.repeated(times), made, tolerance=_SAME
    )
    return float(times) if is_copied and times > 1 else 0.0


def _times_overlapping(run: Run, op: int) -> float:
    """Return how often each element of a tensor is in the parts that an operator makes of it; 0 if none is twice.

    That is a view of windows, or views of one tensor that are joined.
    """
    found = run.ops[op]
    storages = {run.values[value].storage for value in found.inputs}
    if len(found.outputs) != 1 or len(storages) != 1 or found.writes:
        return 0.0
    given, made = sum(_distinct(run, value) for value in found.inputs), _distinct(run, found.outputs[0])
    is_joined = len(found.inputs) > 1 and made == given
    is_viewed = len(found.inputs) == 1 and made > given and is_view(run, op)
    if not is_joined and not is_viewed:
        return 0.0
    whole = max(_distinct(run, value.id) for value in run.values if value.storage in storages and value.producer != op)
    return made / whole if made > whole else 0.0


def _distinct(run: Run, value: int) -> float:
    """Return the number of elements of a tensor without those that expanding it repeats."""
    found = run.values[value]
    return math.prod(found.shape) / max(1, found.repeats)
