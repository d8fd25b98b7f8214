"""Verdicts about the energy of a test, and the arguments of the mark."""

from __future__ import annotations

from typing import Any

import pytest

from joulediff.integrations.energy_limits import (
    Limit,
    TestEnergy,
    baseline_text,
    from_plain,
    judge_baseline,
    judge_limit,
    limit_text,
    of_batches,
    of_block,
    read_mark,
    to_plain,
)
from joulediff.model.energy import Energy, Source
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement


def joules(value: float, half: float, source: Source = "metered") -> Energy:
    return Energy(value, value - half, value + half, source)


def block(energy: Energy | None, *warnings: str) -> BlockMeasurement:
    return BlockMeasurement("t", 1, 0.1, 0.1, 0.1, energy, {}, 0.1, warnings)


@pytest.mark.parametrize(
    ("energy", "verdict"),
    [
        (joules(0.4, 0.05), "kept"),
        (joules(0.45, 0.05), "kept"),
        (joules(0.46, 0.05), "unsure"),
        (joules(0.54, 0.05), "unsure"),
        (joules(0.56, 0.05), "exceeded"),
        (Energy(0.6, 0.0, 0.7, "metered"), "unsure"),
        (None, "unsure"),
    ],
)
def test_a_limit_is_judged_by_the_whole_interval(energy: Energy | None, verdict: str) -> None:
    assert judge_limit(energy, 0.5) == verdict


@pytest.mark.parametrize(
    ("energy", "verdict"),
    [
        (joules(1.0, 0.02), "kept"),
        (joules(1.09, 0.01), "kept"),
        (joules(0.3, 0.01), "kept"),
        (joules(1.2, 0.01), "exceeded"),
        (joules(1.2, 0.18), "unsure"),
        (None, "unsure"),
    ],
)
def test_a_baseline_is_judged_beyond_both_intervals_and_the_tolerance(energy: Energy | None, verdict: str) -> None:
    assert judge_baseline(energy, joules(1.0, 0.05), 0.1) == verdict


@pytest.mark.parametrize(
    ("arguments", "named", "limit"),
    [
        ((), {}, Limit()),
        ((0.5,), {}, Limit(0.5)),
        ((), {"max": "500 mJ"}, Limit(0.5)),
        ((), {"max": "2kJ", "strict": True}, Limit(2000.0, strict=True)),
        ((), {"max": 1, "repeat": True}, Limit(1.0, most_runs=float("inf"))),
        ((), {"repeat": 5}, Limit(most_runs=5)),
        ((), {"repeat": False}, Limit()),
    ],
)
def test_marks(arguments: tuple[Any, ...], named: dict[str, Any], limit: Limit) -> None:
    assert read_mark(arguments, named) == limit


@pytest.mark.parametrize(
    ("arguments", "named", "what"),
    [
        ((), {"max": "5 W"}, "max='5 W', which is no energy"),
        ((), {"max": -1}, "which is no energy"),
        ((), {"max": 0}, "which is no energy"),
        ((), {"max": float("nan")}, "which is no energy"),
        ((), {"most": 1}, "no argument most"),
        ((1, 2), {}, "no argument 2"),
        ((), {"strict": "yes"}, "strict='yes'"),
        ((), {"repeat": -1}, "repeat=-1"),
        ((), {"repeat": "x"}, "repeat='x'"),
    ],
)
def test_marks_that_are_refused(arguments: tuple[Any, ...], named: dict[str, Any], what: str) -> None:
    with pytest.raises(JoulediffError, match=what) as caught:
        read_mark(arguments, named)
    assert caught.value.fix


def test_repeats_are_averaged_with_their_spread() -> None:
    steady = of_batches([(block(joules(1.0, 0.01)), 1), (block(joules(2.0, 0.02)), 2), (block(joules(4.0, 0.04)), 4)], is_shared=False)  # fmt: skip  # noqa: E501
    assert steady.runs == 7
    assert steady.energy is not None
    assert steady.energy.joules == pytest.approx(1.0)
    assert steady.energy.half_width_share == pytest.approx(0.01)
    assert steady.seconds == pytest.approx(0.3 / 7)
    swinging = of_batches([(block(joules(each, 0.01)), 1) for each in (1.0, 1.5, 0.8)], is_shared=False)
    assert swinging.energy is not None
    assert swinging.energy.low < 0.8 < 1.5 < swinging.energy.high


def test_an_unknown_energy_stays_unknown() -> None:
    assert of_block(block(None, "no readings"), is_shared=False) == TestEnergy(None, 0.1, 1, note="no readings")
    found = of_batches([(block(joules(1.0, 0.1)), 1), (block(None, "no readings"), 1)], is_shared=False)
    assert (found.energy, found.note) == (None, "no readings")


def test_a_shared_meter_gives_an_upper_bound_and_an_estimate_does_not_share() -> None:
    metered = of_block(block(joules(1.0, 0.1)), is_shared=True)
    assert metered.energy == Energy(1.0, 0.0, 1.1, "metered")
    assert metered.is_shared
    estimated = of_block(block(joules(1.0, 0.1, "estimated")), is_shared=True)
    assert estimated.energy == joules(1.0, 0.1, "estimated")
    assert not estimated.is_shared


def test_sentences() -> None:
    found = TestEnergy(joules(1.24, 0.02), 0.1, 1, "exceeded")
    assert limit_text(found, 0.5) == "the test used 1.240 J (1.220 J .. 1.260 J), more than its limit of 500.0 mJ"
    assert limit_text(TestEnergy(joules(0.5, 0.1), 0.1, 1, "unsure"), 0.5).startswith("the test may have used 500.0 mJ")
    assert "is not known (no readings)" in limit_text(TestEnergy(None, 0.1, 1, "unsure", "no readings"), 0.5)
    assert baseline_text(joules(1.24, 0.02), joules(0.94, 0.02), 0.1, "b.json") == (
        "the test used 1.240 J (1.220 J .. 1.260 J), 1.32x its baseline of 940.0 mJ (920.0 mJ .. 960.0 mJ) in b.json; "
        "the tolerance is 10%"
    )


@pytest.mark.parametrize(
    "found", [TestEnergy(joules(1.0, 0.1), 0.5, 3, "kept", "a note", True), TestEnergy(None, 0.5, 1)]
)
def test_plain_data_gives_the_energy_back(found: TestEnergy) -> None:
    assert from_plain(to_plain(found)) == found
