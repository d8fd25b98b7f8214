"""Attribution: the energy of a kernel by power × time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_builders import STEP_S, cpu_run, gpu_run, metered, odd_runs, replay, runs, with_replays
from joulediff.energy.attribution import ABOVE_SHARE, BELOW_SHARE, BURST, attribute, attribute_rest, idle_energy
from joulediff.energy.device_time import find_replays, find_work, has_trace, is_gpu, shared_times
from joulediff.energy.ledger import find_calls
from joulediff.model.energy import Energy
from joulediff.model.measurement import DeviceState
from joulediff.model.run import Kernel, Run
from joulediff.report.views.run.timeline import trace_activity
from run_builders import RunBuilder, domain_energy


def kernel(start_s: float, duration_s: float, device: str = "cuda:0") -> Kernel:
    return Kernel("k", "kernel", device, 0, start_s, duration_s, None, None, "none")


KERNELS = st.lists(
    st.builds(kernel, st.floats(0.0, 10.0), st.floats(0.0, 5.0), st.sampled_from(["cuda:0", "cuda:1"])), max_size=12
)


def known(energies: Sequence[Energy | None]) -> list[Energy]:
    return [energy for energy in energies if energy is not None]


def test_kernels_that_overlap_share_the_time() -> None:
    assert shared_times([kernel(0.0, 2.0), kernel(1.0, 2.0), kernel(5.0, 1.0)]) == pytest.approx([1.5, 1.5, 1.0])
    assert shared_times([kernel(0.0, 3.0), kernel(0.0, 3.0), kernel(1.0, 1.0)]) == pytest.approx([4 / 3, 4 / 3, 1 / 3])


def test_other_devices_take_no_time() -> None:
    assert shared_times([kernel(0.0, 2.0), kernel(0.0, 2.0, "cuda:1")]) == pytest.approx([2.0, 2.0])


def test_what_was_before_the_step_is_no_part_of_it() -> None:
    assert shared_times([kernel(-1.0, 3.0)]) == pytest.approx([2.0])


@given(KERNELS)
@settings(deadline=None)
def test_shared_times_sum_to_the_busy_time(kernels: list[Kernel]) -> None:
    times_s = shared_times(kernels)
    run = replace(RunBuilder().build(), kernels=tuple(kernels))
    for activity in trace_activity(run):
        own = [time_s for time_s, k in zip(times_s, kernels, strict=True) if k.device == activity.device]
        assert sum(own) == pytest.approx(activity.busy_s, abs=1e-9)
    for time_s, each in zip(times_s, kernels, strict=True):
        assert -1e-9 <= time_s <= each.duration_s + 1e-9


@given(KERNELS)
@settings(deadline=None)
def test_shared_times_are_those_of_a_plain_sum(kernels: list[Kernel]) -> None:
    edges = sorted({edge for k in kernels for edge in (k.start_s, k.start_s + k.duration_s)})
    expected = [0.0] * len(kernels)
    for a, b in pairwise(edges):
        running = [i for i, k in enumerate(kernels) if k.start_s <= a and b <= k.start_s + k.duration_s]
        for i in running:
            expected[i] += (b - a) / sum(kernels[j].device == kernels[i].device for j in running)
    assert shared_times(kernels) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_device_with_a_bad_time_has_no_times(bad: float) -> None:
    first, second, other = shared_times([kernel(0.0, bad), kernel(0.0, 1.0), kernel(0.0, 1.0, "cuda:1")])
    assert math.isnan(first)
    assert math.isnan(second)
    assert other == 1.0


def test_many_kernels_take_no_time_to_share() -> None:
    times_s = shared_times([kernel(i * 1e-6, 5e-6) for i in range(100_000)])
    assert sum(times_s) == pytest.approx(0.1, rel=1e-3)


def test_times_longer_than_the_step_are_scaled_to_it() -> None:
    work = find_work(gpu_run(("k", 15e-3, None), ("k", 5e-3, None)), "gpu0")
    assert work is not None
    assert work.times_s == pytest.approx((7.5e-3, 2.5e-3))
    assert work.idle_s == pytest.approx(0.0)


def test_the_host_s_time_is_that_of_the_replay() -> None:
    run = with_replays(cpu_run(4e-3, 2e-3), replay(0, 0.1, "cpu", call_s=1e-3), calls={0: 0})
    work = find_work(run, "cpu")
    assert work is not None
    assert work.times_s == pytest.approx((1e-3, 2e-3))


@pytest.mark.parametrize(
    ("traced_s", "call_s", "times_s"),
    [
        ((4e-3, 30e-3), 1e-3, (1e-3, 9e-3)),
        ((4e-3, 30e-3), 10e-3, (2.5e-3, 7.5e-3)),
        ((4e-3, 0.0), 20e-3, (10e-3, 0.0)),
    ],
)
def test_traced_times_too_long_for_the_step_leave_the_replayed_ones_alone(
    traced_s: tuple[float, float], call_s: float, times_s: tuple[float, float]
) -> None:
    run = with_replays(cpu_run(*traced_s), replay(0, 0.1, "cpu", call_s=call_s), calls={0: 0})
    work = find_work(run, "cpu")
    assert work is not None
    assert work.times_s == pytest.approx(times_s)
    assert work.idle_s == pytest.approx(0.0)


def test_a_domain_that_the_recording_does_not_show_has_no_work() -> None:
    run = gpu_run(("k", 1e-3, 0))
    assert has_trace(run)
    assert find_work(replace(run, kernels=(), traced_s=None), "gpu0") is None
    assert find_work(replace(run, kernels=()), "gpu0") is None, "an operator of this device, and none of its kernels"
    assert find_work(replace(run, measurement=None), "gpu0") is None
    assert find_work(run, "psys") is None
    assert find_work(run, "psys1") is None
    elsewhere = find_work(run, "gpu1")
    assert elsewhere is not None
    assert elsewhere.idle_s == STEP_S


@pytest.mark.parametrize(("name", "found"), [("gpu", True), ("gpu0", True), ("gpu12", True), ("cpu0", False)])
def test_which_domains_are_gpus(name: str, *, found: bool) -> None:
    assert is_gpu(name) == found


def test_rest_power_comes_from_the_measurement_then_from_replays() -> None:
    run = with_replays(gpu_run(("k", 1e-3, 0)), replay(0, 0.1, rest_w=80.0), calls={0: 0})
    work = find_work(run, "gpu0")
    assert work is not None
    assert work.rest is not None
    assert work.rest.power_w == 100.0
    assert run.measurement is not None
    unknown = replace(run, measurement=metered({"gpu0": domain_energy(5.0, STEP_S, None)}))
    work = find_work(unknown, "gpu0")
    assert work is not None
    assert work.rest is not None
    assert work.rest.power_w == 80.0


def test_replays_are_found_by_domain() -> None:
    made = replay(0, 0.1), replay(0, 0.2, "cpu"), replay(1, 0.3, "cpu")
    run = with_replays(gpu_run(("k", 1e-3, 0), ("k", 1e-3, 1), ("k", 1e-3, 2)), *made, calls={0: 0, 1: 2, 2: 0})
    assert find_replays(run, "gpu0") == [0, None, 0]
    assert find_replays(run, "cpu") == [1, 2, 1]


def test_power_times_time() -> None:
    # 5 J less 100 W over the 6 idle ms leave 4.4 J for 4 busy ms.
    first, second = known(attribute(gpu_run(("a", 1e-3, None), ("b", 3e-3, None)), "gpu0"))
    assert first.joules == pytest.approx(1.1)
    assert second.joules == pytest.approx(3.3)
    assert first.source == "attributed"
    assert first.low == pytest.approx(1.1 * (1 - BELOW_SHARE))
    assert first.high == pytest.approx(1.1 * (1 + ABOVE_SHARE))


def test_a_kernel_draws_no_less_than_at_rest_and_no_more_than_the_device_can() -> None:
    run = gpu_run(("a", 4e-3, None), joules=1.2)
    assert run.measurement is not None
    (found,) = known(attribute(run, "gpu0"))
    assert found.joules == pytest.approx(0.6)
    assert found.low == pytest.approx(99.0 * 4e-3)
    limited = replace(run.measurement, states=(DeviceState("gpu0", power_limit_w=120.0),))
    (found,) = known(attribute(replace(run, measurement=limited), "gpu0"))
    assert found.high == pytest.approx(BURST * 120.0 * 4e-3)


def test_the_parts_of_a_long_step_have_their_own_power() -> None:
    run = gpu_run(("a", 5e-3, None), ("b", 5e-3, None))
    assert run.measurement is not None
    profiled = replace(run, traced_s=10e-3, measurement=replace(run.measurement, profiles={"gpu0": (200.0, 600.0)}))
    first, second = known(attribute(profiled, "gpu0"))
    assert first.joules == pytest.approx(5.0 / 4)
    assert second.joules == pytest.approx(5.0 * 3 / 4)


@pytest.mark.parametrize("bad", [(), (math.nan, 1.0), (-1.0, 1.0), (0.0, 0.0), (math.inf, 1.0)])
def test_a_profile_without_valid_powers_is_ignored(bad: tuple[float, ...]) -> None:
    run = gpu_run(("a", 1e-3, None), ("b", 3e-3, None))
    assert run.measurement is not None
    odd = replace(run, measurement=replace(run.measurement, profiles={"gpu0": bad}))
    assert attribute(odd, "gpu0") == attribute(run, "gpu0")


def test_an_operator_that_began_at_no_time_has_no_part_of_the_profile() -> None:
    """Its replay has the time it takes."""
    run = with_replays(cpu_run(1e-3), replay(0, 0.1, "cpu", call_s=1e-3), calls={0: 0})
    lost = replace(run, traced_s=4e-3, kernels=tuple(replace(each, start_s=math.nan) for each in run.kernels))
    assert lost.measurement is not None
    profiled = replace(lost, measurement=replace(lost.measurement, profiles={"cpu": (200.0, 600.0)}))
    assert attribute(profiled, "cpu") == attribute(lost, "cpu")
    assert known(attribute(profiled, "cpu"))


def test_the_host_draws_the_power_of_the_step() -> None:
    (found,) = known(attribute(cpu_run(2e-3, joules=1.0), "cpu"))
    assert found.joules == pytest.approx(0.2)


def rest_of(run: Run) -> dict[int, Energy]:
    work = find_work(run, "gpu0")
    assert work is not None
    replayed = {i: energy for call in find_calls(run, "gpu0", work) for i, energy in call.kernels.items()}
    return attribute_rest(run, "gpu0", work, replayed)


def test_operators_that_were_not_replayed_share_the_remaining_energy() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 1e-3, 1), ("mul", 3e-3, 2), ("cat", 1e-3, 3))
    found = rest_of(with_replays(run, replay(0, 1.8), replay(3, 0.1), calls={0: 0, 3: 1}))
    # 5 J less 100 W x 3 idle ms, 2 J and 0.2 J leave 2.5 J for 4 ms: 625 W, between the 200 W and 1000 W replayed.
    assert found.keys() == {1, 2}
    assert found[1].joules == pytest.approx(2.5 / 4)
    assert found[2].joules == pytest.approx(2.5 * 3 / 4)
    assert found[2].low == pytest.approx(found[2].joules * (1 - BELOW_SHARE))
    assert found[2].high == pytest.approx(found[2].joules * (1 + ABOVE_SHARE))


@pytest.mark.parametrize(("metered_j", "watts"), [(2.6, 1.9 / 3e-3), (40.0, 39.3 / 3e-3), (1.5, 0.8 / 3e-3)])
def test_it_draws_no_more_and_no_less_than_what_was_replayed_or_the_whole(metered_j: float, watts: float) -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 1e-3, 1), joules=metered_j)
    # 1.2 J + 100 W x 2 ms are 700 W; the whole device draws what is metered, less 0.7 J for 7 ms of idle, in 3 ms.
    found = rest_of(with_replays(run, replay(0, 1.2), calls={0: 0}))
    assert found[1].joules == pytest.approx(watts * 1e-3)


@given(runs())
@settings(deadline=None)
def test_a_gpu_s_parts_sum_to_the_meter(run: Run) -> None:
    assert run.measurement is not None
    for name, domain in run.measurement.domains.items():
        work, found = find_work(run, name), known(attribute(run, name))
        if work is None or not found or not is_gpu(name):
            continue
        idle = idle_energy(domain.energy, work)
        assert idle is not None
        assert idle.joules + sum(e.joules for e in found) == pytest.approx(domain.energy.joules, rel=1e-9)
        assert len(found) == len(work.kernels)


@given(runs(), st.floats(1.0, 3.0))
@settings(deadline=None)
def test_more_energy_gives_no_kernel_less(run: Run, times: float) -> None:
    found: Any = run.measurement
    more = {
        n: replace(d, energy=Energy(d.energy.joules * times, 0.0, 1e3, "metered")) for n, d in found.domains.items()
    }
    for name in more:
        before = attribute(run, name)
        after = attribute(replace(run, measurement=replace(found, domains=more)), name)
        for a, b in zip(before, after, strict=True):
            assert (a is None) == (b is None)
            assert a is None or b is None or a.joules <= b.joules * (1 + 1e-12) + 1e-15


@given(odd_runs())
@settings(deadline=None)
def test_odd_runs_are_survived(run: Run) -> None:
    assert run.measurement is not None
    for name in run.measurement.domains:
        assert len(attribute(run, name)) == len(run.kernels)
