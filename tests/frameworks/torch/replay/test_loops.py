"""Operators that are called many times from C++."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from joulediff.frameworks.torch.replay.loops import OperatorLoop, open_loop  # noqa: E402

aten = torch.ops.aten


def looped(function: Any, *args: Any, **kwargs: Any) -> OperatorLoop:
    found = open_loop([partial(function, *args, **kwargs)])
    assert found is not None
    return found


def count_of(name: str, loop: OperatorLoop, rounds: int) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loop.run(rounds)
    return sum(event.count for event in profile.key_averages() if event.key == name)


def test_every_call_is_executed_though_all_are_equal() -> None:
    x = torch.randn(8)
    for name, loop in {
        "aten::add": looped(aten.add.Tensor, x, x, alpha=2),
        "aten::mul": looped(aten.mul.Tensor, x, 0.5),
        "aten::native_layer_norm": looped(aten.native_layer_norm.default, x, [8], None, None, 1e-5),
        "aten::_to_copy": looped(aten._to_copy.default, x, dtype=torch.float64),
        "aten::cat": looped(aten.cat.default, [x, x]),
    }.items():
        assert count_of(name, loop, 7) == 7, name
    assert count_of("aten::add", looped(aten.add.Tensor, x, x), 1) == 1


def test_writes_are_made_as_often_and_on_each_set_of_inputs() -> None:
    first, second = torch.zeros(3), torch.zeros(3)
    loop = open_loop([partial(aten.add_.Tensor, each, 1) for each in (first, second)])
    assert loop is not None
    before = first[0].item()
    loop.run(5)
    assert first.tolist() == second.tolist() == [before + 5] * 3


def test_operators_without_outputs_are_executed() -> None:
    x = torch.zeros(3)
    loop = looped(aten._foreach_add_.Scalar, [x], 1)
    before = x[0].item()
    loop.run(4)
    assert x[0].item() == before + 4


def test_the_empty_loop_calls_nothing() -> None:
    x = torch.zeros(3)
    loop = looped(aten.add_.Tensor, x, 1)
    before = x.tolist()
    loop.run_empty(9)
    assert x.tolist() == before


def test_the_way_graphs_are_run_is_left_as_it_was() -> None:
    before = torch._C._get_graph_executor_optimize()
    looped(aten.neg.default, torch.zeros(2)).run(2)
    assert torch._C._get_graph_executor_optimize() == before


def test_what_torchscript_does_not_know_has_no_loop() -> None:
    assert open_loop([partial(len, "abc")]) is None
    assert open_loop([partial(aten.add.Tensor, torch.zeros(2), object())]) is None
