"""Small programs recorded from numpy arrays, and their matches by the names of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invented import Tensor, draw, record
from joulediff.matching.match_runs import match_regions
from joulediff.model.finding import Region
from joulediff.model.run import Run

Step = Callable[[], Any]
Shown = tuple[str, list[str], list[str]]
"""A region: its kind, and the names of its operators in the two runs."""


def given(name: str, *shape: int, seed: int) -> Tensor:
    return Tensor(draw(*shape, seed=seed), name=name)


X, W, V = given("x", 16, 32, seed=0), given("w", 32, 32, seed=1), given("v", 32, 32, seed=2)


def names(run: Run, ops: tuple[int, ...]) -> list[str]:
    return [run.ops[op].name.removeprefix("aten::") for op in ops]


def match_runs(a: Run, b: Run, **options: Any) -> list[Region]:
    """Return the regions of two runs, after a check that each operator is in one of them at most."""
    regions = match_regions(a, b, **options)
    for run, ops in ((a, [op for each in regions for op in each.a]), (b, [op for each in regions for op in each.b])):
        assert len(ops) == len(set(ops)), "an operator is in two regions"
        assert set(ops) <= set(range(len(run.ops)))
    assert [each.id for each in regions] == list(range(len(regions)))
    return regions


def show_regions(a: Run, b: Run, **options: Any) -> list[Shown]:
    """Return the regions by the names of their operators, without those that move data alike in both runs."""
    found = [(each.kind, names(a, each.a), names(b, each.b)) for each in match_runs(a, b, **options)]
    return [each for each in found if each[0] != "movement" or not (each[1] and each[2])]


def matched(first: Step, second: Step, **options: Any) -> tuple[Run, Run, list[Region]]:
    a, b = record(first), record(second)
    return a, b, match_runs(a, b, **options)


def shown(first: Step, second: Step, **options: Any) -> list[Shown]:
    return show_regions(record(first), record(second), **options)
