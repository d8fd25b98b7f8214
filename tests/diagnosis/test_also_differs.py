"""Settings that differ and that no trial confirmed: no cause of a finding, and listed beside the findings."""

from __future__ import annotations

from dataclasses import replace

from diagnosis_builders import LiveProgram, costs, draw, record
from invented import Tensor, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.model.diff import Diff
from joulediff.model.run import Run, Setting

X, W = draw(4, 4, name="x"), draw(4, 4, seed=1, name="w")


def product() -> Tensor:
    return X @ W


def two_products() -> Tensor:
    return tanh(X @ W) @ W


def dear(step: object = product, **settings: Setting) -> Run:
    run = record(step, costs({"mm": 9.0}), kernel=lambda op: f"slow_{op.name}")  # type: ignore[arg-type]
    return replace(run, settings=settings)


def cheap(step: object = product, **settings: Setting) -> Run:
    return replace(record(step, costs({"mm": 2.0})), settings=settings)  # type: ignore[arg-type]


def names(diff: Diff) -> list[str]:
    return [each.name for each in diff.also_differs]


def test_a_setting_of_recordings_is_no_cause() -> None:
    diff = diagnose(dear(**{"torch.x": 1}), cheap(**{"torch.x": 2}))
    (found,) = diff.findings
    assert (found.kind, found.cause.key, found.proof.word) == ("unknown", None, "observed")
    assert "also differs" in found.suggestion and "torch.x" not in found.suggestion
    assert any("torch.x" in text for text in found.cause.evidence)
    assert [(each.name, each.a, each.b) for each in diff.also_differs] == [("torch.x", 1, 2)]


def test_a_confirmed_setting_is_a_cause_and_not_listed() -> None:
    a, b = dear(**{"torch.x": 1, "torch.y": 1}), cheap(**{"torch.x": 2, "torch.y": 2})
    diff = diagnose(a, b, live={"a": LiveProgram(a, {"torch.x = 2": 2.0}), "b": LiveProgram(b)})
    assert [(each.cause.key, each.proof.word) for each in diff.findings] == [("torch.x", "cause confirmed")]
    assert names(diff) == ["torch.y"]


def test_the_line_that_sets_it_is_told_and_comes_first() -> None:
    a, b = dear(**{"torch.a": 1, "torch.x": 1}), cheap(**{"torch.a": 2, "torch.x": 2})
    diff = diagnose(replace(a, set_places={"torch.x": "hf.py:3:build"}), b)
    assert names(diff) == ["torch.x", "torch.a"]
    place = diff.also_differs[0].location_a
    assert place is not None and (place.file, place.line) == ("hf.py", 3)
    assert diff.also_differs[0].location_b is None


def test_variables_and_entries_of_configurations_differ_too_and_facts_do_not() -> None:
    facts = {"host.cpu": "x", "package.torch": "2", "env.OMP": "1", "model.m.config.act": "gelu", "model.m.config.q": 1}
    other = {"host.cpu": "y", "package.torch": "3", "env.OMP": "2", "model.m.config.act": "silu"}
    assert names(diagnose(dear(**facts), cheap(**other))) == ["config.act", "env.OMP"]


def test_rows_that_run_under_the_same_settings_are_one_finding() -> None:
    a, b = dear(two_products, **{"torch.x": 1}), cheap(two_products, **{"torch.x": 2})
    assert len(diagnose(a, b).findings) == 1
    assert diagnose(a, b).findings[0].cost.delta_j > 13.0
