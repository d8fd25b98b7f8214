"""Conditions that differ between two measurements, and their effect on a diff."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import invented
from diagnosis_builders import costs, draw, measured
from invented import gelu, gelu_decomposed
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.conditions import compare_conditions
from joulediff.model.diff import ConditionDifference
from joulediff.model.measurement import DeviceState
from joulediff.model.run import Run, Setting
from run_builders import domain_energy, energy

X = draw(16, 32)
SETTINGS: dict[str, Setting] = {
    "device.cuda:0.name": "NVIDIA H200",
    "device.cuda:0.driver": "580.159.04",
    "device.cuda:0.schedule": "auto",
    "host.cpu": "Intel Xeon",
    "host.cores_usable": 16,
    "host.kernel": "6.1",
    "package.torch": "2.13.0",
}
BY_HAND = invented.record(lambda: gelu_decomposed(X))
BUILT_IN = invented.record(lambda: gelu(X))


def run_of(captured: Run = BUILT_IN, *, device: str = "cuda:0", **settings: Setting) -> Run:
    return measured(captured, costs({}), device=device, more_j=20.0, settings={**SETTINGS, **settings})


def with_measurement(run: Run, **changes: Any) -> Run:
    assert run.measurement is not None
    return replace(run, measurement=replace(run.measurement, **changes))


def with_domain(run: Run, **changes: Any) -> Run:
    assert run.measurement is not None
    (name,) = run.measurement.domains
    return with_measurement(run, domains={name: replace(run.measurement.domains[name], **changes)})


def with_state(run: Run, **changes: Any) -> Run:
    facts = {"power_limit_w": 700.0, "clock_max_mhz": 1980.0, "temperature_c": 45.0, **changes}
    return with_measurement(run, states=(DeviceState("gpu0", **facts),))


def names(a: Run, b: Run) -> list[tuple[str, bool]]:
    return [(each.name, each.serious) for each in compare_conditions(a, b)]


def test_alike_is_nothing_to_tell() -> None:
    assert compare_conditions(run_of(), run_of()) == ()


SERIOUS = {
    "card": (run_of(), run_of(**{"device.cuda:0.name": "NVIDIA A100"}), "cuda:0.name"),
    "driver": (run_of(), run_of(**{"device.cuda:0.driver": "570.1"}), "cuda:0.driver"),
    "power limit": (with_state(run_of()), with_state(run_of(), power_limit_w=500.0), "power limit of gpu0, W"),
    "largest clock": (with_state(run_of()), with_state(run_of(), clock_max_mhz=1200.0), "largest clock of gpu0, MHz"),
    "source": (run_of(), with_domain(run_of(), energy=energy(9.0, 0.1, "estimated")), "source of gpu0"),
    "meter": (run_of(), with_domain(run_of(), kind="power"), "meter of gpu0"),
    "metered card": (run_of(), with_domain(run_of(), device="NVIDIA A100"), "device of gpu0"),
    "domains": (run_of(), with_measurement(run_of(), domains={"cpu": domain_energy(9.0, 10e-3)}), "metered"),
    "no measurement": (run_of(), replace(run_of(), measurement=None), "the energy of a step"),
}


@pytest.mark.parametrize("case", SERIOUS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_serious_difference_leaves_no_verdict(case: str, swapped: bool) -> None:
    a, b, name = SERIOUS[case]
    # Programs that have a finding where conditions are alike.
    a = replace(a, **costly())
    assert diagnose(replace(run_of(), **costly()), run_of()).findings
    diff = diagnose(b, a) if swapped else diagnose(a, b)
    assert not diff.comparable
    assert diff.findings == () and diff.ratio is None and diff.delta_j is None and diff.explained_share is None
    assert name in [each.name for each in diff.condition_differences if each.serious]
    assert "finding" not in {row.verdict for row in diff.rows}


def costly() -> dict[str, Any]:
    run = run_of(BY_HAND)
    return {
        name: getattr(run, name)
        for name in ("ops", "values", "signatures", "frames", "kernels", "replays", "sources", "traced_s")
    }


def test_the_limits_are_not_a_matter_of_rounding() -> None:
    assert names(with_state(run_of()), with_state(run_of(), power_limit_w=699.0)) == []


def test_what_a_driver_does_not_tell_is_no_difference() -> None:
    assert names(with_state(run_of()), with_state(run_of(), power_limit_w=None, clock_max_mhz=None)) == []


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (run_of(), run_of(**{"package.torch": "2.12.0"}), "torch"),
        (run_of(), run_of(**{"host.kernel": "6.2"}), "host.kernel"),
        (with_state(run_of()), with_state(run_of(), temperature_c=75.0), "temperature of gpu0, °C"),
        (
            with_measurement(run_of(), clocks_mhz={"gpu0": 1980.0}),
            with_measurement(run_of(), clocks_mhz={"gpu0": 1500.0}),
            "clock of gpu0, MHz",
        ),
    ],
)
def test_told_and_still_comparable(a: Run, b: Run, name: str) -> None:
    assert names(a, b) == [(name, False)]
    assert diagnose(a, b).comparable


def test_a_library_that_one_side_does_not_load_is_no_condition() -> None:
    assert names(run_of(), run_of(**{"package.transformers": "5.0"})) == []


def test_how_the_host_waits_is_the_programs_choice() -> None:
    assert names(run_of(), run_of(**{"device.cuda:0.schedule": "spin"})) == []


@pytest.mark.parametrize(("device", "serious"), [("cpu", True), ("cuda:0", False)])
def test_another_processor_matters_to_what_runs_on_it(device: str, serious: bool) -> None:
    assert names(run_of(device=device), run_of(device=device, **{"host.cpu": "AMD"})) == [("cpu", serious)]


def test_serious_ones_come_first_and_each_once() -> None:
    b = run_of(**{"package.torch": "2.12.0", "device.cuda:0.driver": "570.1"})
    found = compare_conditions(run_of(), b)
    assert found[0] == ConditionDifference("cuda:0.driver", "580.159.04", "570.1", serious=True)
    assert [each.serious for each in found] == [True, False]


@pytest.mark.parametrize(
    ("minor", "major", "found"),
    [
        ((0.0, 3010.0), (0.0, 0.0), [("minor page faults of a step", False)]),
        ((0.0, 60.0), (0.0, 0.0), []),  # less than a percent of a step of 10 ms
        ((0.0, 0.0), (0.0, 2.0), [("major page faults of a step", False)]),
        ((None, 3010.0), (None, 0.0), []),
    ],
)
def test_page_faults_that_differ(minor: Any, major: Any, found: list[tuple[str, bool]]) -> None:
    a, b = (
        with_measurement(run_of(), step_s=10e-3, minor_faults=each, major_faults=other)
        for each, other in zip(minor, major, strict=True)
    )
    assert names(a, b) == names(b, a) == found
