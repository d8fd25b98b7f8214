"""The systems of `benchmarks/systems`: two programs of a pair compute the same, and the judge finds bad matches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import paths
from invented import Tensor, draw, record, tanh
from joulediff.model.finding import Match, Region
from joulediff.model.run import Run
from joulediff.pysource.programs import load_step
from rewrites.layers import make_layers, record_layers
from rewrites.programs import record_step
from rewrites.repetitive import make_repetitive

pytest.importorskip("transformers")

SYSTEMS = paths.ROOT / "benchmarks" / "systems"
# Pairs of systems that need no other library. The programs of a file are compared with its first one.
PAIRS = {"llama": ("hf8", "plain8"), "gpt2": ("hf", "nano"), "bert": ("hf", "encoder", "encoder_fast")}


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"systems_{name}", SYSTEMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the scripts and programs of the folder after a test, and the paths that they add."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(SYSTEMS)):
            del sys.modules[name]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Make models tiny and in float32."""
    monkeypatch.setenv("SYSTEMS_SIZE", "tiny")
    monkeypatch.setenv("SYSTEMS_DTYPE", "float32")
    monkeypatch.setenv("SYSTEMS_FOLDER", str(tmp_path))
    fast = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(fast)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("file", sorted(PAIRS))
def test_the_programs_of_a_pair_compute_the_same(file: str) -> None:
    found: list[Any] = []
    for name in PAIRS[file]:
        found.append(load_step(f"{SYSTEMS / file}.py:{name}")())
    for other in found[1:]:
        assert other.shape == found[0].shape
        assert float((other - found[0]).norm() / found[0].norm()) < 1e-4


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("file", "a", "b"),
    [
        ("llama", ("llama:hf", "hf8"), ("llama:plain", "plain8")),
        ("gpt2", ("gpt2:hf", "hf"), ("gpt2:nano", "nano")),
        ("bert", ("bert:hf", "hf"), ("bert:encoder", "encoder")),
    ],
)
def test_tensors_with_the_same_name_are_equal(file: str, a: tuple[str, str], b: tuple[str, str]) -> None:
    labels = load_script("labels")
    runs = [record_step(load_step(f"{SYSTEMS / file}.py:{function}")) for _, function in (a, b)]
    named = [labels.label_values(run, system) for run, (system, _) in zip(runs, (a, b), strict=True)]
    both = named[0].keys() & named[1].keys()
    assert len(both) > 12
    for name in both:
        one, other = (run.signature_of(values[name]) for run, values in zip(runs, named, strict=True))
        assert one.count == other.count
        assert np.abs(np.subtract(one.sketch, other.sketch)).max() <= 4, name


def test_margins_of_equal_and_other_tensors() -> None:
    """Two equal runs: named tensors are 0 apart, and moved ones are left out."""
    margins = load_script("margins")
    x, w = Tensor(draw(4, 8)), Tensor(draw(8, 8, seed=1), kind="parameter")
    ones = Tensor(np.ones(8, dtype=np.float32), kind="parameter")

    def step() -> Any:
        y = x @ w
        return tanh((y * ones).view(32)), y.t()

    run = record(step)
    product = next(op for op in run.ops if op.name == "aten::mm")
    margins.label_values = lambda *_: {"product": product.outputs[0]}
    equal, others = margins.measure(run, run, "", "")
    assert [(gap, name) for gap, _, name in equal] == [(0.0, "product")]
    assert sorted(text.rpartition(" of ")[2].partition(" ")[0] for *_, text in others) == ["None", "aten::tanh"]
    assert all(gap > 0.1 for gap, *_ in others)


@pytest.fixture(scope="module")
def judge() -> Iterator[ModuleType]:
    yield load_script("judge")


@pytest.fixture(scope="module")
def run() -> Run:
    return record_layers(make_layers("llama", 2, tokens=16, width=32), "fused")


def judge_match(judge: ModuleType, monkeypatch: pytest.MonkeyPatch, a: Run, b: Run, regions: list[Region]) -> Any:
    monkeypatch.setattr(judge, "match_runs", lambda *_: Match(tuple(regions)))
    return judge.judge(a, b)


def test_a_complete_match(judge: ModuleType, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    alone = [Region(op.id, "equal", (op.id,), (op.id,), (), ()) for op in run.ops]
    found = judge_match(judge, monkeypatch, run, run, alone)
    assert [side["shares"]["matched"] for side in found["sides"]] == [1.0, 1.0]
    assert (found["largest"], found["large"], found["unequal"]) == ([1, 1], [], [])
    # Without joules, operators are counted; those of one side count only if they move data.
    kinds = [*alone[2:], Region(0, "unused", (0,), (), (), ()), Region(1, "movement", (1,), (), (), ())]
    sides = judge_match(judge, monkeypatch, run, run, kinds)["sides"]
    assert [side["shares"]["matched"] for side in sides] == [1 - 1 / len(run.ops), 1 - 2 / len(run.ops)]
    assert sides[1]["shares"]["in no region"] == 2 / len(run.ops)


def test_a_large_region(judge: ModuleType, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    ops = tuple(range(len(run.ops)))
    found = judge_match(judge, monkeypatch, run, run, [Region(0, "equal", ops, ops, (), (), "call")])
    count = len(judge.computing(run, ops))
    assert 15 < count < len(ops)
    assert found["largest"] == [count, count]
    assert [(each["ops"], each["basis"], each["attention"]) for each in found["large"]] == [
        ([count, count], "call", True)
    ]
    assert found["sides"][0]["shares"]["matched, in large regions"] == 1.0


def test_a_merged_product_with_a_part(judge: ModuleType, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    other = record_layers(make_layers("llama", 2, tokens=16, width=32), "eager")

    def products(each: Run, *parts: str) -> tuple[int, ...]:
        return tuple(op.id for op in each.ops if op.name == "aten::mm" and (op.region or "").endswith(parts))[
            : len(parts)
        ]

    merged = products(run, "gate+up")
    for parts, count in ((("/up",), 1), (("/gate", "/up"), 0)):
        region = Region(0, "equal", merged, products(other, *parts), (), ())
        found = judge_match(judge, monkeypatch, run, other, [region])["unequal"]
        assert [each["what"] for each in found] == ["products"] * count
    outputs = ((run.ops[merged[0]].outputs[0], other.ops[products(other, "/up")[0]].outputs[0]),)
    region = Region(0, "equal", merged, products(other, "/up"), (), outputs)
    found = judge_match(judge, monkeypatch, run, other, [region])["unequal"]
    assert [(each["what"], each["elements"]) for each in found] == [
        ("outputs", [1024, 512]),
        ("products", [1024, 512]),
    ]


def test_layers_that_are_matched_otherwise(judge: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_repetitive("layers", 9)
    ops = [replace(op, module=f"model.layers.{op.id // 3}.part{op.id % 3}") for op in plain.ops]
    run = replace(plain, ops=tuple(ops))
    alone = [Region(op.id, "equal", (op.id,), (op.id,), (), ()) for op in ops]

    def kinds_of_layers(regions: list[Region]) -> list[list[int]]:
        (stack,) = judge_match(judge, monkeypatch, run, run, regions)["layers"]
        assert stack["stack"] == "model.layers."
        return [each["layers"] for each in stack["kinds"]]

    assert kinds_of_layers(alone) == [[0, 1, 2]]
    assert kinds_of_layers([*alone[:3], Region(3, "equal", (3, 4), (3, 4), (), ()), *alone[5:]]) == [[0, 2], [1]]
    assert kinds_of_layers(alone[:6]) == [[0, 1], [2]]
