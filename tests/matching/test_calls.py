"""The calls of a run: functions, iterations of loops, and modules."""

from __future__ import annotations

import random

import pytest

from invented import invented
from joulediff.matching.enclosing.calls import Span, find_calls, find_iterations, to_tree
from joulediff.model.run import Run

Path = tuple[tuple[str, int, str], ...]


def functions(run: Run) -> set[Span]:
    return set(find_calls(run)[0].spans)


def modules(run: Run) -> set[Span]:
    return set(find_calls(run)[1].spans)


def run_of(*paths: str) -> Run:
    """Return a run with one operator for each path: `step:3 layer:7` is line 7 of layer, called by line 3 of step."""
    built = invented()
    for path in paths:
        frames = [each.split(":") for each in path.split()]
        built.op("aten::x", [], frame=[("model.py", int(line), function) for function, line in frames] or None)
    return built.build()


def modules_of(*names: str | None) -> Run:
    built = invented()
    for name in names:
        built.op("aten::x", [], module=name)
    return built.build()


def test_a_function_ends_where_its_caller_goes_on() -> None:
    run = run_of("step:1", "step:2 f:10", "step:2 f:11", "step:3", "step:4 g:20 f:10", "step:4 g:21", "step:5")
    assert functions(run) == {(0, 7), (1, 3), (4, 6), (4, 5)}


def test_functions_called_by_the_same_line_are_apart() -> None:
    assert functions(run_of("step:1 f:10", "step:1 f:11", "step:1 g:20", "step:2")) == {(0, 4), (0, 2), (2, 3)}


def test_operators_without_a_path_belong_to_the_step_alone() -> None:
    run = run_of("step:1 f:10", "", "step:1 f:10", "")
    tree = find_calls(run)[0]
    assert set(tree.spans) == {(0, 4), (0, 1), (2, 3)}
    assert [tree.spans[call] for call in tree.innermost] == [(0, 1), (0, 4), (2, 3), (0, 4)]


def test_iterations_of_a_loop() -> None:
    iteration = ("step:2", "step:3 f:10", "step:3 f:11", "step:4")
    run = run_of("step:1", *iteration, *iteration, *iteration, "step:5")
    assert functions(run) == {(0, 14), (1, 5), (5, 9), (9, 13), (2, 4), (6, 8), (10, 12)}


def test_iterations_of_a_function_that_a_line_calls_again_and_again() -> None:
    layer = ("step:2 layer:10", "step:2 layer:11", "step:2 layer:12")
    assert functions(run_of(*layer, *layer, "step:3")) == {(0, 7), (0, 6), (0, 3), (3, 6)}


def test_nested_loops() -> None:
    inner = ("step:3", "step:4")
    outer = ("step:2", *inner, *inner, "step:5")
    assert functions(run_of(*outer, *outer)) == {(0, 12), (0, 6), (6, 12), (1, 3), (3, 5), (7, 9), (9, 11)}


def test_a_longer_iteration_belongs_to_the_loop() -> None:
    """The last line of the second iteration was not seen before."""
    spans = functions(run_of("step:2", "step:3", "step:2", "step:3", "step:4", "step:2", "step:3"))
    assert {(0, 2), (2, 5), (5, 7)} <= spans


def are_nested_or_apart(one: Span, other: Span) -> bool:
    first, second = sorted((one, other), key=lambda span: (span[0], -span[1]))
    return second[0] >= first[1] or second[1] <= first[1]


@pytest.mark.parametrize("seed", range(200))
def test_iterations_are_nested_or_apart(seed: int) -> None:
    chance = random.Random(seed)
    lines = [0]
    for _ in range(40):
        lines.append(chance.choice([line for line in range(8) if line != lines[-1]]))
    spans = sorted(find_iterations(((line, op) for op, line in enumerate(lines)), len(lines)))
    assert spans
    for first, end in spans:
        assert 0 <= first < end <= len(lines)
        assert all(are_nested_or_apart((first, end), other) for other in spans)
    tree = to_tree(spans, len(lines))
    for call, parent in enumerate(tree.parents):
        if parent >= 0:
            assert tree.spans[parent][0] <= tree.spans[call][0]
            assert tree.spans[call][1] <= tree.spans[parent][1]


def test_modules_are_nested_by_their_names() -> None:
    run = modules_of(None, "h.0.attn", "h.0.attn", "h.0.mlp", "h.1.attn", "", "norm", None, "h.0.attn")
    assert modules(run) == {(0, 9), (1, 7), (1, 5), (1, 4), (1, 3), (3, 4), (4, 5), (6, 7), (8, 9)}


def test_a_backward_operator_belongs_to_the_module_of_its_forward_one() -> None:
    built = invented().op("aten::x", [], module="a").op("aten::x", [], module="b")
    for forward in (1, 0):
        built.op("aten::x", [], phase="backward", forward=forward)
    assert modules(built.build()) == {(0, 4), (0, 2), (2, 4), (0, 1), (1, 2), (2, 3), (3, 4)}


def test_equal_spans_are_one_call() -> None:
    tree = to_tree([(0, 4), (1, 3), (1, 3), (2, 2), (1, 2)], 4)
    assert list(tree.spans) == [(0, 4), (1, 3), (1, 2)]
    assert list(tree.parents) == [-1, 0, 1]
    assert list(tree.innermost) == [0, 2, 1, 0]
