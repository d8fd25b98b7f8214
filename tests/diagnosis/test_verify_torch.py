"""Matches of two programs in bfloat16 that are verified by running them: a real difference stays, drift does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from diagnosis_torch import draw
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.trials.transplant import Transplant
from joulediff.diagnosis.trials.verify_matches import verify_matches
from joulediff.matching.match_runs import match_runs
from joulediff.model.finding import Region
from joulediff.model.progress import ProgressListener
from joulediff.session.live_program import LocalProgram
from joulediff.session.record import record

Step = Callable[[], torch.Tensor]
QUICK: dict[str, Any] = {"seconds": 0.1, "wait_s": 0.0, "meter": "estimated", "replay": False}
LARGE = 32
X, W, V = (draw(64, 64, seed=seed).to(torch.bfloat16) for seed in range(3))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)


def verified(first: Step, second: Step) -> tuple[Comparison, Comparison]:
    """Record two steps in this process; return their comparison before and after its verification."""
    found: list[Comparison] = []
    options = {**QUICK, "root": Path(__file__).parent}

    def with_both(a: LocalProgram, b: LocalProgram) -> None:
        a.take_other(b.run)
        b.take_other(a.run)
        match = match_runs(a.run, b.run)
        before = Comparison(a.run, b.run, match.regions, divergences=match.divergences)
        found.extend([before, verify_matches(before, {"a": a, "b": b}, ProgressListener())])

    def with_first(a: LocalProgram) -> None:
        record(second, label="b", then=lambda b: with_both(a, b), **options)

    record(first, label="a", then=with_first, **options)
    return found[0], found[1]


def region_at(comparison: Comparison, ops: tuple[int, ...]) -> Region:
    return next(each for each in comparison.regions if each.a == ops)


def norm(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=epsilon)


def test_another_epsilon_stays_a_divergence() -> None:
    hidden = X @ W
    before, after = verified(lambda: norm(hidden, 1e-5) @ V, lambda: norm(hidden, 3e-3) @ V)
    (found,) = before.divergences
    assert before.a.ops[found.a[0]].name == "aten::native_layer_norm"
    (still,) = after.divergences
    assert still.a == found.a and still.executed == pytest.approx(found.difference, rel=0.3)
    assert region_at(after, found.a).basis == "drift"


def amplified(hidden: torch.Tensor) -> torch.Tensor:
    """Return a difference of large numbers: the rounding of the first sum is a large part of the result."""
    return ((hidden + LARGE) - LARGE) @ V


def test_amplified_drift_is_withdrawn() -> None:
    before, after = verified(
        lambda: amplified(X @ W @ V), lambda: amplified((X.float() @ W.float() @ V.float()).bfloat16())
    )
    (found,) = before.divergences
    assert before.a.ops[found.a[0]].name == "aten::sub"
    assert after.divergences == ()
    region = region_at(after, found.a)
    assert region.basis == "executed" and region.drift == 0.0
    others = [(each.basis, each.drift) for each in before.regions if each.a != found.a]
    assert others == [(each.basis, each.drift) for each in after.regions if each.a != found.a]


def test_other_weights_are_not_hidden_by_the_weights_of_one_side() -> None:
    """Both weights have one name, so a trial may take one for the other."""
    hidden = X @ W
    scale = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
    other = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        scale.weight.copy_(V)
        other.weight.copy_(V + 0.06 * draw(64, 64, seed=9))
    comparison, _ = verified(lambda: scale(hidden), lambda: other(hidden))
    region = next(each for each in comparison.regions if each.basis == "drift")
    for side in ("a", "b"):
        assert Transplant(comparison, region, side).feeds_unequal_constants()
    same, _ = verified(lambda: scale(hidden), lambda: scale(hidden))
    region = next(each for each in same.regions if each.kind == "equal")
    assert not Transplant(same, region, "a").feeds_unequal_constants()
