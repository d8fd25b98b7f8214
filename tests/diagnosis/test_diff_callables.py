"""`diff` on functions of this process: what it accepts, its turns, and what the program finds afterwards."""

from __future__ import annotations

import functools
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from joulediff.archive.writer import save
from joulediff.diagnosis.diff import diff
from joulediff.model.errors import JoulediffError
from joulediff.session.record import record

SHORT: dict[str, Any] = {"seconds": 0.2, "wait_s": 0.0, "meter": "estimated", "replay_seconds": 0.5}
QUICK: dict[str, Any] = {**SHORT, "replay": False}
# A machine that is busy with something else may hide a waste once.
TRIES = 3


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.ROUNDS", {})


class Model:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(128, 128).requires_grad_(requires_grad=False)
        self.x = torch.randn(64, 128)

    def lean(self) -> Any:
        return self.layer(self.x)

    def wasteful(self, times: int = 1) -> Any:
        for _ in range(times):
            self.x.double().float()
        return self.layer(self.x.double().float())


def test_a_waste_between_two_functions_is_found_and_confirmed() -> None:
    model = Model()
    for left in reversed(range(TRIES)):
        found = diff(model.wasteful, model.lean, **SHORT)
        casts = [each for each in found.findings if "_to_copy" in each.region and each.expensive == "a"]
        if casts or not left:
            break
    assert found.a.label == "Model.wasteful"
    assert found.b.label == "Model.lean"
    assert [each.cause.type for each in casts][:1] == ["redundancy"]
    assert "float()" in str(casts[0].suggestion)


def test_the_functions_take_turns_and_are_called_in_no_other_way() -> None:
    x, calls = torch.ones(8, 8), []

    def one() -> Any:
        calls.append("a")
        return x + 1

    def other() -> Any:
        calls.append("b")
        return x + 1

    found = diff(one, other, **QUICK)
    turns = [name for name, _ in groupby(calls)]
    assert turns[:4] == ["a", "b", "a", "b"], "measured A, B, B, A; sampled A, then B"
    assert found.a.label == "one"
    assert found.findings == ()
    assert found.a.step.steps > 0


def test_lambdas_partials_and_modules_are_functions_too() -> None:
    model, x = Model(), torch.ones(8, 8)

    class Whole(torch.nn.Module):
        def forward(self) -> Any:
            return x + 1

    partial = diff(functools.partial(model.wasteful, 2), Whole(), **QUICK)
    assert (partial.a.label, partial.b.label) == ("Model.wasteful", "Whole")
    lambdas = diff(lambda: x + 1, lambda: x + 1, **QUICK)
    assert lambdas.a.label.startswith("lambda at line")
    assert lambdas.a.label.endswith("(A)")
    assert lambdas.b.label.endswith("(B)")
    named = diff(lambda: x + 1, lambda: x + 1, label_a="old", **QUICK)
    assert named.a.label == "old"


def test_two_functions_that_train_one_model_begin_with_the_same_state() -> None:
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.9)

    def train() -> Any:
        loss = layer(torch.ones(4, 8)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    before = torch.random.get_rng_state()
    found = diff(train, lambda: train(), **QUICK)
    assert found.outputs_agree
    assert found.divergences == ()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_function_beside_a_run_and_a_file(tmp_path: Path) -> None:
    x = torch.ones(8, 8)
    run = record(lambda: x + 1, label="before", **QUICK)
    save(run, tmp_path / "before.jd")
    with_run = diff(run, lambda: x + 1, label_b="after", **QUICK)
    assert (with_run.a.label, with_run.b.label) == ("before", "after")
    assert with_run.a.step.energy == run.measurement.energy
    with_file = diff(lambda: x + 1, tmp_path / "before.jd", label_b="first", **QUICK)
    assert with_file.b.label == "first"
    assert with_file.a.ops == with_file.b.ops == 1


def test_a_failure_of_a_function_passes_through_and_nothing_stays_open() -> None:
    x, error = torch.ones(8, 8), ValueError("no more")

    def fail() -> Any:
        raise error

    with pytest.raises(ValueError, match="no more") as caught:
        diff(lambda: x + 1, fail, **QUICK)
    assert caught.value is error
    assert record(lambda: x + 1, **QUICK).ops, "the next recording works"


def needs_one(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("given", "said", "advice"),
    [
        (3, "side B of a diff cannot be an int: 3", "function without arguments"),
        (None, "side B of a diff cannot be None", "FILE.py:name"),
        (needs_one, "needs arguments (x)", "wrap it in a function without arguments"),
        ("missing.jd", "missing.jd cannot be read", "missing.jd"),
    ],
)
def test_a_wrong_side_is_answered_in_words(given: Any, said: str, advice: str) -> None:
    with pytest.raises(JoulediffError) as caught:
        diff(lambda: None, given, **QUICK)
    assert said in caught.value.what
    assert advice in str(caught.value)


def test_a_builder_in_place_of_a_step_is_named() -> None:
    def build() -> Any:
        return lambda: None

    with pytest.raises(JoulediffError, match="it is a builder") as caught:
        diff(lambda: None, build, **QUICK)
    assert "step = build()" in str(caught.value.fix)


def test_a_function_beside_a_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\ndef build():\n    x = torch.ones(8, 8)\n    return lambda: x + 1\n")
    x = torch.ones(8, 8)
    found = diff(lambda: x + 1, str(program), **QUICK)
    assert found.b.label == "program"
    assert found.b.program == str(program)
    assert found.a.matched_share == found.b.matched_share == 1.0
