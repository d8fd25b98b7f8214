"""Small programs of PyTorch, recorded and matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from joulediff.matching import match
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.programs import record_step

Step = Callable[[], Any]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


X, W, V = draw(16, 32), draw(32, 32, seed=1), draw(32, 32, seed=2)


def names(run: Run, ops: tuple[int, ...]) -> list[str]:
    return [run.ops[op].name.removeprefix("aten::") for op in ops]


def matched(first: Step, second: Step, **options: Any) -> tuple[Run, Run, list[Region]]:
    a, b = record_step(first), record_step(second)
    regions = match(a, b, **options)
    for ops, run in (
        (sorted(op for each in regions for op in each.a), a),
        (sorted(op for e in regions for op in e.b), b),
    ):
        assert len(ops) == len(set(ops)), "an operator is in two regions"
        assert set(ops) <= set(range(len(run.ops)))
    assert [each.id for each in regions] == list(range(len(regions)))
    return a, b, regions


def shown(first: Step, second: Step, **options: Any) -> list[tuple[str, list[str], list[str]]]:
    """Return the regions by the names of their operators, without those that move data alike."""
    a, b, regions = matched(first, second, **options)
    found = [(each.kind, names(a, each.a), names(b, each.b)) for each in regions]
    return [each for each in found if each[0] != "movement" or not (each[1] and each[2])]
