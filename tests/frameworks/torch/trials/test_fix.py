"""A program with a fix: entries of its model's configuration from the start, settings while its step runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2Model

from joulediff.frameworks import recorder as fixes
from joulediff.frameworks.torch.models import find_holdings
from joulediff.frameworks.torch.trials.fix import fixed_step
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import ChildProcess
from joulediff.process.request import Request, from_text, to_text

Step = Callable[[], Any]
DETERMINISTIC = "torch.deterministic.enabled"
IDS = torch.arange(6).reshape(1, 6)


def build() -> Step:
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    config = GPT2Config(**sizes, activation_function="gelu_new", attn_implementation="eager")
    model = GPT2Model(config).eval()

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(IDS).last_hidden_state

    return step


def model_of(step: Step) -> Any:
    (model,) = find_holdings(step).models.values()
    return model


def test_an_entry_is_set_before_the_model_is_built() -> None:
    step = build()
    init, own = GPT2Config.__init__, "__init__" in vars(GPT2Config)
    found = fixed_step(step, build, {"config.activation_function": "relu"})
    assert GPT2Config.__init__ is init
    assert ("__init__" in vars(GPT2Config)) == own
    assert model_of(found).config.activation_function == "relu"
    assert type(model_of(found).h[0].mlp.act).__name__ == "ReLU"
    assert model_of(step).config.activation_function == "gelu_new", "the first program is as it was"
    assert found().shape == step().shape
    assert GPT2Config().activation_function == "gelu_new"


def test_an_entry_that_is_read_when_the_model_runs() -> None:
    step = build()
    found = fixed_step(step, build, {"config._attn_implementation": "sdpa"})
    assert model_of(found).config._attn_implementation == "sdpa"
    assert model_of(step).config._attn_implementation == "eager"
    assert torch.allclose(found(), step(), atol=1e-5)


def test_an_entry_that_no_configuration_has_is_refused() -> None:
    with pytest.raises(JoulediffError, match="no model of the program has windows in its configuration"):
        fixed_step(build(), build, {"config.windows": 3})
    with pytest.raises(JoulediffError, match="in its configuration"):
        fixed_step(lambda: None, lambda: lambda: None, {"config.activation_function": "relu"})


def test_a_build_that_fails_leaves_the_class_as_it_was() -> None:
    init = GPT2Config.__init__

    def fail() -> Step:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fixed_step(build(), fail, {"config.activation_function": "relu"})
    assert GPT2Config.__init__ is init


def test_an_inherited_init_is_inherited_again() -> None:
    class Config:
        def __init__(self, width: int = 3) -> None:
            self.width = width

    class Special(Config):
        pass

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Special()
            self.layer = torch.nn.Linear(self.config.width, 1)

    def build_special() -> Step:
        model = Model()
        return lambda: model.layer.weight.shape[1]

    found = fixed_step(build_special(), build_special, {"config.width": 5})
    assert found() == 5
    assert "__init__" not in vars(Special)
    assert Config().width == Special().width == 3


def test_settings_hold_while_the_step_runs() -> None:
    def step() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()

    found = fixed_step(step, lambda: step, {DETERMINISTIC: True, "torch.grad_enabled": False})
    assert found() == (True, False)
    assert step() == (False, True)


def test_settings_are_restored_after_an_exception() -> None:
    def step() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fixed_step(step, lambda: step, {DETERMINISTIC: True, "torch.grad_enabled": False})()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.is_grad_enabled()


def test_the_models_of_a_fixed_step_are_found() -> None:
    step = build()
    assert model_of(fixed_step(step, build, {DETERMINISTIC: True})) is model_of(step)


def test_a_setting_without_a_switch_is_an_error_of_the_step() -> None:
    found = fixed_step(lambda: None, lambda: lambda: None, {"torch.nobody": 1})
    with pytest.raises(JoulediffError, match=r"torch\.nobody cannot be changed"):
        found()


def test_the_environment_is_no_matter_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def step() -> None: ...

    assert fixes.fixed_step(step, lambda: step, {"env.OMP_NUM_THREADS": "1"}) is step
    assert fixes.fixed_step(step, lambda: step, {DETERMINISTIC: True, "env.A": "1"}) is not step
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(JoulediffError, match="uses no framework that is known"):
        fixes.fixed_step(step, lambda: step, {DETERMINISTIC: True})


def test_the_environment_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JD_OLD", "1")
    monkeypatch.setenv("JD_GONE", "1")
    fix: dict[str, Any] = {"env.JD_OLD": 2, "env.JD_NEW": "x", "env.JD_GONE": None, DETERMINISTIC: True}
    request = Request("p.py", RecordOptions(), fix=fix)
    assert from_text(to_text(request)) == request
    found = ChildProcess(Interpreter(sys.executable), request, to_text(request))._environment()
    assert found is not None
    assert (found["JD_OLD"], found["JD_NEW"], "JD_GONE" in found) == ("2", "x", False)
    assert "PATH" in found and DETERMINISTIC not in found
    request = Request("p.py", RecordOptions())
    assert ChildProcess(Interpreter(sys.executable), request, "")._environment() is None
