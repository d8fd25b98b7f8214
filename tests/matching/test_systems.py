"""The systems of `benchmarks/systems`: two programs of a pair compute the same, and the judge finds bad matches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import paths
from joulediff.model.finding import Match, Region
from joulediff.model.run import Run
from joulediff.pysource.programs import load_step
from rewrites.layers import make_layers, record_layers
from rewrites.repetitive import make_repetitive

pytest.importorskip("transformers")

SYSTEMS = paths.ROOT / "benchmarks" / "systems"
# Pairs of systems that need no other library. The programs of a file are compared with its first one.
PAIRS = {"llama": ("hf8", "plain8"), "gpt2": ("hf", "nano"), "bert": ("hf", "encoder", "encoder_fast")}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Load programs with tiny models in float32, and forget them and their neighbours afterwards."""
    monkeypatch.setenv("SYSTEMS_SIZE", "tiny")
    monkeypatch.setenv("SYSTEMS_DTYPE", "float32")
    monkeypatch.setenv("SYSTEMS_FOLDER", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    fast = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(fast)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(SYSTEMS)):
            del sys.modules[name]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("file", sorted(PAIRS))
def test_the_programs_of_a_pair_compute_the_same(file: str) -> None:
    found: list[Any] = []
    for name in PAIRS[file]:
        found.append(load_step(f"{SYSTEMS / file}.py:{name}")())
    for other in found[1:]:
        assert other.shape == found[0].shape
        assert float((other - found[0]).norm() / found[0].norm()) < 1e-4


@pytest.fixture(scope="module")
def judge() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("judge_of_systems", SYSTEMS / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("judge_of_systems", None)


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
