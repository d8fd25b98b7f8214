"""A real recording: GPT-2 small, fp16 8x512, on an H200, as `joulediff record examples/gpt2.py` made it there."""

from __future__ import annotations

import pytest

import paths
from golden_files import check_golden
from joulediff.archive.reader import load
from joulediff.model.run import Run
from show_builders import render

GOLDEN = paths.GOLDEN


@pytest.fixture(scope="module")
def run() -> Run:
    return load(GOLDEN / "h200_gpt2.jd")


def test_it_is_small() -> None:
    assert (GOLDEN / "h200_gpt2.jd").stat().st_size < 100_000


def test_every_kernel_has_its_operator(run: Run) -> None:
    assert len(run.ops) == 470
    assert {kernel.join for kernel in run.kernels} == {"op"}
    assert [each.status for each in run.passes] == ["done", "done", "done"]
    assert run.notes == ()


def test_every_tensor_that_was_made_is_signed(run: Run) -> None:
    made = {value for op in run.ops for value in op.outputs}
    assert made
    assert all(run.values[value].signature is not None for value in made)


def test_a_fused_tensor_has_the_signature_of_its_parts(run: Run) -> None:
    splits = [op for op in run.ops if op.name == "aten::split"]
    assert len(splits) == 12
    for op in splits:
        whole = run.signature_of(op.inputs[0])
        parts = [run.signature_of(value) for value in op.outputs]
        assert whole is not None
        for name in ("count", "sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4"):
            total = sum(getattr(part, name) for part in parts)
            assert total == pytest.approx(getattr(whole, name), rel=1e-9, abs=1e-9 * whole.sum_x4)


def test_the_activation_is_found_by_its_line_and_module(run: Run) -> None:
    tanh = [op for op in run.ops if op.name == "aten::tanh"]
    assert [op.module for op in tanh] == [f"transformer.h.{layer}.mlp.act" for layer in range(12)]
    innermost = run.call_path(tanh[0].id)[-1]
    assert (innermost.file, innermost.owner) == ("transformers/activations.py", "transformers")
    shown = [source for source in run.sources if source.file == innermost.file]
    assert any("torch.tanh" in source.text for source in shown)


def test_kernels_fit_into_the_metered_step(run: Run) -> None:
    assert run.measurement is not None
    busy_s = sum(kernel.duration_s for kernel in run.kernels)
    assert 0.7 * run.measurement.step_s < busy_s < run.measurement.step_s


@pytest.mark.parametrize("columns", [80, 120])
def test_golden(run: Run, columns: int, pytestconfig: pytest.Config) -> None:
    check_golden(f"show_h200_gpt2_{columns}.txt", render(run, columns), pytestconfig)
