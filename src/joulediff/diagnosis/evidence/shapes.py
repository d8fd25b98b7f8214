"""Evidence: the same operators run with other shapes.

Either the same matrices are multiplied in another order, or a dimension differs. A dimension is a lead only if its
origin is known: a value of the state, a number in the text of the user's lines, or a tensor that the step was given.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.calls.extra_call import as_called
from joulediff.diagnosis.evidence.calls.source_calls import call_behind
from joulediff.diagnosis.evidence.state import differing_leaves
from joulediff.diagnosis.lead import Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_order, suggest_setting, suggest_size
from joulediff.frameworks.framework import is_product, place_of, short_name
from joulediff.model.energy import joules_of
from joulediff.model.finding import FindingKind
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting, Value

# The kernels of matrix units load rows of this many bytes; other lengths take slower kernels, or padding.
ROW_BYTES = 16
# Products of another order must differ by this share of their operations.
_LEAST_MORE = 0.05
# Sizes below this are written in too many lines for other reasons.
_LEAST_SIZE = 8
_NUMBER = re.compile(r"(?<![\w.])\d[\d_]*(?![\w.])")


@dataclass(frozen=True, slots=True)
class Origin:
    """A size that differs, and where it comes from."""

    key: str
    sizes: Pair[int]
    places: Pair[Place | None]
    text: str
    """What it is: `vocab_size`, `dimension 1 of the input ids`."""


@dataclass(frozen=True, slots=True)
class ShapeDifference:
    """Two calls of one operator whose tensors differ in size."""

    ops: Pair[int]
    sizes: frozenset[tuple[int, int]]
    """The two lengths of each dimension that differs."""


def find_shapes(subject: Subject) -> list[Lead]:
    """Return a lead for an order of products, or for a dimension that differs and whose origin is known."""
    if subject.relation == "one_sided":
        return []
    ordered = _find_order(subject)
    if ordered is not None:
        return [ordered]
    found = find_difference(subject)
    origin = None if found is None else _find_origin(subject, found)
    return [] if found is None or origin is None else [_size_lead(subject, found, origin)]


def describe_shapes(subject: Subject) -> str | None:
    """Return a sentence on the shapes of the same operator on both sides; None if they are the same."""
    found = find_difference(subject)
    return None if found is None else _say_difference(subject.comparison, found)


def _say_difference(comparison: Comparison, found: ShapeDifference) -> str:
    name = short_name(comparison.a.ops[found.ops.a].name)
    shapes = " and ".join(f"{_say_call(comparison.run(x), found.ops.of(x))} in {x.upper()}" for x in SIDES)
    return f"{name} runs on {shapes}"


def _find_order(subject: Subject) -> Lead | None:
    """Return the lead of the same number of products with more operations on the expensive side."""
    comparison, side = subject.comparison, subject.expensive
    products = Pair(*(_products(comparison.run(x), ops_of(subject.region, x)) for x in SIDES))
    count = len(products.a)
    if subject.relation != "same_operators" or count < 2 or len(products.b) != count or not subject.region.inputs:
        return None
    flops = Pair(*(sum(count_flops(comparison.run(x), op) for op in products.of(x)) for x in SIDES))
    if flops.of(side) <= (1 + _LEAST_MORE) * flops.of(subject.cheap) or not _same_inner_sizes(subject, products):
        return None
    text = f"order of products: the same {count} need {flops.a:,} operations in A and {flops.b:,} in B"
    shapes = " and ".join(f"{_chain(comparison.run(x), products.of(x))} in {x.upper()}" for x in SIDES)
    values: Pair[Setting] = Pair(*(_chain(comparison.run(x), products.of(x)) for x in SIDES))
    key = _name_products(comparison.run(side), products.of(side))
    cause = make_cause("shape", key, values, subject.places, (text, shapes))
    change = Change("the order of the other side", calls=True, is_cause=True)
    return Lead("api_misuse", cause, (change,), suggest_order(cause, side, flops=flops))


def _name_products(run: Run, ops: Sequence[int]) -> str:
    """Return the call that runs products in one line, or the function whose lines run them."""
    frames = [place_of(run, op) for op in ops]
    lines = {None if frame is None else (frame.file, frame.line) for frame in frames}
    functions = {None if frame is None else as_called(frame.function) for frame in frames}
    name = functions.pop() if len(functions) == 1 and len(lines) > 1 else None
    return name or call_behind(run, ops[-1], frames[-1])


def _products(run: Run, ops: Iterable[int]) -> list[int]:
    return [op for op in ops if is_product(run.ops[op].name) and len(run.ops[op].inputs) >= 2]


def _same_inner_sizes(subject: Subject, products: Pair[list[int]]) -> bool:
    """Return whether both sides multiply matrices of the same sizes in the end: those that no product makes."""
    given = []
    for side in SIDES:
        run, ops = subject.comparison.run(side), products.of(side)
        made = {value for op in ops for value in run.ops[op].outputs}
        inputs = (run.values[v] for op in ops for v in run.ops[op].inputs[-2:] if v not in made)
        given.append(Counter(tuple(sorted(each.shape)) for each in inputs))
    return given[0] == given[1]


def count_flops(run: Run, op: int) -> int:
    """Return the multiplications and additions of a product."""
    found = run.ops[op]
    inner = run.values[found.inputs[-2]].shape
    made = sum(math.prod(run.values[value].shape) for value in found.outputs)
    return 2 * made * (inner[-1] if inner else 1)


def _chain(run: Run, ops: Iterable[int]) -> str:
    return ", ".join(_say_call(run, op) for op in ops)


def _say_call(run: Run, op: int) -> str:
    shapes = [run.values[value].shape for value in run.ops[op].inputs if run.values[value].shape]
    wanted = shapes[-2:] if is_product(run.ops[op].name) else shapes[:2]
    return " · ".join(_say_shape(shape) for shape in wanted)


def _say_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def find_difference(subject: Subject) -> ShapeDifference | None:
    """Return the costliest operator of the expensive side that the cheap side runs with another shape."""
    comparison = subject.comparison
    costs = comparison.costs[subject.expensive]
    found = []
    for ops in _same_calls(subject):
        sizes = _differing_sizes(comparison, ops)
        if sizes:
            found.append(ShapeDifference(ops, sizes))
    return max(found, key=lambda each: joules_of(costs.of([each.ops.of(subject.expensive)])), default=None)


def _same_calls(subject: Subject) -> Iterator[Pair[int]]:
    """Yield operators of one name in the order of both sides; of different counts, only the costliest of each."""
    comparison = subject.comparison
    by_name: Pair[dict[str, list[int]]] = Pair({}, {})
    for side in SIDES:
        run = comparison.run(side)
        for op in ops_of(subject.region, side):
            if run.index.kernels[op]:
                by_name.of(side).setdefault(run.ops[op].name, []).append(op)
    for name, a in by_name.a.items():
        b = by_name.b.get(name, [])
        if len(a) == len(b):
            yield from (Pair(x, y) for x, y in zip(a, b, strict=True))
    if subject.op_a is not None and subject.op_b is not None:
        ops = Pair(subject.op_a, subject.op_b)
        if comparison.a.ops[ops.a].name == comparison.b.ops[ops.b].name:
            yield ops


def _differing_sizes(comparison: Comparison, ops: Pair[int]) -> frozenset[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    values = [
        [comparison.run(side).values[v].shape for v in (*op.inputs, *op.outputs)]
        for side in SIDES
        for op in [comparison.run(side).ops[ops.of(side)]]
    ]
    for a, b in zip(*values, strict=False):
        if len(a) == len(b):
            found.update((x, y) for x, y in zip(a, b, strict=True) if x != y)
    return frozenset(found)


def _find_origin(subject: Subject, found: ShapeDifference) -> Origin | None:
    """Return the origin of a size: exact sizes come before those that a dimension is a multiple of."""
    comparison = subject.comparison
    origins = [*_from_state(comparison), *_from_lines(comparison), *_from_tensors(comparison)]
    fitting = [(_factor(each.sizes, found.sizes), at, each) for at, each in enumerate(origins)]
    best = min(
        (each for each in fitting if each[0] is not None), key=lambda each: (each[0] != 1, each[1]), default=None
    )
    if best is None:
        return None
    origin = best[2]
    places = Pair(*(origin.places.of(side) or subject.place(side) for side in SIDES))
    return Origin(origin.key, origin.sizes, places, origin.text)


def _factor(sizes: Pair[int], wanted: Iterable[tuple[int, int]]) -> int | None:
    """Return how many times the sizes are in one of the wanted pairs; None if in none."""
    factors = [x // sizes.a for x, y in wanted if x * sizes.b == y * sizes.a and x % sizes.a == 0 and y % sizes.b == 0]
    return min(factors, default=None)


def _from_state(comparison: Comparison) -> Iterator[Origin]:
    for leaf in differing_leaves(comparison):
        a, b = leaf.value_a, leaf.value_b
        if type(a) is int and type(b) is int and min(a, b) > 0:
            yield Origin(leaf.name, Pair(a, b), leaf.places, leaf.name)


def _from_lines(comparison: Comparison) -> Iterator[Origin]:
    """Yield the numbers in which a line of the user's own differs from the same line of the other program."""
    a, b = (_own_lines(comparison.run(side)) for side in SIDES)
    for text, here in a.items():
        there = b.get(text, [])
        if len(here) == len(there):
            for mine, other in zip(here, there, strict=True):
                yield from _differing_numbers(mine, other)


