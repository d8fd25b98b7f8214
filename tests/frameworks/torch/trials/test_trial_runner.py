"""Trials with a recorded program, on its own tensors and under other settings, leave it unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from interpreter import SEED, seed_all, to_run
from joulediff.frameworks.jobs import OTHER, OWN, Feed, Job
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.models import find_holdings
from joulediff.frameworks.torch.trials import trial_runner as trial_runners
from joulediff.frameworks.torch.trials.trial_runner import TorchTrialRunner
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Form, HostSample, Op, Run, Wait
from joulediff.session.live_program import LocalProgram
from joulediff.session.record import record

Step = Callable[[], Any]
DETERMINISTIC = "torch.deterministic.enabled"

FILE = "tests/frameworks/torch/trials/test_trial_runner.py"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runners, "MAX_COPIES", 2)
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)


def seed() -> None:
    seed_all(SEED)


def captured(step: Step) -> Run:
    return to_run(capture_step(step, begin=seed, holdings=find_holdings(step)))


def open_workshop(step: Step, *, other: Step | None = None) -> TorchTrialRunner:
    found = TorchTrialRunner(step, captured(step), names=step, begin=seed, root=Path.cwd())
    if other is not None:
        found.take_other(captured(other))
    return found


def find(run: Run, name: str) -> Op:
    return next(op for op in run.ops if op.name == f"aten::{name}")


X = torch.linspace(-2, 2, 32).reshape(4, 8)


def fused() -> torch.Tensor:
    return torch.nn.functional.gelu(X * 2, approximate="tanh")


def decomposed() -> torch.Tensor:
    y = X * 2
    inner = 0.7978845608 * (y + 0.044715 * y.pow(3))
    return 0.5 * y * (1 + inner.tanh())


def test_operators_of_the_program_itself() -> None:
    trial_runner = open_workshop(decomposed)
    ops = tuple(range(1, len(captured(decomposed).ops)))
    with closing(trial_runner.prepare_job(Job(OWN, ops, collect=ops))) as piece:
        assert (piece.device, piece.difference) == ("cpu", None)
        assert {"aten::pow", "aten::tanh", "aten::mul"} <= set(piece.kernels)
        piece.load.run(0.0)
        assert piece.load.calls >= 1
    trial_runner.close()


def transplant(own: Step, other: Step, **changes: Any) -> Job:
    """Return a job: all operators of the other step but its first, on what the own one's first makes."""
    mine, theirs = captured(own), captured(other)
    facts: dict[str, Any] = {
        "collect": tuple(range(1, len(mine.ops))),
        "feeds": (Feed(theirs.ops[0].outputs[0], mine.ops[0].outputs[0]),),
        "compare": ((theirs.ops[-1].outputs[0], mine.ops[-1].outputs[0]),),
    }
    return Job(OTHER, tuple(range(1, len(theirs.ops))), **{**facts, **changes})


def test_operators_of_the_other_program_on_this_ones_tensors() -> None:
    trial_runner = open_workshop(decomposed, other=fused)
    with closing(trial_runner.prepare_job(transplant(decomposed, fused))) as piece:
        assert piece.kernels == ("aten::gelu",)
        assert piece.difference is not None and piece.difference < 1e-5


def test_other_outputs_are_reported() -> None:
    def wrong() -> torch.Tensor:
        return torch.relu(X * 2)

    with closing(open_workshop(decomposed, other=wrong).prepare_job(transplant(decomposed, wrong))) as piece:
        assert piece.difference is not None and piece.difference > 0.01


