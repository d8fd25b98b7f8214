"""Invented runs are what a recorder would have made: values, views, writes, call paths, energy."""

from __future__ import annotations

import numpy as np
import pytest

from invented import Tensor, call, cat, draw, gelu, gelu_decomposed, invented, record, tanh
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.energy.ledger import Costs
from joulediff.model.run import Run
from joulediff.model.signature import difference

X, W = Tensor(draw(4, 8), name="x"), Tensor(draw(8, 8, seed=1), name="w", kind="parameter")


def written(run: Run) -> Run:
    """Return the run, having been written and read: the archive checks that it is whole."""
    found = from_wire(to_wire(run))
    assert found == run
    return found


def helper(x: Tensor) -> Tensor:
    return tanh(x)


def test_a_step_is_recorded_with_its_inputs_outputs_and_call_paths() -> None:
    run = written(record(lambda: helper(X @ W)))
    assert [op.name for op in run.ops] == ["aten::mm", "aten::tanh"]
    assert [(value.name, value.kind) for value in run.values] == [
        ("x", "input"),
        ("w", "parameter"),
        (None, "produced"),
        ("output", "produced"),
    ]
    assert [frame.function.split(".")[-1] for frame in run.call_path(1)] == ["<lambda>", "helper"]
    assert {frame.owner for frame in run.frames} == {None}
    place = run.call_path(1)[-1]
    assert run.line_text(place.file, place.line) == "return tanh(x)"
    assert run.ops[0].arguments == '{"args": [{"tensor": 0}, {"tensor": 1}], "kwargs": {}}'


def test_a_view_shares_memory_and_a_copy_does_not() -> None:
    run = written(record(lambda: X.t().contiguous()))
    given, view, copy = run.values
    assert view.storage == given.storage != copy.storage
    assert (view.shape, view.strides) == ((8, 4), (1, 8))
    assert copy.strides == (4, 1)


def test_parts_of_a_tensor_have_their_offsets() -> None:
    run = written(record(lambda: X.split(3)))
    assert [(value.shape, value.offset) for value in run.values[1:]] == [((4, 3), 0), ((4, 3), 3), ((4, 2), 6)]


def test_an_expanded_tensor_is_signed_once() -> None:
    row = Tensor(draw(1, 8))
    run = written(record(lambda: row.expand(4, 8) + X))
    expanded = run.values[1]
    assert (expanded.shape, expanded.strides, expanded.repeats) == ((4, 8), (0, 1), 4)
    signature = run.signature_of(1)
    assert signature is not None and signature.count == 32


def test_a_write_makes_a_new_value_of_all_that_share_the_memory() -> None:
    x = Tensor(draw(4, 8))

    def step() -> Tensor:
        y = x.clone()
        turned = y.t()
        y.mul_(2.0)
        return turned.clone()

    run = written(record(step))
    write, last = run.ops[2], run.ops[3]
    assert write.name == "aten::mul_" and write.writes == write.outputs
    assert run.values[write.outputs[0]].previous == write.inputs[0]
    read = run.values[last.inputs[0]]
    assert (read.previous, read.producer, read.writers) == (run.ops[1].outputs[0], 2, (2,))


def test_a_decomposition_computes_the_same() -> None:
    run = record(lambda: [gelu(X @ W), gelu_decomposed(X @ W)])
    outputs = [run.signature_of(value.id) for value in run.values if (value.name or "").startswith("output")]
    assert outputs[0] is not None and outputs[1] is not None
    assert difference(outputs[0], outputs[1]) == pytest.approx(0.0, abs=1e-5)


def test_other_namespaces_and_several_inputs() -> None:
    run = written(record(lambda: cat([X, call("toy::twice", 2 * X.array, X)])))
    assert [op.name for op in run.ops] == ["toy::twice", "aten::cat"]
    assert run.values[-1].shape == (8, 8)


def test_nothing_is_recorded_outside_of_a_step() -> None:
    tanh(X)
    assert record(lambda: None).ops == ()


def test_a_run_is_built_operator_by_operator_with_its_energy() -> None:
    x, w = draw(4, 8), draw(8, 8, seed=1)
    path = [("mine.py", 3, "step"), ("torch/functional.py", 9, "mm", "torch")]
    built = invented("dear").input("x", x).input("w", w, kind="parameter")
    built.op("toy::mm", ["x", "w"], x @ w, frame=path, joules=3.0, module="layer")
    built.op("toy::t", ["mm"], (x @ w).T, view=True)
    built.op("toy::parts", ["t"], {"low": np.ones(2), "high": np.ones(2)}, joules=1.0, kernel="split", kernel_s=2e-4)
    run = written(built.set(torch__num_threads=2).returned("low", "high").build(rest_w=10.0))
    assert run.label == "dear" and run.settings == {"torch.num_threads": 2}
    assert [value.name for value in run.values] == ["x", "w", None, None, "output.0", "output.1"]
    assert run.values[3].storage == run.values[2].storage
    assert [frame.function for frame in run.call_path(0)] == ["step", "mm"]
    costs = Costs(run)
    for ops, joules in (([0], 3.0), ([2], 1.0)):
        energy = costs.of(ops)
        assert energy is not None and energy.joules == pytest.approx(joules, abs=10.0 * 1e-3)
    assert costs.names([2]) == ("split",) and costs.time_s([2]) == pytest.approx(2e-4)
