"""What a step leaves: the tensors that it returns, those given to it that it changes, and the numbers that it reads.

They are compared by signature, so two recordings suffice. Unknown is no agreement: a result that one step lacks, or
that has another number of elements, differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from joulediff.model.run import Run
from joulediff.model.signature import SKETCH_STEP, Signature, difference

OUTPUT = "output"
_OTHER = 1.0
# The end of the name of a gradient: it is `weight.grad` of `weight`.
_GRADIENT = ".grad"
# Equal tensors of two steps differ by the order of sums in float32.
_SAME = 1e-4
# Bits of the fraction of types that round coarsely; those with more round by less than any difference that counts.
_FRACTION_BITS = {"bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}
# Orders of the same sums give results that differ by up to this many roundings: those of a Llama of two layers in
# bfloat16 with and without fused norms by 2.3 on an H200, and each from float32 by about one.
_ROUNDINGS = 4


def returned_distance(a: Run, b: Run) -> float | None:
    """Return the largest distance between the values that two steps returned, paired by name."""
    left, right = _returned(a), _returned(b)
    distances = [
        difference(a.signature_of(left[name]), b.signature_of(right[name])) for name in left.keys() & right.keys()
    ]
    return max((distance for distance in distances if distance is not None), default=None)


def output_distance(a: Run, b: Run) -> float | None:
    """Return the largest distance between all that two steps returned; None if a part of it is not known."""
    left, right = _returned(a), _returned(b)
    if not left or not right:
        return None
    if left.keys() != right.keys():
        return None if _has_unknown(a, left) or _has_unknown(b, right) else _OTHER
    distances = [_distance(a.signature_of(left[name]), b.signature_of(right[name])) for name in left]
    known = [each for each in distances if each is not None]
    return max(known) if len(known) == len(distances) else None


def _has_unknown(run: Run, values: Mapping[str, int]) -> bool:
    return any(run.values[value].signature is None for value in values.values())


def result_distance(a: Run, b: Run, *, is_read: Callable[[str], bool], needed: Run | None = None) -> float | None:
    """Return the largest distance between all results of two steps; None if they have none, or it is not known.

    Steps that return no tensor and change no named one are compared by the numbers that they read: `is_read` says
    whether an operator of that name reads one. `needed` is a program for the same job: a tensor that it has no
    counterpart of, such as a buffer that only `a` fills, is no result. Storage of the program's own, outside of
    modules, may have the same numbers in the order of `needed`.
    """
    left, right = _results(a), _results(b)
    if needed is not None and _returned(a):
        extra = _changed_alone(a, needed)
        left, right = ({name: at for name, at in each.items() if name not in extra} for each in (left, right))
    if not left and not right:
        left, right = _reads(a, is_read), _reads(b, is_read)
    if not left or not right:
        return None
    alone = [*((a, b, left[name]) for name in left.keys() - right.keys())]
    alone += [(b, a, right[name]) for name in right.keys() - left.keys()]
    if not all(_is_no_change(mine, other, value) for mine, other, value in alone):
        return _OTHER
    own = {} if needed is None else _own_storage(a, needed)
    distances = []
    for name in left.keys() & right.keys():
        wanted = [a.signature_of(left[name])]
        if needed is not None and name in own:
            wanted.append(needed.signature_of(own[name]))
        distances.append(_least_distance(wanted, b.signature_of(right[name])))
    known = [each for each in distances if each is not None]
    return max(known) if known and len(known) == len(distances) else None


def _least_distance(wanted: Sequence[Signature | None], found: Signature | None) -> float | None:
    """Return the distance of a tensor to the nearest of those that it may be; None if one is not known."""
    distances = [_distance(each, found) for each in wanted]
    known = [each for each in distances if each is not None]
    return min(known) if len(known) == len(distances) else None


def _is_no_change(run: Run, other: Run, value: int) -> bool:
    """Return whether a tensor that one step alone changes kept its value, or is a gradient that the other has as well.

    A gradient may be written into a tensor that exists, or be a new tensor in each step; that of a weight that takes no
    part may be zero, or not exist. A tensor that is filled with zeros may be missing too.
    """
    found = run.values[value]
    if found.name is None or found.name.startswith(OUTPUT):
        return False
    now, given = run.signature_of(value), run.signature_of(_first(run, value))
    if now is None:
        return False
    is_missing = all(each.name != found.name for each in other.values)
    if _distance(now, given) == 0.0 or (is_missing and now.zeros == now.count):
        return True
    if not found.name.endswith(_GRADIENT):
        return False
    alike = (each.id for each in other.values if each.shape == found.shape and each.producer is not None)
    distances = (_distance(now, other.signature_of(each)) for each in alike)
    return any(distance is not None and distance <= _SAME for distance in distances)


def rounding_share(run: Run) -> float:
    """Return how far the results of a step may move by rounding alone, as a share of their norm."""
    types = {run.values[at].dtype for at in _results(run).values()}
    return max((_ROUNDINGS * 2.0 ** -_FRACTION_BITS[each] for each in types if each in _FRACTION_BITS), default=0.0)


def _distance(a: Signature | None, b: Signature | None) -> float | None:
    if a is None or b is None:
        return None
    found = difference(a, b)
    if found is None:
        return _OTHER
    if a.sketch is None or b.sketch is None or not a.sum_x2:
        return found
    apart = math.sqrt(sum((x - y) ** 2 for x, y in zip(a.sketch, b.sketch, strict=True))) * SKETCH_STEP
    return max(found, apart)


def _returned(run: Run) -> dict[str, int]:
    return {value.name: value.id for value in run.values if value.name is not None and value.name.startswith(OUTPUT)}


def _results(run: Run) -> dict[str, int]:
    """Return the returned tensors, and the last value of each named tensor that an operator changed."""
    return {**_changed(run), **_returned(run)}


def _changed(run: Run) -> dict[str, int]:
    """Return the last value of named tensors that were changed: of those that the step makes, only gradients.

    Others that it makes belong to its way, such as a model that it builds: they have a name if a module reads them.
    """
    made = {value for op in run.ops for value in op.outputs}
    return {
        v.name: v.id
        for v in run.values
        if v.name is not None
        and v.previous is not None
        and (v.name.endswith(_GRADIENT) or _first(run, v.id) not in made)
    }


def _first(run: Run, value: int) -> int:
    """Return the value of a tensor before it was changed for the first time."""
    while (before := run.values[value].previous) is not None:
        value = before
    return value


def _own_storage(run: Run, other: Run) -> dict[str, int]:
    """Return the last values in `other` of tensors of no module that both steps leave with the same numbers.

    The order may differ. Other numbers are another result: a program may keep its weights outside of modules.
    """
    mine, theirs = _changed(run), _changed(other)
    found = {}
    for name in mine.keys() & theirs.keys():
        a, b = run.signature_of(mine[name]), other.signature_of(theirs[name])
        apart = None if a is None or b is None else difference(a, b)
        is_same = apart is not None and apart <= _SAME
        if is_same and run.values[_first(run, mine[name])].kind == "input":
            found[name] = theirs[name]
    return found


def _changed_alone(run: Run, other: Run) -> set[str]:
    """Return the tensors that a step changes where the other changes none of that name or shape."""
    theirs = _changed(other)
    shapes = {other.values[value].shape for value in theirs.values()}
    return {name for name, at in _changed(run).items() if name not in theirs and run.values[at].shape not in shapes}


def _reads(run: Run, is_read: Callable[[str], bool]) -> dict[str, int]:
    """Return the tensors that were read as numbers, in order."""
    found = [op.inputs[0] for op in run.ops if is_read(op.name) and op.inputs]
    return {str(number): value for number, value in enumerate(found)}
