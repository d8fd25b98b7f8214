"""Operators of compiled code, found for its kernels by names, order and the flow of values."""

import random
from itertools import combinations, pairwise

import pytest

from joulediff.frameworks.torch.trace.fusion import find_members, longest_common, split_ops
from joulediff.frameworks.torch.trace.generated_code import Part
from trace_builders import make_op, make_ops


def kernel(name, *ops):
    return Part(name, tuple(f"aten::{op}" for op in ops), is_generated=True)


def library(*ops):
    return Part(f"aten::{ops[-1]}", tuple(f"aten::{op}" for op in ops), is_generated=False)


def flow(*rows):
    """Return operators from rows of a name, the operators whose results it reads, and changes of the operator."""
    ops = []
    for number, (name, reads, *changes) in enumerate(rows):
        ops.append(make_op(number, f"aten::{name}", inputs=reads, outputs=(number,), **(changes[0] if changes else {})))
    return ops


def test_a_kernel_has_the_operators_between_the_calls_around_it():
    parts = [kernel("k0", "add", "native_layer_norm"), library("addmm"), kernel("k1", "mul", "add"), library("addmm")]
    parts.append(kernel("k2", "add"))
    ops = flow(
        ("add", ()),
        ("native_layer_norm", (0,)),
        ("addmm", (1,)),
        ("mul", (2,)),
        ("add", (3,)),
        ("addmm", (4,)),
        ("add", (0, 5)),
    )
    assert find_members(parts, ops) == [(0, 1), (2,), (3, 4), (5,), (6,)]


def test_an_operator_in_place_is_the_one_that_the_compiler_names():
    assert find_members([kernel("k0", "add", "relu")], make_ops("aten::add_", "aten::relu_")) == [(0, 1)]


def test_views_and_removed_operators_need_no_kernel():
    ops = flow(("view", ()), ("dropout", (0,)), ("mul", (1,)))
    assert find_members([kernel("k0", "view", "mul")], ops, views=[0]) == [(2,)]


def test_an_operator_does_not_run_after_a_call_that_needs_it():
    parts = [kernel("k0", "mul"), library("mm"), kernel("k1", "mul", "native_dropout"), library("mm")]
    ops = flow(("native_dropout", ()), ("mm", (0,)), ("mul", (1,)), ("mm", (2,)))
    assert 0 not in find_members(parts, ops)[2]
    assert find_members(parts, ops)[1:] == [(1,), (2,), (3,)]


def test_a_library_call_without_its_bias_is_the_operator_of_the_program():
    parts = [library("addmm", "mm"), kernel("k0", "addmm", "gelu")]
    assert find_members(parts, flow(("addmm", ()), ("gelu", (0,)))) == [(0,), (1,)]


def test_a_kernel_that_prepares_a_call_has_its_operator():
    parts = [kernel("k0", "t", "mm"), library("mm")]
    assert find_members(parts, flow(("mm", ()))) == [(0,), (0,)]


def test_a_kernel_that_names_nothing_known_has_the_operator_before_it():
    parts = [library("mm"), kernel("k0", "iota"), library("mm")]
    assert find_members(parts, flow(("mm", ()), ("mm", (0,)))) == [(0,), (0,), (1,)]


def test_the_code_of_a_graph_that_names_nothing_has_all_operators():
    assert find_members([kernel("graph")], make_ops("aten::view", "aten::sin", "aten::cos"), views=[0]) == [(1, 2)]
    assert find_members([kernel("graph")], []) == [()]


def test_operators_are_split_among_graphs_where_names_change():
    graphs = [[library("mm"), kernel("k0", "gelu", "mul")], [kernel("k1", "add", "_softmax")], [library("mm")]]
    ops = make_ops("aten::mm", "aten::gelu", "aten::mul", "aten::view", "aten::add", "aten::_softmax", "aten::mm")
    assert [[op.id for op in each] for each in split_ops(graphs, ops)] == [[0, 1, 2, 3], [4, 5], [6]]


def test_a_graph_that_runs_twice_has_its_operators_twice():
    graph = [library("mm"), kernel("k0", "gelu")]
    ops = make_ops("aten::mm", "aten::gelu", "aten::mm", "aten::gelu")
    assert [[op.id for op in each] for each in split_ops([graph, graph], ops)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_common_sequence(seed):
    pick = random.Random(seed)
    a, b = ([pick.choice("abc") for _ in range(pick.randint(0, 7))] for _ in range(2))
    found = longest_common(a, b)
    assert all(a[i] == b[j] for i, j in found)
    assert all(first[0] < then[0] and first[1] < then[1] for first, then in pairwise(found))
    subsequences = {tuple(each) for size in range(len(b) + 1) for each in combinations(b, size)}
    longest = max(size for size in range(len(a) + 1) if any(each in subsequences for each in combinations(a, size)))
    assert len(found) == longest
