"""The ground truth that matching is judged by: variants and styles compute the same, and wrong matches are counted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from joulediff.model.finding import Divergence, Region
from joulediff.model.run import Run
from rewrites.changes import CASES, CHANGES, CLEARLY, ROUNDING, Case, ChangeKind, make_case
from rewrites.drift import DRIFTING, STYLES, FaithfulRounding
from rewrites.layers import find_nodes, layers_of, make_layers, place_of, record_layers, write_layers
from rewrites.moves import MOVES
from rewrites.nodes import KINDS, Tensor
from rewrites.programs import judge, make_program, node_of, record_step, write_step


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def distance(x: Tensor, y: Tensor) -> float:
    """Return how far two tensors are apart, as a share of the norm."""
    return float((x.double() - y.double()).norm() / x.double().norm())


@pytest.mark.parametrize("kind", sorted(DRIFTING))
def test_all_variants_of_a_kind_compute_the_same(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    width, tokens = 32, 24
    weights = [torch.randn(shape, generator=generator) * 0.3 + 0.5 for shape in KINDS[kind].shapes(width)]

    def draw(columns: int = width) -> Tensor:
        return torch.randn(tokens, columns, generator=generator)

    angles = KINDS["angles"].variants["outer"](draw())
    inputs = {
        "attention": [draw(), draw(width // 2), draw(width // 2)],
        "rotary": [draw(), *angles],
        "add": [draw(), draw()],
        "loss": [torch.randint(0, 4 * width, (tokens,), generator=generator), draw()],
    }.get(kind, [draw()])
    found = [variant(*weights, *inputs) for variant in DRIFTING[kind].variants.values()]
    found = [each if isinstance(each, list) else [each] for each in found]
    assert len(found) > 1
    for each in found[1:]:
        assert [x.shape for x in each] == [x.shape for x in found[0]]
        assert all(distance(x, y) < 1e-5 for x, y in zip(found[0], each, strict=True))


@pytest.mark.parametrize("family", ["llama", "gpt"])
def test_all_styles_compute_the_same(family: str) -> None:
    program = make_layers(family, 2)  # type: ignore[arg-type]
    found = [write_layers(program, style)() for style in (*STYLES, "any")]
    assert all(distance(found[0], each) < 1e-4 for each in found[1:])
    rough = [write_layers(program, style, dtype=torch.bfloat16)() for style in (*STYLES, "any")]
    assert all(1e-5 < distance(found[0], each) < 3e-2 for each in rough)


def test_the_wide_stream_is_never_rounded() -> None:
    program = make_layers("llama", 2)
    run = record_layers(program, "wide stream", dtype=torch.bfloat16)
    sums = {str(number) for number, node in enumerate(program.nodes) if node.kind == "add"}
    made = [run.values[op.outputs[0]].dtype for op in run.ops if op.region in sums]
    assert len(sums) == 4
    assert set(made) == {"float32"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_faithful_rounding_changes_values_and_no_operator(dtype: torch.dtype) -> None:
    program = make_layers("llama", 2)
    plain = record_layers(program, "eager", dtype=dtype)
    other = record_layers(program, "eager", dtype=dtype, other_kernels=1)
    again = record_layers(program, "eager", dtype=dtype, other_kernels=1)
    assert [op.name for op in plain.ops] == [op.name for op in other.ops]
    assert other.signatures == again.signatures
    changed = [x.sum_x2 != y.sum_x2 for x, y in zip(plain.signatures, other.signatures, strict=True)]
    assert sum(changed) > 0.3 * len(changed)


def test_faithful_rounding_takes_one_of_two_neighbours() -> None:
    x = torch.full((4096,), 1.0 + 2**-9, dtype=torch.float32)
    narrow = torch.full((4096,), 2**-9, dtype=torch.bfloat16)
    with FaithfulRounding():
        total = torch.ones(4096, dtype=torch.bfloat16) + narrow
        copy = x.clone()
        doubled = narrow * 2
    assert set(total.tolist()) == {1.0, 1.0 + 2**-7}
    assert 0.2 < float((total > 1).float().mean()) < 0.3
    assert torch.equal(copy, x)
    assert set(doubled.tolist()) == {2**-8}


def whole(run: Run, nodes: set[int]) -> tuple[int, ...]:
    found = ((op.id, op.region) for op in run.ops if op.region)
    return tuple(op for op, name in found if int(name.partition("/")[0]) in nodes)


def test_a_perfect_match_has_a_perfect_score() -> None:
    program = make_program(random.Random(1), 12)
    a, b = (record_step(write_step(program, random.Random(seed))) for seed in (2, 3))
    regions = []
    for number in range(len(program.nodes)):
        regions.append(Region(number, "equal", whole(a, {number}), whole(b, {number}), (), ()))
    coarse = judge(a, b, regions, lambda run, op: (run.ops[op].region or "").partition("/")[0])
    assert (coarse.wrong, coarse.nodes, coarse.found) == (0, len(program.nodes), len(program.nodes))
    swapped = [*regions[2:], replace(regions[0], b=regions[1].b), replace(regions[1], b=regions[0].b)]
    score = judge(a, b, swapped, lambda run, op: (run.ops[op].region or "").partition("/")[0])
    assert (score.wrong, score.found) == (2, len(program.nodes) - 2)


def test_a_merged_product_that_is_paired_with_a_part_is_wrong() -> None:
    program = make_layers("llama", 1)
    a, b = record_layers(program, "fused"), record_layers(program, "eager")

    def products(run: Run, *parts: str) -> tuple[int, ...]:
        return tuple(op.id for op in run.ops if op.name == "aten::mm" and (op.region or "").endswith(parts))

    assert len(products(a, "gate+up")) == len(products(b, "/gate")) == len(products(b, "/up")) == 1
    right = Region(0, "equal", products(a, "gate+up"), products(b, "/gate", "/up"), (), ())
    part = Region(0, "equal", products(a, "gate+up"), products(b, "/up"), (), ())
    assert judge(a, b, [right], node_of).wrong == 0
    assert judge(a, b, [part], node_of).wrong == 1


def test_an_operator_without_a_region_spoils_its_node() -> None:
    program = make_layers("gpt", 1)
    run = record_layers(program, "eager")
    alone = [Region(op.id, "equal", (op.id,), (op.id,), (), ()) for op in run.ops]
    score = judge(run, run, alone, node_of)
    assert (score.wrong, score.found) == (0, score.nodes)
    computing = [each for each in alone if run.ops[each.id].name not in MOVES]
    assert judge(run, run, [each for each in alone if each is not computing[3]], node_of).found == score.nodes - 1
    together = replace(computing[0], a=tuple(range(len(run.ops))), b=tuple(range(len(run.ops))))
    assert judge(run, run, [together], node_of).found == 0


def test_the_layer_of_an_operator() -> None:
    program = make_layers("llama", 3)
    assert [place_of("llama", 3, number) for number in (0, 1, 2, 12, 13, 34, 35)] == [
        None,
        None,
        (0, 0),
        (0, 10),
        (1, 0),
        (2, 10),
        None,
    ]
    assert find_nodes(program, "llama", 3, 1, "add") == [19, 23]
    run = record_layers(program, "fused")
    found = layers_of(run, tuple(range(len(run.ops))), "llama", 3)
    assert found == sorted(found)
    assert set(found) == {-1, 0, 1, 2, 3}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_large_enough_and_in_one_layer(kind: ChangeKind) -> None:
    """Up to the changed layer, programs that are written alike compute the same."""
    case = make_case(kind, 0, layers=3, tokens=16, width=32)
    again = make_case(kind, 0, layers=3, tokens=16, width=32)
    assert case.layer is not None
    assert float(case.name.rpartition(" ")[2]) >= CLEARLY * ROUNDING[torch.float32]
    assert case.a.signatures == again.a.signatures
    first = first_difference(case)
    assert first == case.layer


def first_difference(case: Case) -> int | None:
    """Return the layer of the first operator whose output differs."""
    for one, other in zip(case.a.ops, case.b.ops, strict=False):
        if one.name != other.name or case.a.signature_of(one.outputs[0]) != case.b.signature_of(other.outputs[0]):
            return min(*layers_of(case.a, (one.id,), "llama", 3), *layers_of(case.b, (other.id,), "llama", 3))
    return None


def test_equal_cases_are_equal() -> None:
    case = make_case(None, 0, layers=2, tokens=16, width=32)
    assert case.layer is None
    assert case.a.signatures == case.b.signatures
    assert case.is_found(())
    assert not case.is_found([Divergence((0,), (0,), 1.0, 0.0)])


def test_a_change_is_found_where_the_first_divergence_begins() -> None:
    case = make_case("scale", 0, layers=3, tokens=16, width=32)
    assert case.layer is not None
    ops = {layer: ops_of_layer(case.a, layer) for layer in range(-1, 4)}
    right, after = ops[case.layer], ops[(case.layer + 1) % 3]
    assert not case.is_found(())
    assert case.is_found([Divergence(right, right, 0.1, 0.0), Divergence(after, after, 0.1, 0.0)])
    assert not case.is_found([Divergence(after, after, 0.1, 0.0), Divergence(right, right, 0.1, 0.0)])
    assert not case.is_found([Divergence(ops[-1], ops[-1], 0.1, 0.0)])
    # One side may lack the operator that differs, and begin later.
    assert case.is_found([Divergence(after, right, 0.1, 0.0)]) == (case.layer < 2)
    assert case.is_found([Divergence(ops[3], right, 0.1, 0.0)])
    assert not case.is_found([Divergence(ops[3], after, 0.1, 0.0)])


def ops_of_layer(run: Run, layer: int) -> tuple[int, ...]:
    return tuple(op.id for op in run.ops if layers_of(run, (op.id,), "llama", 3) == [layer])


def test_cases_differ_in_float_type_family_and_style() -> None:
    names = {make_case(None, number, layers=1, tokens=16, width=32).name.partition(": ")[2] for number in range(CASES)}
    assert len(names) == CASES