def _differing_numbers(here: Place, there: Place) -> Iterator[Origin]:
    for x, y in zip(_numbers(here.text), _numbers(there.text), strict=True):
        if x != y and min(x, y) >= 1 and max(x, y) >= _LEAST_SIZE:
            key = _name_number(here.text or "", x)
            yield Origin(key, Pair(x, y), Pair(here, there), f"{key} in the text of the program")


def _own_lines(run: Run) -> dict[str, list[Place]]:
    """Return the recorded lines of the user's code that have numbers, by their text without the numbers."""
    foreign = {frame.file for frame in run.frames if frame.owner is not None}
    functions = {(frame.file, frame.line): frame.function for frame in run.frames}
    found: dict[str, list[Place]] = {}
    for (file, line), text in run.index.lines.items():
        if file not in foreign and _numbers(text):
            place = Place(file, line, functions.get((file, line), ""), text)
            found.setdefault(_NUMBER.sub("#", text), []).append(place)
    return found


def _numbers(text: str | None) -> list[int]:
    return [int(each.replace("_", "")) for each in _NUMBER.findall(text or "")]


def _name_number(text: str, number: int) -> str:
    """Return the variable, the keyword or the call that a number in a line belongs to; the number itself if none."""
    assigned = re.search(rf"(\w+)\s*(?::\s*\w+\s*)?=\s*{number:_}\b|(\w+)\s*(?::\s*\w+\s*)?=\s*{number}\b", text)
    if assigned is not None:
        return assigned[1] or assigned[2]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return str(number)
    names = _names_around(tree, number)
    return next(names, str(number))


