"""Matching of Hugging Face models with another attention or float type, exported, and in training."""

from __future__ import annotations

import itertools
import statistics
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import group_regions
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.models import MODELS, make_exported_step, make_step, make_training_step
from rewrites.programs import judge, record_step

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module", params=sorted(MODELS))
def eager(request: pytest.FixtureRequest) -> tuple[str, Run]:
    return request.param, record_step(make_step(request.param, attention="eager"))


def module_of(run: Run, op: int) -> str | None:
    found = run.ops[op]
    at = op if found.module is not None or found.forward is None else found.forward
    return run.ops[at].module or None


def check(a: Run, b: Run, regions: list[Region]) -> None:
    """Check that no region spans modules, nearly all operators are covered, and regions are small."""
    assert judge(a, b, regions, module_of).wrong == 0
    check_size(a, b, regions)


def check_size(a: Run, b: Run, regions: list[Region]) -> None:
    for run, ops in ((a, [op for each in regions for op in each.a]), (b, [op for each in regions for op in each.b])):
        assert len(ops) == len(set(ops))
        assert len(ops) >= 0.99 * len(run.ops)
    sizes = [max(len(each.a), len(each.b)) for each in regions]
    assert statistics.median(sizes) <= 2
    # Mixtral in bfloat16 sends some tokens to other experts, so the experts of a layer form one region.
    assert max(sizes) <= 13


OPTIONS: dict[str, dict[str, Any]] = {
    "sdpa": {"attention": "sdpa"},
    "bfloat16": {"attention": "eager", "dtype": torch.bfloat16},
    "sdpa in float16": {"attention": "sdpa", "dtype": torch.float16},
}


@pytest.mark.parametrize("other", sorted(OPTIONS))
def test_attention_and_float_types(eager: tuple[str, Run], other: str) -> None:
    name, a = eager
    b = record_step(make_step(name, **OPTIONS[other]))
    for tolerance in (1e-5, 1e-2):
        check(a, b, match_regions(a, b, tolerance=tolerance))


def test_itself(eager: tuple[str, Run]) -> None:
    name, a = eager
    b = record_step(make_step(name, attention="eager"))
    regions = match_regions(a, b)
    assert all(each.a == each.b for each in regions)
    assert sorted(op for each in regions for op in each.a) == list(range(len(a.ops)))
    assert max(len(each.a) for each in regions) == 1


@pytest.mark.parametrize("name", sorted(MODELS))
def test_exported(name: str) -> None:
    """An exported model has no modules, but its operators keep their order."""
    a = record_step(make_step(name, attention="eager"))
    b = record_step(make_exported_step(name, attention="sdpa"))
    regions = match_regions(a, b)
    check_size(a, b, regions)
    places = [(each.a[-1], each.b[-1]) for each in regions if each.kind == "equal" and a.ops[each.a[-1]].module]
    ordered = sorted(places)
    backwards = sum(y[1] < x[1] for x, y in itertools.pairwise(ordered))
    assert backwards <= 0.05 * len(places)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_training(name: str) -> None:
    a = record_step(make_training_step(name, attention="eager"))
    b = record_step(make_training_step(name, attention="sdpa"))
    for tolerance in (1e-5, 1e-2):
        regions = match_regions(a, b, tolerance=tolerance)
        assert judge(a, b, regions, module_of).wrong == 0
        assert {op for each in regions for op in each.a} == set(range(len(a.ops)))
        assert {op for each in regions for op in each.b} == set(range(len(b.ops)))
        assert statistics.median(max(len(each.a), len(each.b)) for each in regions) <= 2


def test_layers_are_one_row(eager: tuple[str, Run]) -> None:
    name, a = eager
    b = record_step(make_step(name))
    regions = match_regions(a, b)
    groups = group_regions(a, b, regions)
    assert len(groups) < 0.6 * len(regions)
    assert max(len(group.regions) for group in groups if group.kind == "equal") >= 3
