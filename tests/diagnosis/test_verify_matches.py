"""Which matches are verified by execution, and what follows from the distance of the outputs on the same tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis_builders import LiveProgram, comparison_of, costs, draw, record
from invented import Tensor, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.trials.verify_matches import LEAST, MAX_RUNS, verify_matches
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Divergence, Region
from joulediff.model.progress import ProgressListener

X, W = draw(16, 32), draw(32, 32, seed=1)


def step() -> Tensor:
    hidden = X
    for _ in range(12):
        hidden = tanh(hidden @ W)
    return hidden


RUN = record(step, costs({}), device="cpu")
PLAIN = comparison_of(RUN, RUN)
EQUAL = [each for each in PLAIN.regions if each.kind == "equal"]


def doubtful(*regions: Region, difference: float = 0.03) -> Comparison:
    """Return a comparison in which these regions are farther apart than rounding explains."""
    ids = {each.id for each in regions}
    drifted = [replace(each, basis="drift", drift=difference) if each.id in ids else each for each in PLAIN.regions]
    found = tuple(Divergence(each.a, each.b, difference, 0.001) for each in regions)
    return replace(PLAIN, regions=tuple(drifted), divergences=found)


def verify(comparison: Comparison, a: LiveProgram, b: LiveProgram) -> Comparison:
    return verify_matches(comparison, {"a": a, "b": b}, ProgressListener())


def program(answer: float | str = "it cannot run") -> LiveProgram:
    return LiveProgram(RUN, {"compare": answer})


@pytest.mark.parametrize(
    ("difference", "executed", "is_withdrawn"),
    [
        (0.03, 0.0, True),
        (0.03, 0.9 * LEAST, True),
        (0.03, 1.1 * LEAST, False),
        (0.03, 0.03, False),
        # On equal inputs most of the difference is left: it did not come from the inputs.
        (1.5 * LEAST, 0.9 * LEAST, False),
        (0.03, float("nan"), False),
    ],
)
def test_only_a_difference_that_came_from_the_inputs_is_withdrawn(
    difference: float, executed: float, is_withdrawn: bool
) -> None:
    region = EQUAL[3]
    found = verify(doubtful(region, difference=difference), program(), program(executed))
    verified = found.by_id[region.id]
    if is_withdrawn:
        assert found.divergences == ()
        assert (verified.basis, verified.drift) == ("executed", executed)
    else:
        (stays,) = found.divergences
        assert stays.executed == pytest.approx(executed, nan_ok=True)
        assert (verified.basis, verified.drift) == ("drift", difference)
    assert [each for each in found.regions if each.id != region.id] == [
        each for each in PLAIN.regions if each.id != region.id
    ]


def test_a_region_of_unknown_drift_is_verified() -> None:
    unknown = replace(EQUAL[2], drift=None)
    regions = tuple(unknown if each.id == unknown.id else each for each in PLAIN.regions)
    comparison = replace(PLAIN, regions=regions)
    assert verify(comparison, program(), program(0.0)).by_id[unknown.id].basis == "executed"
    assert verify(comparison, program(), program(0.5)) == comparison


def test_the_other_side_is_tried_if_one_cannot_run() -> None:
    a, b = program(0.0), program()
    assert verify(doubtful(EQUAL[0]), a, b).divergences == ()
    assert a.asked and b.asked


def test_a_match_that_cannot_be_run_stays() -> None:
    comparison = doubtful(EQUAL[0])
    assert verify(comparison, program(), program()) == comparison

    class Ended(LiveProgram):
        def compare_job(self, job: object) -> None:  # type: ignore[override]
            raise JoulediffError("the program ended")

    assert verify(comparison, Ended(RUN), Ended(RUN)) == comparison
    assert verify_matches(comparison, {"a": program(0.0)}, ProgressListener()) is comparison


def test_only_doubtful_regions_are_run_and_each_row_first() -> None:
    b = program(0.0)
    verify(PLAIN, program(), b)
    assert b.asked == []
    products = [each for each in EQUAL if RUN.ops[each.a[0]].name == "aten::mm"]
    activations = [each for each in EQUAL if RUN.ops[each.a[0]].name == "aten::tanh"]
    found = verify(doubtful(*products, activations[-1]), program(), b)
    assert b.asked == ["compare"] * MAX_RUNS
    assert found.by_id[activations[-1].id].basis == "executed"
    assert len(found.divergences) == len(products) + 1 - MAX_RUNS


def test_a_diff_of_live_programs_verifies_its_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def verified(comparison: Comparison, live: object, _: object) -> Comparison:
        asked.append(live)
        return replace(comparison, divergences=(Divergence((0,), (0,), 0.03, 0.001, 0.029),))

    monkeypatch.setattr("joulediff.diagnosis.compare.verify_matches", verified)
    live = {"a": program(), "b": program()}
    diff = diagnose(RUN, RUN, live=live)
    assert asked == [live]
    assert [each.executed for each in diff.divergences] == [0.029]
