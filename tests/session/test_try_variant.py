"""Variants of a recorded PyTorch program: measured in alternation with it, with their outputs compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from joulediff.frameworks.jobs import LiveProgram, Variant, VariantCost
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from joulediff.pysource.programs import load_step
from joulediff.pysource.source_files import SourceFile
from joulediff.session.record import record

PROGRAM = """
import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
        self.twice = True

    def forward(self, x):
        y = self.layer(x)
        if self.twice:
            extra = self.layer(x)
        return torch.softmax(y, dim=-1, dtype=torch.float64).float()

def build():
    model = Model()
    x = torch.ones(4, 32)
    return lambda: model(x)
"""
TRAINING = """
import torch

def build():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.ones(4, 8)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()

    return step
"""


def try_with(folder: Path, text: str, change: Callable[[LiveProgram], Any]) -> Any:
    """Return what `change` returns for the recorded program."""
    file = folder / "varied_program.py"
    file.write_text(text)
    found: list[Any] = []
    record(
        load_step(str(file)),
        program=str(file),
        seconds=0.3,
        wait_s=0,
        cpu_watts=10,
        meter="estimated",
        replay=False,
        root=folder,
        then=lambda program: found.append(change(program)),
    )
    return found[0]


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("varied_program", None)
    torch.use_deterministic_algorithms(False)


def edited(program: LiveProgram, old: str, new: str) -> Variant:
    (file,) = program.read_source().files
    assert old in file.text
    return Variant((SourceFile(file.module, file.path, file.text.replace(old, new)),))


def names(run: Run) -> list[str]:
    return [op.name for op in run.ops]


def test_changed_source_runs_other_operators_with_the_same_outputs(tmp_path: Path) -> None:
    def change(program: LiveProgram) -> tuple[VariantCost, Run]:
        return program.try_variant(edited(program, "dim=-1, dtype=torch.float64", "dim=-1"), seconds=0.2)

    cost, run = try_with(tmp_path, PROGRAM, change)
    assert cost.difference is not None and cost.difference < 1e-5
    assert cost.is_measured and cost.before is not None and cost.after is not None
    assert names(run).count("aten::_to_copy") == 0
    assert names(run).count("aten::addmm") == 2


CACHING = """
import torch

class Table:
    def __init__(self):
        self.table = None

    def read(self):
        return torch.arange(64.0).cos()

def build():
    table, x = Table(), torch.ones(64)

    def step():
        return x * table.read()

    return step
"""


def test_a_cache_that_the_first_step_fills_is_no_work_of_the_changed_step(tmp_path: Path) -> None:
    cached = """
        if self.table is None:
            self.table = torch.arange(64.0).cos()
        return self.table
"""

    def change(program: LiveProgram) -> tuple[VariantCost, Run]:
        return program.try_variant(edited(program, "\n        return torch.arange(64.0).cos()\n", cached), seconds=0)

    cost, run = try_with(tmp_path, CACHING, change)
    assert cost.difference == 0.0
    assert names(run) == ["aten::mul"]


def test_other_outputs_are_seen(tmp_path: Path) -> None:
    def change(program: LiveProgram) -> tuple[VariantCost, Run]:
        return program.try_variant(edited(program, "torch.softmax(y,", "torch.softmax(2 * y,"), seconds=0)

    cost, _ = try_with(tmp_path, PROGRAM, change)
    assert cost.difference is not None and cost.difference > 1e-3
    assert not cost.is_measured


def test_a_leaf_is_set_and_put_back(tmp_path: Path) -> None:
    def change(program: LiveProgram) -> list[tuple[VariantCost, Run]]:
        set_false = program.try_variant(Variant(state={"model.twice": False}), seconds=0.3)
        return [set_false, program.try_variant(Variant(), seconds=0)]

    (cost, run), (_, again) = try_with(tmp_path, PROGRAM, change)
    assert names(run).count("aten::addmm") == 1 and cost.difference == 0.0
    assert names(again).count("aten::addmm") == 2


def test_a_switch_that_the_source_no_longer_sets_has_its_first_value(tmp_path: Path) -> None:
    name = "torch.deterministic.enabled"
    seen: list[bool] = []

    def change(program: LiveProgram) -> VariantCost:
        variant = edited(program, "torch.use_deterministic_algorithms(True)", "pass")
        cost, _ = program.try_variant(Variant(variant.files, first={name: False}), seconds=0)
        seen.append(torch.are_deterministic_algorithms_enabled())
        return cost

    cost = try_with(tmp_path, PROGRAM, change)
    assert name in cost.settings
    assert seen == [True]


def test_a_training_step_that_returns_nothing_is_compared_by_its_weights(tmp_path: Path) -> None:
    def change(program: LiveProgram) -> list[VariantCost]:
        path = "optimizer.param_groups[0]['foreach']"
        return [
            program.try_variant(edited(program, "foreach=False", "foreach=True"), seconds=0)[0],
            program.try_variant(edited(program, "foreach=False", "foreach=True, lr=0.5"), seconds=0)[0],
            program.try_variant(Variant(state={path: True}), seconds=0.3)[0],
        ]

    same, other, leaf = try_with(tmp_path, TRAINING, change)
    assert same.difference is not None and same.difference < 1e-6
    assert other.difference is not None and other.difference > 1e-3
    assert leaf.difference is not None and leaf.difference < 1e-6


def test_a_variant_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.session.live_program.STEP_LIMIT_S", 0.3)

    def change(program: LiveProgram) -> str:
        with pytest.raises(JoulediffError) as error:
            program.try_variant(edited(program, "extra = self.layer(x)", "while True: pass"), seconds=0.3)
        return error.value.what

    assert "did not end" in try_with(tmp_path, PROGRAM, change)