def test_inputs_take_the_form_that_is_asked_for() -> None:
    trial_runner, run = open_workshop(fused), captured(fused)
    made, out = run.ops[1].inputs[0], run.ops[1].outputs[0]
    feeds = (Feed(made, made, Form((4, 8), (1, 4), "float64")),)
    job = Job(OWN, (1,), collect=(1,), feeds=feeds, compare=((out, out),))
    with closing(trial_runner.prepare_job(job)) as piece:
        assert piece.difference is not None and 0 < piece.difference < 1e-6, "it ran in double precision"


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Stands for a card: keeps whether each load may be captured as a graph."""
    found: list[bool] = []

    class Load:
        def __init__(self, *_: object, may_capture: bool, **__: object) -> None:
            found.append(may_capture)

        def close(self) -> None:
            pass

    monkeypatch.setattr(trial_runners, "CudaLoad", Load)
    monkeypatch.setattr(trial_runners, "kernel_names", lambda call, device: ())
    monkeypatch.setattr(trial_runners, "_count_copies", lambda size, device: 1)
    return found


def on_card(run: Run, *waiting: int) -> Run:
    """Return a run of a card in which the host waits for some operators."""
    waits = tuple(Wait("cudaStreamSynchronize", 0.0, 1e-4, op, 0) for op in (*waiting, None))
    return replace(run, ops=tuple(replace(op, device="cuda:0") for op in run.ops), waits=waits)


@pytest.mark.parametrize(("waiting", "ops", "may"), [((), (1, 2), True), ((0,), (1, 2), True), ((2,), (1, 2), False)])
def test_operators_that_wait_for_the_device_are_not_captured_as_a_graph(
    captures: list[bool], waiting: tuple[int, ...], ops: tuple[int, ...], may: bool
) -> None:
    run = on_card(captured(decomposed), *waiting)
    trial_runner = TorchTrialRunner(decomposed, run, names=decomposed, begin=seed, root=Path.cwd())
    trial_runner.prepare_job(Job(OWN, ops, collect=ops)).close()
    assert captures == [may]


def test_the_waits_are_those_of_the_run_whose_operators_they_are(captures: list[bool]) -> None:
    for waiting in (False, True):
        own, other = on_card(captured(decomposed), 1), on_card(captured(fused), *([1] if waiting else []))
        trial_runner = TorchTrialRunner(decomposed, own, names=decomposed, begin=seed, root=Path.cwd())
        trial_runner.take_other(other)
        trial_runner.prepare_job(transplant(decomposed, fused)).close()
    assert captures == [True, False]


def test_a_tensor_that_the_program_does_not_have() -> None:
    trial_runner = open_workshop(decomposed, other=fused)
    with pytest.raises(JoulediffError, match="a tensor that this program does not have"):
        trial_runner.prepare_job(transplant(decomposed, fused, feeds=()))


WHOLE = torch.linspace(-1, 1, 128).reshape(8, 16)
LEFT, RIGHT = WHOLE[:, :8].clone(), WHOLE[:, 8:].clone()


def in_parts() -> torch.Tensor:
    y = X * 2
    return torch.cat([y @ LEFT, y @ RIGHT], -1)


def in_one() -> torch.Tensor:
    return (X * 2) @ WHOLE


def exported(path: Path) -> tuple[TorchTrialRunner, int]:
    """Return the program in parts, for which the other one wrote its matrix to a file, and which value that is."""
    other = open_workshop(in_one)
    value = captured(in_one).ops[1].inputs[1]
    other.export_tensors((1,), [value], path)
    other.close()
    return open_workshop(in_parts, other=in_one), value


def test_a_tensor_that_the_other_program_exports(tmp_path: Path) -> None:
    trial_runner, _ = exported(tmp_path / "t")
    job = transplant(in_parts, in_one)
    with pytest.raises(JoulediffError, match="a tensor that this program does not have"):
        trial_runner.prepare_job(job)
    trial_runner.import_tensors(tmp_path / "t")
    (tmp_path / "t").unlink()
    with closing(trial_runner.prepare_job(job)) as piece:
        assert piece.kernels == ("aten::mm",)
        assert piece.difference is not None and piece.difference < 1e-5
    trial_runner.close()
    with pytest.raises(JoulediffError, match="a tensor that this program does not have"):
        trial_runner.prepare_job(job)


def test_imported_tensors_replace_those_of_the_other_program_alone(tmp_path: Path) -> None:
    """They have the other program's numbers, and the same number is another tensor here."""
    trial_runner, value = exported(tmp_path / "t")
    trial_runner.import_tensors(tmp_path / "t")
    run = captured(in_parts)
    ops = tuple(op.id for op in run.ops[1:])
    outputs = tuple((out, out) for op in run.ops[1:] for out in op.outputs)
    assert value < len(run.values)
    with closing(trial_runner.prepare_job(Job(OWN, ops, collect=ops, compare=outputs))) as piece:
        assert piece.difference == 0.0


