"""Replay on the host and on several GPUs: each operator in the domains that measure its device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import GPU
from joulediff.energy.load_energy import BurstMeter
from joulediff.energy.replay import Replaying
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.measurement import IdlePower
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run
from replay_fakes import ADD, FULL_MHZ, MM, REST_W, CardMeter, FakeCard, FakeReplayer, Work, holds
from run_builders import RunBuilder, domain_energy, energy, measurement

WORK = Work(90.0, 50e-6)
HOST_REST_W = 20.0


def replay_on_host(**facts: Any) -> tuple[Run, int]:
    """Return three calls of one operator replayed on a host with two meters, and the number of measured operators."""
    clock, made = FakeClock(), RunBuilder("cpu")
    host = FakeCard(clock, limit_w=None, rest_w=HOST_REST_W)
    for _ in range(3):
        made.kernel("mm", WORK.call_s, op=made.op("mm", inputs=[made.value()]))
    domains = {name: domain_energy(1.0, 1e-2, HOST_REST_W, **facts) for name in ("cpu0", "dram0")}
    run = made.build(measurement=measurement(1e-2, domains={**domains, "gpu0": domain_energy(1.0, 1e-2)}))
    meters = [CardMeter(host, replace(GPU, name=name)) for name in domains]
    burst_meter = BurstMeter(meters, clock=clock, cpu_s=lambda: 2 * clock.now())
    going = Replaying(run, FakeReplayer(run, {"mm": WORK}, {"cpu": host}), burst_meter, clock, ProgressListener())
    going.go()
    return going.result(), going.measured


@pytest.mark.parametrize("source", ["metered", "estimated"])
def test_operators_of_the_host_in_every_domain_that_sees_them(source: Any) -> None:
    found, measured = replay_on_host(energy=energy(1.0, 0.01, source))
    assert [row.domain for row in found.replays] == ["cpu0", "dram0"]
    assert {op.replay for op in found.ops} == {0}
    assert measured == 1
    for row in found.replays:
        assert holds(row, WORK.energy_j(rest_w=HOST_REST_W))
        assert (row.source, row.rest_w) == ("replayed" if source == "metered" else "estimated", HOST_REST_W)
        assert row.call_s == pytest.approx(WORK.call_s, rel=0.01)
        assert row.cpu_s == pytest.approx(2 * WORK.call_s, rel=0.01)
        assert row.note is None


def half_j(row: Replay) -> float:
    assert row.energy_j is not None and row.high_j is not None
    return row.high_j - row.energy_j


def test_the_doubt_about_the_idle_host_is_in_every_call() -> None:
    sure, _ = replay_on_host()
    unsure, _ = replay_on_host(idle=IdlePower(HOST_REST_W, HOST_REST_W - 10, HOST_REST_W + 10, 0.0, 1.0))
    assert half_j(unsure.replays[0]) > half_j(sure.replays[0])
    assert half_j(unsure.replays[0]) >= 10 * WORK.call_s * 0.99


def test_without_idle_power_all_of_the_power_is_the_operators() -> None:
    found, _ = replay_on_host(idle=None, net_energy=None)
    assert found.replays[0].rest_w == 0.0
    assert holds(found.replays[0], WORK.power_w * WORK.call_s)


def test_what_counts_in_the_total_comes_first() -> None:
    clock, made, works = FakeClock(), RunBuilder(), {"mm": WORK, "add": ADD}
    cards = {"cpu": FakeCard(clock, limit_w=None, rest_w=HOST_REST_W), "cuda:0": FakeCard(clock)}
    for name, device, seconds in (("mm", "cpu", 1e-3), ("add", "cuda:0", ADD.call_s)):
        made.kernel(name, seconds, op=made.op(name, device=device), device=device)
    domains = {"gpu0": domain_energy(1.0, 1e-2), "cpu": domain_energy(1.0, 1e-2, HOST_REST_W, counted=False)}
    run = made.build(measurement=measurement(1e-2, domains=domains))
    meters = [CardMeter(cards["cuda:0"]), CardMeter(cards["cpu"], replace(GPU, name="cpu"))]
    going = Replaying(run, FakeReplayer(run, works, cards), BurstMeter(meters, clock=clock), clock, ProgressListener())
    going.go()
    assert [row.domain for row in going.result().replays] == ["gpu0", "cpu"]
    assert going.measured == 2


def test_two_cards_each_with_its_own_rest_and_clock() -> None:
    clock, made, works = FakeClock(), RunBuilder(), {"mm": MM, "add": ADD}
    cards = {"cuda:0": FakeCard(clock), "cuda:1": FakeCard(clock, rest_w=80.0)}
    for device in cards:
        for name in works:
            made.kernel(name, works[name].call_s, op=made.op(name, device=device), device=device)
    meters = [CardMeter(card, replace(GPU, name=f"gpu{i}")) for i, card in enumerate(cards.values())]
    run = made.build(
        measurement=measurement(
            2e-3,
            domains={f"gpu{i}": domain_energy(0.5, 2e-3) for i in range(2)},
            clocks_mhz={"gpu0": FULL_MHZ, "gpu1": FULL_MHZ},
            states=[state for meter in meters for state in meter.states()],
        )
    )
    going = Replaying(run, FakeReplayer(run, works, cards), BurstMeter(meters, clock=clock), clock, ProgressListener())
    going.go()
    found = going.result()
    assert sorted((found.ops[row.op].device, row.domain) for row in found.replays) == [
        ("cuda:0", "gpu0"),
        ("cuda:0", "gpu0"),
        ("cuda:1", "gpu1"),
        ("cuda:1", "gpu1"),
    ]
    for row in found.replays:
        rest_w = REST_W if row.domain == "gpu0" else 80.0
        assert row.rest_w == pytest.approx(rest_w)
        assert holds(row, works[found.ops[row.op].name].energy_j(rest_w=rest_w))
        assert (row.clock_mhz, row.note) == (FULL_MHZ, None)
