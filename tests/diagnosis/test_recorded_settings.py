"""Settings and configurations that differ between two recordings, and the lines that set them."""

from __future__ import annotations

from typing import Any

import pytest

from joulediff.diagnosis.evidence.recorded_settings import config_place, differing_config, differing_settings, set_place
from joulediff.model.place import Place
from joulediff.model.run import Run, SourceText
from run_builders import RunBuilder


def test_settings_that_a_program_chooses() -> None:
    a = {"torch.num_threads": 1, "host.cpu": "x", "package.torch": "1", "model.m.training": True, "same": 3}
    b = {"torch.num_threads": 2, "host.cpu": "y", "package.torch": "2", "model.m.training": False, "same": 3}
    more = {"env.CUBLAS_WORKSPACE_CONFIG": ":16:8", "device.cuda:0.name": "H200", "torch.version.cuda": "12"}
    assert differing_settings(a, {**b, **more}) == {
        "torch.num_threads": (1, 2),
        "env.CUBLAS_WORKSPACE_CONFIG": (None, ":16:8"),
    }


def test_the_grad_mode_is_no_setting() -> None:
    a = {"torch.grad_enabled": True, "torch.inference_mode": False}
    assert differing_settings(a, {"torch.grad_enabled": False, "torch.inference_mode": True}) == {}


def run_with(**facts: Any) -> Run:
    return RunBuilder().build(**facts)


def test_entries_of_a_models_configuration_have_their_own_names() -> None:
    a = run_with(settings={"model.m.config.use_cache": True, "model.m.config.n": 1, "model.m.training": True})
    b = run_with(settings={"model.net.config.use_cache": False, "model.net.config.n": 1})
    assert differing_config(a, b) == {"use_cache": (True, False)}


@pytest.mark.parametrize(
    "note", ["_name_or_path", "_commit_hash", "_use_default_values", "_class_name", "_diffusers_version"]
)
def test_notes_in_a_configuration_about_where_it_came_from_are_no_difference(note: str) -> None:
    a = run_with(settings={f"model.m.config.{note}": "gpt2", "model.m.config._attn_implementation": "eager"})
    b = run_with(settings={f"model.m.config.{note}": "other", "model.m.config._attn_implementation": "sdpa"})
    assert differing_config(a, b) == {"_attn_implementation": ("eager", "sdpa")}
    assert differing_config(a, run_with(settings={"model.m.config._attn_implementation": "eager"})) == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("p.py:3:build", Place("p.py", 3, "build", "x = 1")),
        ("C:\\code\\p.py:12:<module>", Place("C:\\code\\p.py", 12, "<module>")),
        ("odd:name.py:3:f", Place("odd:name.py", 3, "f")),
        ("nothing", None),
        ("p.py:x", None),
    ],
)
def test_where_a_setting_is_set(text: str, place: Place | None) -> None:
    run = run_with(set_places={"torch.x": text}, sources=(SourceText("p.py", 3, "x = 1\n"),))
    assert set_place(run, "torch.x") == place
    assert set_place(run, "torch.y") is None


def test_where_an_entry_of_a_configuration_is_set() -> None:
    run = run_with(set_places={"model.m.config.use_cache": "p.py:3:build", "torch.x": "q.py:1:f"})
    assert config_place(run, "use_cache") == Place("p.py", 3, "build")
    assert config_place(run, "other") is None
