"""Two measurements as one, what operators cost together, and a load on the scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_builders import gpu_run, replay, runs, with_replays
from joulediff.energy.ledger import Costs
from joulediff.energy.load_energy import LoadMeter, name_domain
from joulediff.measuring.result import combine
from joulediff.model.energy import Energy
from joulediff.model.measurement import DomainEnergy, Measurement
from joulediff.model.run import Run


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


@settings(max_examples=30)
@given(runs())
def test_costs_of_operators_sum_to_those_of_all(run: Run) -> None:
    costs, ops = Costs(run), range(len(run.ops))
    whole, parts = costs.of(ops), [costs.of([op]) for op in ops]
    known = [part.joules for part in parts if part is not None]
    assert (whole is None) == (not known)
    assert whole is None or sum(known) == pytest.approx(whole.joules, abs=1e-12)
    times = [costs.time_s([op]) for op in ops]
    assert costs.time_s(ops) == (None if None in times else pytest.approx(sum(t or 0.0 for t in times))) or not times
    launched = [run.kernels[kernel].name for op in ops for kernel in run.index.kernels[op]]
    assert costs.names(ops) == tuple(dict.fromkeys(launched)), "each once, in order"


def test_costs_of_replayed_operators() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 1e-3, 1), ("gemm", 2e-3, 0), rest_w=0.0)
    run = with_replays(run, replay(0, 1.0, call_s=4e-3), replay(1, 0.5, call_s=1e-3), calls={0: 0, 1: 1})
    costs = Costs(run)
    found = costs.of([0])
    assert found is not None and found.joules == pytest.approx(1.0)
    assert costs.names([0, 1]) == ("gemm", "add")
    assert costs.time_s([0]) == pytest.approx(4e-3)
    assert run.measurement is not None and costs.total == run.measurement.energy


def test_nothing_known_is_none() -> None:
    run = replace(gpu_run(), measurement=None)
    costs = Costs(run)
    assert (costs.of(range(len(run.ops))), costs.total, costs.time_s([0])) == (None, None, None)
    assert Costs(gpu_run()).of([]) is None


@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), ("cuda", "gpu0"), ("cuda:3", "gpu3"), ("xpu:1", "gpu1")])
def test_domains_of_devices(device: str, name: str) -> None:
    assert name_domain(device) == name


def test_scales_know_which_domains_see_a_device() -> None:
    domains = {"gpu0": domain(4.0), "cpu": domain(1.0), "dram0": replace(domain(1.0), counted=False)}
    load_meter = LoadMeter(measurement(5.0, domains=domains), None, None, lambda _: None)  # type: ignore[arg-type]
    assert load_meter.domains("cpu") == ["cpu", "dram0"]
    assert load_meter.domains("cuda:0") == ["gpu0"]
    assert load_meter.domains("cuda:1") == []
    assert load_meter.is_counted("cpu") and not load_meter.is_counted("cuda:1")
    assert LoadMeter(None, None, None, lambda _: None).domains("cpu") == []  # type: ignore[arg-type]