def _names_around(tree: ast.AST, number: int) -> Iterator[str]:
    """Yield the name of the innermost call around a number, then that of the assignment."""

    def holds(node: ast.AST) -> bool:
        return any(isinstance(each, ast.Constant) and each.value == number for each in ast.walk(node))

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and any(map(holds, node.args))]
    for call in reversed(calls):
        yield call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and holds(node.value):
            yield ast.unparse(node.targets[0])


def _from_tensors(comparison: Comparison) -> Iterator[Origin]:
    """Yield the dimensions in which a tensor that the step was given differs."""
    shared = _contents(comparison.a) & _contents(comparison.b)
    a, b = (_given(comparison.run(side), shared) for side in SIDES)
    for name, value in a.items():
        other = b.get(name)
        if other is None or len(other.shape) != len(value.shape):
            continue
        for at, (x, y) in enumerate(zip(value.shape, other.shape, strict=True)):
            if x != y and x and y:
                kind = f"the {_KINDS.get(value.kind, 'tensor')} {value.name}"
                text = f"dimension {at} of {kind if value.name else 'a tensor that the step was given'}"
                yield Origin(value.name or value.kind, Pair(x, y), Pair(None, None), text)


_KINDS: Mapping[str, str] = {"parameter": "weight", "buffer": "buffer", "input": "input"}


