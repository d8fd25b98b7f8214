"""Recording in this process: the passes, what is kept when one ends early, and what the program finds afterwards."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from joulediff.archive.reader import load
from joulediff.energy.ledger import open_books
from joulediff.frameworks.named_regions import region
from joulediff.frameworks.recorder import Recorder, open_recorder
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.frameworks.torch.trace import trace
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.session.record import record

QUICK: dict[str, Any] = {"seconds": 0.1, "wait_s": 0.0, "meter": "estimated", "replay": False}
REPLAYED: dict[str, Any] = {**QUICK, "replay": True}

pytestmark = pytest.mark.usefixtures("short_idle")


def statuses(run: Run) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in run.passes]


def test_five_passes_and_a_file_after_each(tmp_path: Path) -> None:
    x, seen = torch.ones(8, 8), []
    run = record(lambda: (x @ x).relu(), **REPLAYED, label="mine", path=tmp_path / "run.jd", checkpoint=seen.append)
    assert statuses(run) == [
        ("metered", "done"),
        ("sampled", "done"),
        ("traced", "done"),
        ("captured", "done"),
        ("replayed", "done"),
    ]
    assert [len(each.passes) for each in seen] == [1, 2, 3, 4, 5]
    assert [op.name for op in run.ops] == ["aten::mm", "aten::relu"]
    assert [kernel.op for kernel in run.kernels] == [0, 1]
    assert {row.op for row in run.replays if row.energy_j is not None} == {0, 1}
    assert seen[3].replays == ()
    assert run.notes == ()
    assert load(tmp_path / "run.jd") == run == seen[-1]
    assert run.settings["package.torch"] == torch.__version__


def test_the_state_that_the_step_can_reach_is_recorded_with_its_lines(tmp_path: Path) -> None:
    layer = torch.nn.Linear(8, 8)
    opt = torch.optim.SGD(layer.parameters(), lr=0.5, foreach=False)
    calls = 0

    def step() -> Any:
        nonlocal calls
        calls += 1
        layer(torch.ones(8)).sum().backward()
        opt.step()
        opt.zero_grad()

    run = record(step, **QUICK, path=tmp_path / "run.jd")
    assert run.state["opt.param_groups[0]['foreach']"] is False
    assert run.state["layer.training"] is True
    assert "calls" not in run.state, "the step changes it"
    assert not set(run.state) & set(run.settings)
    file, line, function = run.state_places["opt.param_groups[0]['foreach']"].rsplit(":", 2)
    assert "foreach=False" in (run.line_text(file, int(line)) or "")
    assert function.endswith("recorded_with_its_lines")
    assert run.state_places["opt"].endswith(f":{line}:{function}")
    assert load(tmp_path / "run.jd").state == run.state


def test_without_replay_there_are_four_passes() -> None:
    x = torch.ones(8, 8)
    run = record(lambda: x + 1, **QUICK, replay_seconds=0.0)
    assert statuses(run) == [("metered", "done"), ("sampled", "done"), ("traced", "done"), ("captured", "done")]
    assert run.replays == ()
    assert {op.replay for op in run.ops} == {None}


def test_measurements_before_the_first_instrumented_pass_are_combined() -> None:
    x, seen = torch.ones(8, 8), []

    def between(measure_for: Any) -> None:
        assert [each.passes[-1].name for each in seen] == ["metered"], "nothing has watched it"
        measure_for(0.1)
        measure_for(0.1)

    run = record(lambda: x + 1, **QUICK, between=between, checkpoint=seen.append)
    first, second, third = (each.measurement for each in seen[:3])
    assert statuses(run) == [("metered", "done"), ("sampled", "done"), ("traced", "done"), ("captured", "done")]
    assert first.steps < second.steps < third.steps == run.measurement.steps
    assert run.passes[0].seconds > seen[0].passes[0].seconds
    assert first.repeats < run.measurement.repeats


def test_the_resting_power_is_looked_for_once() -> None:
    x, stages = torch.ones(8, 8), []

    class Told(ProgressListener):
        def stage(self, text: str, share: float | None = None) -> None:
            stages.append(text)

    run = record(lambda: x + 1, **QUICK, between=lambda measure_for: measure_for(0.1), listener=Told())
    assert stages.count("metered 1/5: warming up") == 2
    assert stages.count("metered 1/5: looking for a quiet second") == 1
    assert run.measurement is not None
    assert run.measurement.domains
    assert all(domain.idle is not None for domain in run.measurement.domains.values())


def test_a_step_that_fails_when_measured_again_keeps_what_was_measured() -> None:
    x, seen = torch.ones(8, 8), []
    broken: list[int] = []

    def step() -> Any:
        if broken:
            raise ValueError("no more")
        return x + 1

    def between(measure_for: Any) -> None:
        broken.append(1)
        measure_for(0.1)

    with pytest.raises(ValueError, match="no more"):
        record(step, **QUICK, between=between, checkpoint=seen.append)
    assert statuses(seen[-1]) == [("metered", "done")]


def test_a_meter_that_fails_the_second_time_leaves_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, 8)

    def between(measure_for: Any) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise MeterFailed("no meter gave a number")

        monkeypatch.setattr("joulediff.session.record.measure", fail)
        measure_for(0.1)

    run = record(lambda: x + 1, **QUICK, between=between)
    assert statuses(run) == [("metered", "done"), ("sampled", "done"), ("traced", "done"), ("captured", "done")]
    assert run.measurement is not None and not run.measurement.trustworthy
    assert run.measurement.warnings[-1] == "the second measurement failed: no meter gave a number"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_replay_of_no_length_is_refused_before_anything_runs(seconds: float) -> None:
    def step() -> None:
        raise AssertionError("the step ran")

    with pytest.raises(JoulediffError, match=rf"cannot replay for {seconds:g} seconds\n  give .*--no-replay"):
        record(step, **REPLAYED, replay_seconds=seconds)


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


def test_a_note_on_outputs_that_change_although_seeded() -> None:
    calls = [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        return torch.ones(4) * (1 + calls[0] % 2)

    (note,) = record(step, **QUICK).notes
    assert "output changed from call to call although random numbers were seeded alike" in note


def test_a_note_on_a_step_that_changes_its_weights() -> None:
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = layer(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    (note,) = record(step, **QUICK).notes
    assert note.startswith("the step changes its initial state (weight, bias")


def test_an_exception_in_the_captured_pass_passes_through_and_earlier_passes_are_kept() -> None:
    def step() -> torch.Tensor:
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise error
        return torch.ones(2) + 1

    error, seen, told = ValueError("no"), [], Told()
    with pytest.raises(ValueError, match="no") as raised:
        record(step, **QUICK, checkpoint=seen.append, listener=told)
    assert raised.value is error
    assert told.failure == (error, 1)
    assert statuses(seen[-1]) == [("metered", "done"), ("sampled", "done"), ("traced", "done"), ("captured", "failed")]
    assert "ValueError: no" in (seen[-1].passes[-1].note or "")
    assert [kernel.name for kernel in seen[-1].kernels] == ["aten::ones", "aten::add"]
    assert {kernel.join for kernel in seen[-1].kernels} == {"none"}


def test_a_pass_that_cannot_be_had_does_not_keep_the_others_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise JoulediffError("no profiler here", fix="use another build")

    monkeypatch.setattr(trace, "_profiling", refuse)
    run = record(lambda: torch.ones(2) + 1, **REPLAYED)
    assert statuses(run) == [
        ("metered", "done"),
        ("sampled", "done"),
        ("traced", "failed"),
        ("captured", "done"),
        ("replayed", "skipped"),
    ]
    assert run.passes[4].note == "operators, kernels and the energy of the step are needed first"
    assert run.passes[2].note == "no profiler here use another build"
    assert [op.name for op in run.ops] == ["aten::ones", "aten::add"]
    assert run.kernels == ()
    assert run.traced_s is None


def test_a_note_on_a_step_without_operators() -> None:
    run = record(lambda: sum(range(100)), **QUICK)
    assert run.ops == ()
    assert any("no PyTorch operator ran" in note for note in run.notes)
    assert run.measurement is not None


def test_a_framework_that_the_step_loads_itself_draws_the_same_numbers_in_every_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[int] = []

    def open_late(*args: Any, **options: Any) -> Recorder | None:
        opened.append(1)
        return open_recorder(*args, **options) if len(opened) > 1 else None

    monkeypatch.setattr("joulediff.session.record.open_recorder", open_late)
    run = record(lambda: torch.randn(4) + 1, **QUICK)
    assert len(opened) == 2
    assert run.notes == ()


def test_ctrl_c_keeps_what_was_found() -> None:
    def step() -> torch.Tensor:
        if torch.autograd.profiler._is_profiler_enabled:
            raise KeyboardInterrupt
        return torch.ones(2) + 1

    seen: list[Run] = []
    with pytest.raises(KeyboardInterrupt):
        record(step, **QUICK, checkpoint=seen.append)
    assert statuses(seen[-1]) == [("metered", "done"), ("sampled", "done"), ("traced", "failed")]
    assert seen[-1].measurement is not None
    assert not torch.autograd._profiler_enabled()


class Told(ProgressListener):
    """Keeps every report, and interrupts at a stage that begins with `until`."""

    def __init__(self, until: str = "never") -> None:
        self.until = until
        self.stages: list[tuple[str, float | None]] = []
        self.failure: tuple[BaseException, int] | None = None

    def stage(self, text: str, share: float | None = None) -> None:
        self.stages.append((text, share))
        if text.startswith(self.until):
            raise KeyboardInterrupt

    def failed(self, error: BaseException, call: int) -> None:
        self.failure = (error, call)


def three_operators() -> torch.Tensor:
    return torch.ones(64, 64).cumsum(0).exp()


def test_the_stages_of_a_replay_report_its_progress() -> None:
    told = Told()
    record(three_operators, **REPLAYED, listener=told)
    stages = [(text, share) for text, share in told.stages if text.startswith("replayed")]
    assert stages[0] == ("replayed 5/5: running the step for the inputs of its operators", None)
    assert [share for _, share in stages[1:]] == [0, 1 / 3, 2 / 3]
    for number, (text, _) in enumerate(stages[1:]):
        assert re.fullmatch(rf"replayed 5/5: {number} of 3 operators, \d+ s left", text)


@pytest.mark.parametrize(
    ("until", "status", "measured"),
    [
        ("replayed 5/5: 2 of 3", "partial", 2),
        ("replayed 5/5: 0 of 3", "failed", 0),
        ("replayed 5/5: running the step", "failed", 0),
    ],
)
def test_ctrl_c_keeps_what_was_replayed(tmp_path: Path, until: str, status: str, measured: int) -> None:
    seen: list[Run] = []
    listener, place = Told(until), tmp_path / "run.jd"
    with pytest.raises(KeyboardInterrupt):
        record(three_operators, **REPLAYED, listener=listener, checkpoint=seen.append, path=place)
    assert statuses(seen[-1])[3:] == [("captured", "done"), ("replayed", status)]
    assert sum(row.energy_j is not None for row in seen[-1].replays) == measured
    assert all(op.replay is not None for op in seen[-1].ops)
    assert {row.note for row in seen[-1].replays if row.energy_j is None} == {"replay ended before its turn"}
    assert seen[-1].passes[-1].note == "stopped with Ctrl-C"
    assert load(place) == seen[-1]
    assert open_books(seen[-1]).split == ("replayed" if measured else "attributed")


def test_an_exception_while_inputs_are_collected_passes_through() -> None:
    error, seen, told = ValueError("no"), [], Told()

    def step() -> torch.Tensor:
        if seen and len(seen[-1].passes) == 4:
            raise error
        return three_operators()

    with pytest.raises(ValueError, match="no") as raised:
        record(step, **REPLAYED, checkpoint=seen.append, listener=told)
    assert raised.value is error
    assert told.failure == (error, 1)
    assert statuses(seen[-1])[3:] == [("captured", "done"), ("replayed", "failed")]
    assert "ValueError: no" in (seen[-1].passes[-1].note or "")
    assert len(seen[-1].ops) == 3
    assert torch._C._len_torch_dispatch_stack() == 0


def test_time_that_runs_out_keeps_what_was_done_and_notes_the_rest() -> None:
    run = record(three_operators, **REPLAYED, replay_seconds=0.1)
    assert statuses(run)[-1] == ("replayed", "done")
    rows = [run.replays[op.replay] for op in run.ops if op.replay is not None]
    assert len(rows) == 3
    notes = [row.note for row in rows if row.energy_j is None]
    assert len(notes) == 2, "the first is measured, however long that takes"
    assert set(notes) == {"the 100.0 ms for replay were spent"}


def test_a_device_that_stops_answering_ends_the_replay_and_not_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise JoulediffError("it failed when run again: illegal address")

    monkeypatch.setattr(TorchReplayer, "open_load", refuse)
    monkeypatch.setattr(TorchReplayer, "is_alive", lambda *_: False)
    run = record(three_operators, **REPLAYED)
    assert statuses(run)[-1] == ("replayed", "failed")
    assert "cpu does not answer any more since aten::" in (run.passes[-1].note or "")
    first, *others = [row.note for row in run.replays]
    assert first == "it failed when run again: illegal address"
    assert others == ["replay ended before its turn"] * 2


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
