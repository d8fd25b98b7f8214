"""The list of trials: each is a function from a draft to a draft, and the first that confirms a cause is the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis_builders import comparison_of, costs, draw, record
from invented import Tensor, tanh
from joulediff.diagnosis.build import make_cost
from joulediff.diagnosis.draft import REPLACEMENT_CONFIRMED, Draft
from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.trials.run_trials import TRIALS, run_trials
from joulediff.model.diff import Thresholds
from joulediff.model.finding import Cause
from joulediff.model.pair import Pair
from run_builders import energy

X, W = draw(16, 32), draw(32, 32, seed=1)


def step() -> Tensor:
    return tanh(X @ W)


def draft() -> Draft:
    """Return a draft that no program can be run for."""
    comparison = comparison_of(record(step, costs({"mm": 4.0})), record(step, costs({"mm": 2.0})))
    cost = make_cost(comparison, "a", Pair(energy(4.0), energy(2.0)), delta_j=2.0, times_s=Pair(None, None))
    lead = Lead("misconfiguration", Cause("setting", "torch.x", 1, 2, None, None), ())
    return Draft(comparison, Thresholds(), "a", "mm", cost, lead, leads=(lead,))


@pytest.mark.parametrize("trial", TRIALS)
def test_a_trial_that_cannot_be_made_leaves_the_draft(trial: object) -> None:
    made = draft()
    assert callable(trial)
    assert trial(made) is made


def test_no_trial_is_made_after_one_that_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def fail(each: Draft) -> Draft:
        made.append("fail")
        return each

    def confirm(each: Draft) -> Draft:
        made.append("confirm")
        return replace(each, proof=REPLACEMENT_CONFIRMED)

    monkeypatch.setattr("joulediff.diagnosis.trials.run_trials.TRIALS", (fail, confirm, fail))
    assert run_trials(draft()).confirmed
    assert made == ["fail", "confirm"]
