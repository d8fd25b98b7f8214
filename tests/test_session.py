"""Recording in this process: the passes, what is kept when one ends early, and what the program finds afterwards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from joulediff.archive import load
from joulediff.errors import JoulediffError
from joulediff.recorders.regions import region
from joulediff.recorders.torch import trace
from joulediff.runs import Run
from joulediff.session import record
from joulediff.stability.watch import Watch

QUICK: dict[str, Any] = {"seconds": 0.1, "wait_s": 0.0, "meter": "estimated"}


def statuses(run: Run) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in run.passes]


def test_three_passes_and_a_file_after_each(tmp_path: Path) -> None:
    x, seen = torch.ones(8, 8), []
    run = record(lambda: (x @ x).relu(), **QUICK, label="mine", path=tmp_path / "run.jd", checkpoint=seen.append)
    assert statuses(run) == [("metered", "done"), ("traced", "done"), ("captured", "done")]
    assert [len(each.passes) for each in seen] == [1, 2, 3]
    assert [op.name for op in run.ops] == ["aten::mm", "aten::relu"]
    assert [kernel.op for kernel in run.kernels] == [0, 1]
    assert run.notes == ()
    assert load(tmp_path / "run.jd") == run == seen[-1]
    assert run.settings["package.torch"] == torch.__version__


def test_random_numbers_are_alike_in_every_pass_and_the_programs_own_afterwards() -> None:
    drawn = []

    def step() -> torch.Tensor:
        drawn.append((torch.rand(1).item(), float(np.random.rand()), random.random()))
        return torch.ones(2) * drawn[-1][0]

    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    run = record(step, **QUICK)
    after = (torch.rand(1).item(), float(np.random.rand()), random.random())
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    assert after == (torch.rand(1).item(), float(np.random.rand()), random.random())
    assert drawn[-1] == drawn[-2] == drawn[0]  # captured, traced, and the first of the metered ones
    assert run.notes == ()


def test_outputs_that_change_although_seeded_are_told() -> None:
    calls = [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        return torch.ones(4) * (1 + calls[0] % 2)

    (note,) = record(step, **QUICK).notes
    assert "output changed from call to call although random numbers were seeded alike" in note


def test_a_step_that_changes_its_weights_is_told() -> None:
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = layer(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    (note,) = record(step, **QUICK).notes
    assert note.startswith("the step changes what it starts from (weight, bias")


def test_what_the_step_raises_while_captured_passes_through_and_the_rest_is_kept() -> None:
    class Told(Watch):
        failure: tuple[BaseException, int] | None = None

        def failed(self, error: BaseException, call: int) -> None:
            self.failure = (error, call)

    def step() -> torch.Tensor:
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise error
        return torch.ones(2) + 1

    error, seen, told = ValueError("no"), [], Told()
    with pytest.raises(ValueError, match="no") as raised:
        record(step, **QUICK, checkpoint=seen.append, watch=told)
    assert raised.value is error
    assert told.failure == (error, 1)
    assert statuses(seen[-1]) == [("metered", "done"), ("traced", "done"), ("captured", "failed")]
    assert "ValueError: no" in (seen[-1].passes[-1].note or "")
    assert [kernel.name for kernel in seen[-1].kernels] == ["aten::ones", "aten::add"]
    assert {kernel.join for kernel in seen[-1].kernels} == {"none"}


def test_a_pass_that_cannot_be_had_does_not_keep_the_others_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise JoulediffError("no profiler here", fix="use another build")

    monkeypatch.setattr(trace, "_profiling", refuse)
    run = record(lambda: torch.ones(2) + 1, **QUICK)
    assert statuses(run) == [("metered", "done"), ("traced", "failed"), ("captured", "done")]
    assert run.passes[1].note == "no profiler here use another build"
    assert [op.name for op in run.ops] == ["aten::ones", "aten::add"]
    assert run.kernels == ()
    assert run.traced_s is None


def test_a_step_without_operators_says_so() -> None:
    run = record(lambda: sum(range(100)), **QUICK)
    assert run.ops == ()
    assert any("no PyTorch operator ran" in note for note in run.notes)
    assert run.measurement is not None


def test_ctrl_c_keeps_what_was_found() -> None:
    def step() -> torch.Tensor:
        if torch.autograd._profiler_enabled():
            raise KeyboardInterrupt
        return torch.ones(2) + 1

    seen: list[Run] = []
    with pytest.raises(KeyboardInterrupt):
        record(step, **QUICK, checkpoint=seen.append)
    assert statuses(seen[-1]) == [("metered", "done"), ("traced", "failed")]
    assert seen[-1].measurement is not None
    assert not torch.autograd._profiler_enabled()


def test_regions_are_on_operators() -> None:
    def step() -> torch.Tensor:
        with region("outer"):
            x = torch.ones(2)
            with region("inner"):
                x = x + 1
        return x * 2

    run = record(step, **QUICK)
    assert [op.region for op in run.ops] == ["outer", "outer/inner", None]


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    calls: list[int] = []
    with pytest.raises(JoulediffError):
        record(lambda: calls.append(1), **QUICK, path=tmp_path / "nowhere" / "run.jd")
    assert calls == []
