"""The recorder of programs without a framework: outputs, random state, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulediff.frameworks.plain.recorder import NO_OUTPUTS, PlainRecorder
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run

EMPTY = Run("a", None, "2026-11-20T10:31:22+00:00", "0.1.0")


def recorder_of(step: Callable[[], Any]) -> PlainRecorder:
    return PlainRecorder(step, names=step, root=Path.cwd(), source=False)


def captured(step: Callable[[], Any]) -> Run:
    recorder = recorder_of(step)
    with recorder.seeded(ran=False) as begin:
        return recorder.capture(EMPTY, begin)


def test_outputs_are_values_that_no_operator_made() -> None:
    run = captured(lambda: {"sum": 3.0, "rows": np.ones((2, 3))})
    assert [(value.name, value.shape, value.producer) for value in run.values] == [
        ("output.sum", (), None),
        ("output.rows", (2, 3), None),
    ]
    assert run.ops == () and run.notes == ()
    assert run.signature_of(1) is not None


def test_a_step_draws_the_same_numbers_in_every_pass() -> None:
    own, plain = np.random.default_rng(1), random.Random(2)
    state = own.bit_generator.state

    def step() -> list[float]:
        return [own.random(), plain.random(), random.random(), float(np.random.rand())]

    run = captured(step)
    assert run.notes == ()
    assert run.signatures == captured(step).signatures
    assert own.bit_generator.state == state


def test_the_program_has_its_own_random_state_again() -> None:
    random.seed(7)
    np.random.seed(7)
    expected = random.getstate(), np.random.get_state()[1].tolist()
    captured(lambda: [random.random(), np.random.rand()])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == expected


def test_an_output_that_varies_from_call_to_call_is_unknown() -> None:
    calls = [0]

    def step() -> dict[str, float]:
        calls[0] += 1
        return {"count": calls[0], "same": 1.0}

    run = captured(step)
    assert [value.signature is None for value in run.values] == [True, False]
    assert run.notes[0].startswith("output.count changed from call to call")


@pytest.mark.parametrize(
    ("output", "note"), [(None, NO_OUTPUTS), (iter(()), "output (it is a builtins.tuple_iterator)")]
)
def test_why_outputs_are_unknown_is_said(output: Any, note: str) -> None:
    (said,) = captured(lambda: output).notes
    assert said.startswith(note)


def test_an_exception_passes_through_and_the_state_is_restored() -> None:
    random.seed(3)
    before = random.getstate()

    def step() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        captured(step)
    assert random.getstate() == before


def test_operators_and_settings_are_refused() -> None:
    recorder = recorder_of(lambda: 1)
    with pytest.raises(JoulediffError, match="no operators"):
        recorder.trial_runner(EMPTY, lambda: None).capture({})
    with pytest.raises(JoulediffError, match="cannot be changed"), recorder.changed({"x": 1}):
        pass
    with recorder.changed({}):
        pass
    assert recorder.replayer(EMPTY, lambda: None).open_rest("cpu") is None


def test_a_program_is_built_again_without_a_trace_in_the_random_state() -> None:
    random.seed(5)
    before = random.getstate()
    runner = recorder_of(lambda: 1).trial_runner(EMPTY, lambda: None)
    step, settings = runner.build_again(lambda: lambda: random.random(), {})
    assert settings == {} and random.getstate() == before and step() is not None
