"""One step under PyTorch's own profiler."""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from joulediff.frameworks.torch.trace import trace
from joulediff.frameworks.torch.trace.trace import trace_step, write_trace
from joulediff.model.errors import JoulediffError

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Let temporary folders be made where the test can see them."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def matrix():
    return torch.ones(8, 8)


def names_of(traced):
    return [call.name for call in traced.calls if call.parent is None]


def test_the_step_is_traced_alone(matrix, folder):
    calls = []

    def step():
        calls.append("step")
        return (matrix @ matrix).relu()

    traced = trace_step(step, begin=lambda: calls.append("begin") or torch.zeros(3))
    assert calls == ["begin", "step"] * (trace.WARM_UPS + trace.STEPS)
    assert names_of(traced) == ["aten::matmul", "aten::relu"]
    assert traced.launches == ()
    assert traced.pauses == ()
    inside_s = sum(call.duration_s for call in traced.calls if call.parent is None)
    assert 0 < inside_s < traced.step_s
    assert [*folder.glob("joulediff-*")] == []


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_profiler_records_the_kernels_of_a_gpu_that_the_program_uses(on_gpu, monkeypatch):
    both = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: on_gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    monkeypatch.setattr(torch.autograd.profiler, "_supported_activities", lambda: both)
    found = trace.make_profiler().kineto_activities
    assert found == (both if on_gpu else {torch.profiler.ProfilerActivity.CPU})


def test_a_long_step_is_traced_once(matrix, monkeypatch):
    monkeypatch.setattr(trace, "LIMIT_S", 0.0)
    monkeypatch.setattr(trace, "LONG_S", 0.0)
    calls = []
    traced = trace_step(lambda: calls.append(matrix + 1))
    assert len(calls) == 1
    assert names_of(traced) == ["aten::add"]


def test_random_numbers_can_be_seeded_alike():
    drawn = []
    trace_step(lambda: drawn.append(torch.rand(3).tolist()), begin=lambda: torch.manual_seed(7))
    assert len(drawn) > 1
    assert all(numbers == drawn[0] for numbers in drawn)


def test_the_output_of_a_step_is_released_before_the_next(matrix):
    alive = []

    class Output:
        def __init__(self):
            alive.append(self.__class__)

        def __del__(self):
            alive.pop()

    def step():
        assert not alive
        return Output()

    trace_step(step)
    assert not alive


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("at", [1, 2])
def test_an_exception_of_the_step_passes_through(matrix, folder, error, at):
    calls = []

    def step():
        calls.append(matrix + 1)
        if len(calls) == at:
            raise error

    with pytest.raises(type(error)) as raised:
        trace_step(step)
    assert raised.value is error
    assert [*folder.glob("joulediff-*")] == []
    assert not torch.autograd._profiler_enabled()
    assert names_of(trace_step(lambda: matrix * 2)) == ["aten::mul"], "the next trace is not disturbed"


def test_marks_of_the_program_are_kept(matrix):
    def step():
        with torch.profiler.record_function("mine"):
            return matrix.neg()

    traced = trace_step(step)
    assert [(call.name, call.parent) for call in traced.calls] == [("mine", None), ("aten::neg", 0)]


def test_backward_calls_bear_the_number_of_their_forward_call():
    weight = torch.ones(4, requires_grad=True)
    traced = trace_step(lambda: weight.exp().sum().backward())
    exp = next(call for call in traced.calls if call.name == "aten::exp")
    backward = next(call for call in traced.calls if call.name == "ExpBackward0")
    assert exp.sequence == backward.sequence is not None


@pytest.mark.parametrize(
    "open_profiler",
    [
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        lambda: torch.autograd.profiler.profile(),
        lambda: torch.autograd.profiler.profile(use_kineto=False),
        lambda: torch.autograd.profiler.emit_itt(),
    ],
)
def test_another_profiler_is_refused(matrix, open_profiler):
    with open_profiler(), pytest.raises(JoulediffError, match="beside another PyTorch profiler: one is active"):
        trace_step(lambda: matrix + 1)
    assert names_of(trace_step(lambda: matrix + 1)) == ["aten::add"]


def test_a_step_with_its_own_profiler_is_refused(matrix):
    def step():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return matrix + 1

    with pytest.raises(JoulediffError, match="the step runs its own profiler"):
        trace_step(step)
    assert names_of(trace_step(lambda: matrix + 1)) == ["aten::add"]


def test_nothing_is_said_and_nothing_left_changed(matrix):
    before, filters = dict(os.environ), list(warnings.filters)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trace_step(lambda: matrix + 1)
        trace_step(lambda: warnings.warn("the program's own", stacklevel=1))
    assert {str(each.message) for each in said} == {"the program's own"}
    assert dict(os.environ) == before
    assert warnings.filters == filters


def test_the_profiler_writes_nothing_to_the_terminal():
    code = (
        "import torch\nfrom joulediff.frameworks.torch.trace.trace import trace_step\n"
        "assert len(trace_step(lambda: torch.ones(3) + 1).calls) > 2"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_trace_can_be_kept(matrix, tmp_path: Path):
    write_trace(lambda: matrix + 1, tmp_path / "trace.json")
    assert "joulediff.step" in (tmp_path / "trace.json").read_text()
