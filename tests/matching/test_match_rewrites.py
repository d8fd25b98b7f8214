"""Random programs, each written in two variants: no pair is wrong, and nearly all nodes are found.

The programs are the same in each run of the tests; `benchmarks/matching.py --first SEED` tries others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.matching.graph import Graph, to_graph
from joulediff.matching.match_runs import match_regions
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.layers import Family, make_layers, record_layers
from rewrites.nodes import KINDS
from rewrites.programs import Node, Program, judge, make_program, node_of, record_step, write_step

TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def record_two_ways(
    seed: int, depth: int, *, dtype: torch.dtype = torch.float32, no_ops: float = 0.2
) -> tuple[Run, Run]:
    chance = random.Random(seed)
    program = make_program(chance, depth)
    first = record_step(write_step(program, chance, no_ops=no_ops))
    return first, record_step(write_step(program, chance, dtype=dtype, no_ops=no_ops))


@settings(deadline=None, max_examples=12, derandomize=True)
@given(seed=st.integers(0, 2**32), depth=st.integers(2, 60))
def test_no_false_pair_and_nearly_all_found(seed: int, depth: int) -> None:
    a, b = record_two_ways(seed, depth)
    for tolerance in TOLERANCES:
        score = judge(a, b, match_regions(a, b, tolerance=tolerance), node_of)
        assert score.wrong == 0
        assert score.found >= score.nodes - max(3, 0.1 * score.nodes)


@settings(deadline=None, max_examples=8, derandomize=True)
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from(DTYPES))
def test_no_false_pair_between_float_types(seed: int, dtype: torch.dtype) -> None:
    a, b = record_two_ways(seed, 40, dtype=dtype)
    for tolerance in TOLERANCES:
        assert judge(a, b, match_regions(a, b, tolerance=tolerance), node_of).wrong == 0


def test_a_long_program() -> None:
    a, b = record_two_ways(7, 200)
    score = judge(a, b, match_regions(a, b), node_of)
    assert (score.wrong, score.precision) == (0, 1.0)
    assert score.f1 >= 0.98


@pytest.mark.parametrize("family", ["llama", "gpt"])
@pytest.mark.parametrize("styles", [("fused", "eager"), ("fused", "float32"), ("eager", "wide stream")])
def test_layers_in_bfloat16_with_drift(family: Family, styles: tuple[str, str]) -> None:
    """Both sides round otherwise: other kernels, float types and formulas."""
    program = make_layers(family, 2)
    a = record_layers(program, styles[0], dtype=torch.bfloat16, seed=1)
    b = record_layers(program, styles[1], dtype=torch.bfloat16, seed=2, other_kernels=3)
    score = judge(a, b, match_regions(a, b), node_of)
    assert score.wrong == 0
    assert score.f1 >= 0.98


@settings(deadline=None, max_examples=8, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_a_program_matches_itself(seed: int) -> None:
    run = record_two_ways(seed, 30)[0]
    regions = match_regions(run, run)
    assert all(each.a == each.b for each in regions)
    assert sorted(op for each in regions for op in each.a) == list(range(len(run.ops)))


@settings(deadline=None, max_examples=8, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_sides_can_be_swapped(seed: int) -> None:
    a, b = record_two_ways(seed, 30)
    there = {(each.kind, each.a, each.b) for each in match_regions(a, b)}
    back = {(each.kind, each.b, each.a) for each in match_regions(b, a)}
    assert there == back


@settings(deadline=None, max_examples=8, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_inputs_and_outputs_of_regions_are_equal(seed: int) -> None:
    """Compared by their power sums."""
    a, b = record_two_ways(seed, 40)
    equal = [each for each in match_regions(a, b) if each.kind == "equal"]
    assert equal
    for each in equal:
        assert each.outputs
        assert all(hold_the_same(a, b, *pair) for pair in (*each.inputs, *each.outputs))
        made = [{value for op in ops for value in graph.makes[op]} for graph, ops in comparison_of(a, b, each)]
        assert not any(one in made[0] or other in made[1] for one, other in each.inputs)


def comparison_of(a: Run, b: Run, region: Region) -> list[tuple[Graph, tuple[int, ...]]]:
    return [(to_graph(a), region.a), (to_graph(b), region.b)]


def hold_the_same(a: Run, b: Run, one: int, other: int) -> bool:
    """Return whether two tensors are equal, or one repeats the other."""
    x, y = a.signature_of(one), b.signature_of(other)
    assert x is not None and y is not None
    times = round(max(x.sum_x2, y.sum_x2) / max(min(x.sum_x2, y.sum_x2), 1e-300))
    x, y = (x, y.repeated(times)) if x.sum_x2 > y.sum_x2 else (x.repeated(times), y)
    scale = (x.sum_x2 / x.count) ** 0.5
    facts = ((x.sum_x, y.sum_x, 1), (x.sum_abs, y.sum_abs, 1), (x.sum_x2, y.sum_x2, 2), (x.sum_x4, y.sum_x4, 4))
    return all(abs(p - q) <= 1e-3 * max(abs(p), x.count * scale**power) for p, q, power in facts)


@settings(deadline=None, max_examples=8, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_regions_cannot_be_cut(seed: int) -> None:
    """No pair of equal tensors inside a region divides both of its sides."""
    a, b = record_two_ways(seed, 30)
    graphs = to_graph(a), to_graph(b)
    for each in match_regions(a, b):
        if each.kind == "equal" and len(each.a) > 1 and len(each.b) > 1:
            cuts_a, cuts_b = (find_cuts(graph, set(ops)) for graph, ops in zip(graphs, (each.a, each.b), strict=True))
            equal = [(one, other) for one in cuts_a for other in cuts_b if are_exactly_equal(a, b, one, other)]
            assert not equal, (each, equal)


def find_cuts(graph: Graph, ops: set[int]) -> list[int]:
    """Return the tensors that divide a region: all results of the operators before one reach the others through it."""
    found = []
    for value in {value for op in ops for value in graph.makes[op]}:
        before = ancestors(graph, ops, value)
        crossing = {
            made for op in before for made in graph.makes[op] if any(r in ops - before for r in graph.readers[made])
        }
        if before < ops and crossing == {value}:
            found.append(value)
    return found


def ancestors(graph: Graph, ops: set[int], value: int) -> set[int]:
    found: set[int] = set()
    waiting = [op for op in graph.makers[value] if op in ops]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [maker for read in graph.reads[op] for maker in graph.makers[read] if maker in ops]
    return found


def are_exactly_equal(a: Run, b: Run, one: int, other: int) -> bool:
    x, y = a.signature_of(one), b.signature_of(other)
    if x is None or y is None or x.constant or x.integral or not (x.finite and y.finite) or x.count != y.count:
        return False
    # All attention scores with a mask of -1e4 have nearly the same sums.
    return x.sum_x4 < 1e12 and all(
        abs(p - q) <= 1e-6 * max(abs(p), abs(q))
        for p, q in ((x.sum_abs, y.sum_abs), (x.sum_x2, y.sum_x2), (x.sum_x4, y.sum_x4))
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_variant_of_a_node_is_matched(kind: str) -> None:
    variants = list(KINDS[kind].variants)
    attention = [Node("linear", (-1,)), Node("qkv", (0,), 3), Node("attention", (1, 2, 3)), Node("linear", (4,))]
    rotated = [Node("linear", (-1,)), Node("angles", (0,), 2), Node("rotary", (0, 1, 2)), Node("linear", (3,))]
    nodes = {
        "attention": attention,
        "qkv": attention,
        "angles": rotated,
        "rotary": rotated,
        "add": [Node("linear", (-1,)), Node("gelu", (0,)), Node("add", (0, 1)), Node("linear", (2,))],
        "loss": [Node("linear", (-1,)), Node("loss", (0,))],
    }.get(kind, [Node("linear", (-1,)), Node(kind, (0,)), Node("linear", (1,))])
    at = next(number for number, node in enumerate(nodes) if node.kind == kind)
    base = make_program(random.Random(3), 2)
    generator = torch.Generator().manual_seed(5)
    weights = [
        [torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3 for shape in KINDS[node.kind].shapes(32)]
        for node in nodes
    ]
    program = replace(base, nodes=nodes, weights=weights)
    runs = [record_step(write_variant(program, at, variant)) for variant in variants]
    assert len(runs) > 1
    for other in runs[1:]:
        score = judge(runs[0], other, match_regions(runs[0], other), node_of)
        assert score.wrong == 0
        assert score.found == score.nodes


def write_variant(program: Program, at: int, variant: str) -> object:
    """Return a step with a given variant of one node, and the first variant of the others."""

    class Chooser(random.Random):
        calls = -1

        def choice(self, options: list[object]) -> object:  # type: ignore[override]
            self.calls += 1
            names = list(KINDS[program.nodes[min(self.calls, len(program.nodes) - 1)].kind].variants)
            return options[names.index(variant) if self.calls == at else 0]

    return write_step(program, Chooser(0))  # type: ignore[return-value]