def _contents(run: Run) -> set[object]:
    return {_content(run, value) for value in run.values if _is_given(value)}


def _content(run: Run, value: Value) -> object:
    return value.shape, run.signature_of(value.id)


def _is_given(value: Value) -> bool:
    return value.producer is None and value.previous is None


def _given(run: Run, shared: Container[object]) -> dict[tuple[object, ...], Value]:
    """Return the tensors that the step was given and that the other one was not, by name or else by number."""
    found: dict[tuple[object, ...], Value] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for value in run.values:
        if _is_given(value) and _content(run, value) not in shared:
            kind = (value.kind, value.name) if value.name is not None else (value.kind, len(value.shape), value.dtype)
            counts[kind] += 1
            found.setdefault((*kind, counts[kind] if value.name is None else 0), value)
    return found


def _size_lead(subject: Subject, found: ShapeDifference, origin: Origin) -> Lead:
    comparison, side = subject.comparison, subject.expensive
    mine, other = origin.sizes.of(side), origin.sizes.of(subject.cheap)
    evidence = [_say_difference(comparison, found), f"{origin.text} is {origin.sizes.a} in A and {origin.sizes.b} in B"]
    unit = _row_unit(comparison, side, found)
    is_aligned = bool(unit) and mine % unit != 0 and other % unit == 0
    kind: FindingKind = "misconfiguration"
    if is_aligned:
        evidence.append(f"{mine} is no multiple of {unit}: matrix units load rows of {ROW_BYTES} bytes")
    elif mine > other and comparison.outputs_agree:
        kind = "redundant"
        evidence.append(f"{1 - other / mine:.0%} of {mine} does not reach an output of the step")
        evidence += _masked(comparison.run(side), mine)
    values: Pair[Setting] = Pair(origin.sizes.a, origin.sizes.b)
    cause = make_cause("shape", origin.key, values, origin.places, tuple(evidence))
    suggestion = suggest_setting(cause, side)
    if is_aligned or kind == "redundant":
        suggestion = suggest_size(cause, side, unit=unit if is_aligned else None)
    return Lead(kind, cause, (), suggestion)


def _row_unit(comparison: Comparison, side: SideName, found: ShapeDifference) -> int:
    """Return the multiple that the sizes of a product should have; 0 for another operator."""
    run = comparison.run(side)
    op = run.ops[found.ops.of(side)]
    if not is_product(op.name):
        return 0
    return max(1, ROW_BYTES // run.values[op.inputs[-1]].item_bytes)


def _masked(run: Run, size: int) -> Iterator[str]:
    """Yield the share of zeros in a mask that the step was given, with a dimension of that size."""
    for value in run.values:
        signature = run.signature_of(value.id) if value.producer is None and size in value.shape else None
        is_mask = signature is not None and signature.integral and (signature.low, signature.high) == (0, 1)
        if is_mask and signature is not None and signature.zeros:
            yield f"{signature.zeros / signature.count:.0%} of the mask {value.name or ''} is 0".replace("  ", " ")
            return