def test_imported_tensors_take_turns_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy for all would stay in the cache."""
    seen: list[set[int]] = []

    class Load:
        def __init__(self, calls: Any, **_: object) -> None:
            (given,) = zip(*(call.args for call in calls), strict=True)
            seen.extend({each[value].data_ptr() for each in given} for value in given[0])

        def close(self) -> None:
            pass

    trial_runner, _ = exported(tmp_path / "t")
    trial_runner.import_tensors(tmp_path / "t")
    monkeypatch.setattr(trial_runners, "HostLoad", Load)
    monkeypatch.setattr(trial_runners, "_count_copies", lambda size, device: 3)
    trial_runner.prepare_job(transplant(in_parts, in_one)).close()
    assert [len(places) for places in seen] == [3, 3]


def test_a_tensor_that_is_not_read_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(JoulediffError, match="does not read a tensor that was asked for"):
        open_workshop(in_one).export_tensors((0,), [captured(in_one).ops[1].inputs[1]], tmp_path / "t")


def test_recordings_that_are_not_there() -> None:
    trial_runner = open_workshop(fused)
    for job in (Job(OTHER, (0,)), Job("changed1", (0,)), Job(OWN, (0,), base="changed7")):
        with pytest.raises(JoulediffError, match="there is no recording"):
            trial_runner.prepare_job(job)


@pytest.fixture
def library() -> Iterator[Step]:
    """Gives a step that uses an operator of another library."""
    with torch.library._scoped_library("jdtest", "DEF") as found:
        found.define("double(Tensor x) -> Tensor")
        found.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
        yield lambda: torch.ops.jdtest.double(X)


def test_operators_of_a_library_that_the_program_does_not_use(library: Step) -> None:
    run = captured(library)
    (number,) = (op.id for op in run.ops if op.name == "jdtest::double")
    trial_runner = open_workshop(fused, other=library)
    with pytest.raises(JoulediffError, match="jdtest::double belongs to a library that this program does not use"):
        trial_runner.prepare_job(Job(OTHER, (number,), collect=(0,)))
    feeds = tuple(Feed(value, value) for value in run.ops[number].inputs)
    job = Job(OTHER, (number,), collect=(number,), feeds=feeds)
    open_workshop(library, other=library).prepare_job(job).close()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_is_a_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(trial_runners, "_copies", refuse)
    with pytest.raises(JoulediffError, match="do not fit into memory"):
        open_workshop(fused).prepare_job(Job(OWN, (1,), collect=(1,)))


def test_an_operator_that_fails_is_a_reason() -> None:
    def other() -> torch.Tensor:
        return torch.mm(X, X.t())

    run, own = captured(other), captured(fused)
    feeds = tuple(Feed(value, own.ops[0].inputs[0]) for value in run.ops[1].inputs)
    with pytest.raises(JoulediffError, match="it failed when run again: "):
        open_workshop(fused, other=other).prepare_job(Job(OTHER, (1,), collect=(0,), feeds=feeds))


@torch.library.custom_op("joulediff_test::round_if_told", mutates_args=())
def round_if_told(x: torch.Tensor) -> torch.Tensor:
    """Stands for a product in TF32: a setting costs it digits."""
    return x.half().float() if torch.are_deterministic_algorithms_enabled() else x.clone()


def rounding() -> torch.Tensor:
    return round_if_told(X * 2)


def under_setting(known: Mapping[str, Any], *, ops: tuple[int, ...] = (1,)) -> float | None:
    """Return how far the outputs of an operator change with a setting, by what a recording knows of it."""
    run = replace(captured(rounding), settings=known)
    trial_runner = TorchTrialRunner(rounding, run, names=rounding, begin=seed, root=Path.cwd())
    name, changed = trial_runner.capture({DETERMINISTIC: True})
    out = changed.ops[1].outputs[0]
    job = Job(name, ops, base=name, collect=ops, compare=((out, out),), settings={DETERMINISTIC: True})
    with closing(trial_runner.prepare_job(job)) as piece:
        assert not torch.are_deterministic_algorithms_enabled()
        return piece.difference


def test_a_changed_capture_has_no_host_samples_of_the_recorded_step() -> None:
    """They refer to frames of the recording, and a run with them could not be sent."""
    sampled = replace(captured(rounding), host_samples=(HostSample(0, "line", 1e-3, 1e-3, 1),))
    trial_runner = TorchTrialRunner(rounding, sampled, names=rounding, begin=seed, root=Path.cwd())
    _, changed = trial_runner.capture({DETERMINISTIC: True})
    assert changed.host_samples == () and changed.sampling is None


def test_outputs_under_a_setting_are_compared_with_those_without() -> None:
    gap = under_setting({DETERMINISTIC: False})
    assert gap is not None and 1e-5 < gap < 1e-3, "half precision has three digits"
    assert under_setting({DETERMINISTIC: True}) == 0.0, "the program has it so already"


def test_a_setting_that_the_recording_does_not_know_compares_nothing() -> None:
    assert under_setting({}) is None


def test_settings_hold_only_meanwhile() -> None:
    seen: list[bool] = []

    def step() -> torch.Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return X * 2

    trial_runner = open_workshop(step)
    seen.clear()
    name, run = trial_runner.capture({DETERMINISTIC: True})
    assert seen == [True]
    assert [op.name for op in run.ops] == ["aten::mul"]
    assert (run.kernels, run.replays, run.label) == ((), (), "step")
    seen.clear()
    trial_runner.prepare_job(Job(name, (0,), base=name, collect=(0,))).close()
    assert seen == [True], "the inputs of a changed recording come from a changed run"
    trial_runner.prepare_job(Job(OWN, (0,), collect=(0,))).close()
    assert seen == [True, False]
    with pytest.raises(JoulediffError, match="cannot be changed"):
        trial_runner.capture({"torch.nobody": True})
    assert not torch.are_deterministic_algorithms_enabled()


def test_recordings_of_changes_have_names_of_their_own() -> None:
    trial_runner = open_workshop(fused, other=fused)
    names = [trial_runner.capture({DETERMINISTIC: value})[0] for value in (True, False, True)]
    assert len({*names, OWN, OTHER}) == 5


def test_inputs_that_change_from_call_to_call_are_a_reason() -> None:
    calls = [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        return X[: calls[0]] * 2

    trial_runner = open_workshop(step)
    with pytest.raises(JoulediffError, match="had other inputs when the step ran again"):
        trial_runner.prepare_job(Job(OWN, (1,), collect=(1,)))


def test_the_other_program_writes_to_a_copy() -> None:
    own, theirs = torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8)

    def reads() -> torch.Tensor:
        return own * 3

    def writes() -> torch.Tensor:
        return theirs.mul_(3)

    theirs_run, mine = captured(writes), captured(reads)
    theirs.copy_(own)
    trial_runner = open_workshop(reads, other=lambda: None)
    trial_runner.take_other(theirs_run)
    before, version = own.clone(), own._version
    feeds = (Feed(theirs_run.ops[0].inputs[0], mine.ops[0].inputs[0]),)
    compare = ((theirs_run.ops[0].outputs[0], mine.ops[0].outputs[0]),)
    with closing(trial_runner.prepare_job(Job(OTHER, (0,), collect=(0,), feeds=feeds, compare=compare))) as piece:
        piece.load.run(0.0)
        assert piece.difference == 0.0
    assert torch.equal(own, before)
    assert own._version == version


def test_written_inputs_get_their_first_values_back() -> None:
    state = torch.ones(4)

    def step() -> torch.Tensor:
        state.fill_(1)
        return state.mul_(2)

    trial_runner = open_workshop(step)
    seen: list[float] = []
    with closing(trial_runner.prepare_job(Job(OWN, (1,), collect=(1,)))) as piece:
        renew = piece.load._renewal._renew
        renew()
        seen += [float(call.args[0][value][0]) for call in piece.load._calls for value in call.func.written]
    assert seen and set(seen) == {1.0}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu_(self.norm(self.first(x))))


def values_of(model: nn.Module) -> list[Any]:
    return [(tensor.tolist(), tensor.data_ptr()) for tensor in (*model.parameters(), *model.buffers(), X)]


def surroundings() -> list[Any]:
    """What a try could leave changed around a program: random numbers, settings, methods of tensors."""
    return [
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        dict(vars(torch.Tensor)),
    ]


QUICK: dict[str, Any] = {"seconds": 0.05, "wait_s": 0.0, "meter": "estimated", "replay": False, "source": False}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_program_is_left_as_it_is(training: bool, fails: bool) -> None:
    torch.manual_seed(0)
    model = Net().train(training)

    def step() -> torch.Tensor:
        loss = model(X).square().mean()
        loss.item()
        return loss.detach() + torch.rand(())

    left: list[list[Any]] = []
    ran: list[str] = []

    def try_all(program: LocalProgram) -> None:
        ops = tuple(op.id for op in program.run.ops[1:4])
        program.take_other(program.run)
        cost = program.measure_job(Job(OWN, ops, collect=ops), window_s=0.15)
        assert cost.energy is not None and cost.energy.joules > 0
        program.measure_job(Job(OWN, ops, collect=ops, settings={DETERMINISTIC: True}), window_s=0.02)
        name, _ = program.capture({"torch.backends.mkldnn.enabled": False})
        ran.append(name)
        with program.trial_runner.without_sync(step, file=FILE, line=step.__code__.co_firstlineno + 2):
            pass
        if fails:
            raise ValueError("no")

    def checkpoint(_: Run) -> None:
        if not left:
            left.append(values_of(model))  # what the metered pass left is what must be there again

    before = surroundings()
    try:
        record(step, checkpoint=checkpoint, then=try_all, **QUICK)
    except ValueError:
        assert fails
    assert ran == ["changed2"]
    assert values_of(model) == left[0]
    assert surroundings() == before


def test_outputs_without_a_wait_are_compared() -> None:
    def same() -> torch.Tensor:
        scale = X.square().mean().item()
        return X * scale

    numbers = iter(range(10**9))

    def other() -> torch.Tensor:
        scale = (X.square().mean() * math.sin(1 + next(numbers))).item()
        return X * scale

    for step, is_equal in ((same, True), (other, False)):
        found: list[float | None] = []

        def measure(program: LocalProgram, step: Any = step, found: list[float | None] = found) -> None:
            line = step.__code__.co_firstlineno + 1
            cost = program.measure_without_sync(FILE, line, seconds=0.1, wait_s=0.0)
            assert cost.is_measured and cost.after is not None
            found.append(cost.difference)

        record(step, then=measure, **QUICK)
        assert found[0] is not None and (found[0] < 1e-3) is is_equal


def test_versions_of_tensors_that_nothing_writes_stay() -> None:
    model = Net().eval()

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(X)

    trial_runner = open_workshop(step)
    versions = [tensor._version for tensor in (*model.parameters(), *model.buffers(), X)]
    ops = tuple(range(len(captured(step).ops)))
    with closing(trial_runner.prepare_job(Job(OWN, ops, collect=ops))) as piece:
        piece.load.run(0.0)
    trial_runner.capture({DETERMINISTIC: True})
    assert [tensor._version for tensor in (*model.parameters(), *model.buffers(), X)] == versions


def test_a_job_that_cannot_be_measured_has_a_note() -> None:
    notes: list[str | None] = []

    def measure_job(program: LocalProgram) -> None:
        notes.append(program.measure_job(Job("nobody", (0,)), window_s=0.01).note)
        notes.append(program.measure_job(Job(OWN, (0,), collect=(0,), settings={"torch.no": 1}), window_s=0.01).note)

    record(fused, then=measure_job, **QUICK)
    assert notes == ["there is no recording nobody here", "torch.no cannot be changed at run time"]


def test_a_step_is_measured_again_and_under_other_settings() -> None:
    seen: list[bool] = []

    def step() -> torch.Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return X * 2

    def measure(program: LocalProgram) -> None:
        seen.clear()
        limits: dict[str, Any] = {"seconds": 0.05, "wait_s": 0.0}
        assert program.measure(settings={}, **limits).energy.joules > 0
        assert seen and not any(seen)
        seen.clear()
        program.measure(settings={DETERMINISTIC: True}, **limits)
        assert seen and all(seen)

    record(step, then=measure, **QUICK)
    assert not torch.are_deterministic_algorithms_enabled()
