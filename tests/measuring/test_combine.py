"""Two measurements of the same step as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_builders import gpu_run
from joulediff.measuring.result import combine
from joulediff.model.energy import Energy
from joulediff.model.measurement import Condition, DomainEnergy, Measurement


def energy(joules: float, half_j: float = 0.1) -> Energy:
    return Energy(joules, joules - half_j, joules + half_j, "metered")


def domain(joules: float, power_w: float = 10.0, net_j: float | None = None) -> DomainEnergy:
    run = gpu_run()
    assert run.measurement is not None
    (any_domain, *_) = run.measurement.domains.values()
    net = None if net_j is None else energy(net_j)
    return replace(any_domain, energy=energy(joules), net_energy=net, power_w=power_w)


def measurement(joules: float, **changes: Any) -> Measurement:
    found = gpu_run().measurement
    assert found is not None
    facts: dict[str, Any] = {
        "step_s": 1.0,
        "repeats": 3,
        "steps": 30,
        "energy": energy(joules),
        "net_energy": energy(joules / 2),
        "domains": {"gpu0": domain(joules)},
        "trustworthy": True,
        "warnings": (),
        "clocks_mhz": {"gpu0": 1000.0},
        "cpu_s": 0.2,
    }
    return replace(found, **{**facts, **changes})


def test_the_width_of_both_turns_together_counts() -> None:
    wide = "the interval is ±6% after 1.0 s, wider than 5%: give it more time"
    each = replace(
        measurement(4.0),
        energy=Energy(4.0, 3.76, 4.24, "metered"),
        trustworthy=False,
        warnings=(wide, "hot"),
        wide=wide,
    )
    found = combine(each, each)
    assert (found.trustworthy, found.warnings, found.wide) == (True, ("hot",), None), "±4.2% together"
    wider = replace(each, energy=Energy(4.0, 3.0, 5.0, "metered"))
    found = combine(wider, wider)
    assert found.wide is not None and "±18%" in found.wide
    assert (found.trustworthy, found.warnings) == (False, (found.wide, "hot"))
    failed = replace(each, wide=None)
    assert combine(failed, each).trustworthy is False, "there was another reason"


def test_the_mean_of_two() -> None:
    a = measurement(4.0, step_s=1.0, warnings=("warm", "old"), domains={"gpu0": domain(4.0, 10.0, 2.0)})
    b = measurement(6.0, step_s=3.0, warnings=("old", "new"), domains={"gpu0": domain(6.0, 30.0, 4.0)}, cpu_s=0.4)
    found = combine(a, replace(b, clocks_mhz={"gpu0": 1200.0}))
    assert (found.energy.joules, found.step_s, found.cpu_s) == pytest.approx((5.0, 2.0, 0.3))
    assert (found.repeats, found.steps, found.clocks_mhz["gpu0"]) == (6, 60, 1100.0)
    assert found.warnings == ("warm", "old", "new")
    gpu = found.domains["gpu0"]
    assert gpu.net_energy is not None
    assert (gpu.energy.joules, gpu.net_energy.joules, gpu.power_w) == (5.0, 3.0, 20.0)
    assert found.trustworthy


NUMBERS = st.floats(-1e3, 1e3)
WIDTHS = st.floats(0, 1e2)


@given(NUMBERS, NUMBERS, WIDTHS, WIDTHS)
def test_the_interval_contains_both(first: float, second: float, first_half: float, second_half: float) -> None:
    a, b = measurement(0.0, energy=energy(first, first_half)), measurement(0.0, energy=energy(second, second_half))
    found = combine(a, b).energy
    assert found.low <= min(first, second) + 1e-9
    assert found.high >= max(first, second) - 1e-9
    assert found.joules == combine(b, a).energy.joules


def test_equal_measurements_are_surer_together() -> None:
    found = combine(measurement(4.0), measurement(4.0)).energy
    assert (found.high - found.low) / 2 == pytest.approx(0.1 / 2**0.5)


def test_what_one_of_them_lacks() -> None:
    both = {"gpu0": domain(4.0), "cpu": domain(1.0)}
    found = combine(measurement(5.0, domains=both), measurement(4.0, net_energy=None, cpu_s=None))
    assert found.domains.keys() == both.keys()
    assert found.domains["cpu"].energy == energy(1.0)
    assert not found.trustworthy
    assert (found.net_energy, found.cpu_s) == (None, None)
    more = combine(measurement(4.0), measurement(5.0, domains=both))
    assert more.domains.keys() == {"gpu0"}


@pytest.mark.parametrize("doubtful", [0, 1])
def test_one_that_is_not_trustworthy_makes_both_so(doubtful: int) -> None:
    pair = [measurement(4.0, trustworthy=at != doubtful) for at in (0, 1)]
    assert not combine(*pair).trustworthy


def test_page_faults_of_both() -> None:
    found = combine(measurement(4.0, minor_faults=0.0, major_faults=2.0), measurement(4.0, minor_faults=500.0))
    assert found.minor_faults == 250.0
    assert found.major_faults is None


def test_a_condition_that_failed_in_either_measurement_stays_failed() -> None:
    fine, busy = Condition("load", True, "0.1"), Condition("load", False, "1.3")
    other = Condition("load", True, "0.2", "gpu0")
    assert combine(measurement(4.0, conditions=(fine,)), measurement(4.0, conditions=(busy,))).conditions == (busy,)
    assert combine(measurement(4.0, conditions=(busy,)), measurement(4.0, conditions=(fine,))).conditions == (busy,)
    both = combine(measurement(4.0, conditions=(fine,)), measurement(4.0, conditions=(fine, other)))
    assert both.conditions == (fine, other)
