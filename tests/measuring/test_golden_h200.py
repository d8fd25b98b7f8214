"""Real traces of an H200 (`tests/golden/h200_operators.json`): the estimator on readings of a real sensor."""

import json
from dataclasses import replace

import pytest

import paths
from fakes import GPU, counter_domain
from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters.nvml import REPEAT_SHARE
from joulediff.measuring.repeater import StepLog
from joulediff.measuring.windows import joules_per_step
from joulediff.model.measurement import Reading

TRACES = json.loads((paths.GOLDEN / "h200_operators.json").read_text())["operators"]
CARD = replace(GPU, repeat_share=REPEAT_SHARE)


def sample_curve(run):
    return Curve.from_readings(CARD, [Reading("gpu0", "power", t, w) for t, w in run["samples"]])


def tick_curve(run):
    readings = []
    for early_s, late_s, joules in run["ticks"]:
        before_j = readings[-1].value if readings else joules
        readings += [Reading("gpu0", "counter", early_s, before_j), Reading("gpu0", "counter", late_s, joules)]
    return Curve.from_readings(counter_domain(0.1, repeat_share=REPEAT_SHARE), readings)


def log_of(run):
    times, steps = zip(*run["marks"], strict=True)
    return StepLog(list(times), list(steps))


@pytest.mark.parametrize("name", TRACES)
def test_samples_and_counter_agree_over_four_seconds(name):
    run = TRACES[name][0]
    stretch = [[0.5, 1.5, 2.5, 3.5, 4.5]]
    by_samples = joules_per_step(sample_curve(run), log_of(run), stretch)
    by_ticks = joules_per_step(tick_curve(run), log_of(run), stretch)
    assert by_samples.energy.joules == pytest.approx(by_ticks.energy.joules, rel=0.003)


@pytest.mark.parametrize("name", TRACES)
def test_less_than_a_second_is_within_two_percent_of_four(name):
    reference_j = joules_per_step(sample_curve(TRACES[name][0]), log_of(TRACES[name][0]), [[0.5, 4.5]]).energy.joules
    assert len(TRACES[name]) > 1
    for run in TRACES[name][1:]:
        found = joules_per_step(sample_curve(run), log_of(run), [[0.3, 0.95]], capped=name == "mm")
        assert found.energy.joules == pytest.approx(reference_j, rel=0.02)
        assert abs(found.energy.joules - reference_j) <= found.energy.half_j


def test_a_plain_window_from_rest_is_far_too_low():
    """The error of a plain window: counter before, 0.2 s of work, counter after."""
    ratios = []
    for runs in TRACES.values():
        reference_j = joules_per_step(sample_curve(runs[0]), log_of(runs[0]), [[0.5, 4.5]]).energy.joules
        for run in runs[1:]:
            shown_j, after_j = ([j for _, late_s, j in run["ticks"] if late_s <= edge_s][-1] for edge_s in (0.0, 0.2))
            ratios.append((after_j - shown_j) / float(log_of(run).steps_at(0.2)) / reference_j)
    assert sum(ratios) / len(ratios) < 0.85
    assert min(ratios) < 0.7
