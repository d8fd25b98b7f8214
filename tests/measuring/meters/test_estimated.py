from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from joulediff.measuring.meters import estimated
from joulediff.measuring.meters.estimated import CHILDREN_EVERY_S, DEFAULT_WATTS_PER_CORE, open_estimated
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterUnavailable

CHILD_S = 0.1
# A live child shows its time in ticks of 10 ms, and two accounts round down.
SEEN_S = CHILD_S - 0.03
BUSY_CHILD = f"""
import sys, time
while time.process_time() < {CHILD_S}:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def pretend_cpu(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr(estimated, "cpu_model", lambda: model)


def test_one_counter_labelled_as_an_estimate() -> None:
    clock = FakeClock(3.0)
    meter = open_estimated(watts=5.0, clock=clock, cpu_s=lambda: 2.0)
    (domain,) = meter.domains
    assert (domain.name, domain.kind, domain.source) == ("cpu", "counter", "estimated")
    assert domain.resolution_j == pytest.approx(5e-6)
    (reading,) = meter.poll()
    assert (reading.domain, reading.kind, reading.time_s, reading.value) == ("cpu", "counter", 3.0, 10.0)


def test_the_read_takes_time() -> None:
    clock = FakeClock()

    def slow_cpu_s() -> float:
        clock.advance(0.001)
        return 1.0

    (reading,) = open_estimated(watts=5.0, clock=clock, cpu_s=slow_cpu_s).poll()
    assert (reading.time_s, reading.within_s) == (pytest.approx(0.001), pytest.approx(0.001))


def test_watts_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cpu(monkeypatch, "AMD EPYC 7763 64-Core Processor")
    meter = open_estimated(watts=7.5)
    assert meter.watts == 7.5
    assert meter.domains[0].note == "7.5 W a busy core, as given with --cpu-watts"
    assert meter.domains[0].device == "AMD EPYC 7763 64-Core Processor, 7.5 W a busy core assumed"


def test_a_model_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cpu(monkeypatch, "AMD EPYC 7763 64-Core Processor")
    meter = open_estimated()
    assert meter.watts == pytest.approx(280 / 64)
    assert "280 W design power over 64 cores" in (meter.domains[0].note or "")


@pytest.mark.parametrize(("model", "named"), [("Elbrus 8S", "Elbrus 8S"), ("", "an unknown CPU")])
def test_a_model_that_is_not_known(monkeypatch: pytest.MonkeyPatch, model: str, named: str) -> None:
    pretend_cpu(monkeypatch, model)
    meter = open_estimated()
    assert meter.watts == DEFAULT_WATTS_PER_CORE
    assert f"{named} is not in the table" in (meter.domains[0].note or "")


@pytest.mark.parametrize("watts", [0.0, -3.0, 10_000.0, float("inf"), float("nan")])
def test_watts_that_no_core_has(watts: float) -> None:
    with pytest.raises(MeterUnavailable, match="cannot be the power of one core") as caught:
        open_estimated(watts=watts)
    assert caught.value.fix


def test_the_counter_never_steps_back() -> None:
    seen_s = iter([1.0, 3.0, 2.5, 2.9, 3.2])
    meter = open_estimated(watts=2.0, clock=FakeClock(), cpu_s=lambda: next(seen_s))
    assert [meter.poll()[0].value for _ in range(5)] == pytest.approx([2.0, 6.0, 6.0, 6.0, 6.4])


@pytest.mark.parametrize("kernel_lists_children", [True, False])
def test_a_child_counts_while_it_runs_and_after(monkeypatch: pytest.MonkeyPatch, kernel_lists_children: bool) -> None:
    if not kernel_lists_children:
        monkeypatch.setattr(estimated, "_children_from_proc", lambda pid: None)
    clock = FakeClock()
    meter = open_estimated(watts=1.0, clock=clock)
    before_j, own_before_s = meter.poll()[0].value, time.process_time()
    command = [sys.executable, "-S", "-c", BUSY_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        clock.advance(CHILDREN_EVERY_S)
        own_s = time.process_time() - own_before_s
        running_j = meter.poll()[0].value
        child.communicate()
    ended_j = meter.poll()[0].value
    assert running_j - before_j - own_s >= SEEN_S
    assert ended_j - before_j - own_s >= SEEN_S
    assert ended_j >= running_j


def test_children_are_not_looked_for_at_every_poll() -> None:
    clock = FakeClock()
    meter = open_estimated(watts=1.0, clock=clock)
    looks = []
    meter._cpu_s._find_children = lambda: looks.append(clock.now()) or []  # type: ignore[attr-defined]
    for _ in range(10):
        meter.poll()
        clock.advance(CHILDREN_EVERY_S / 4)
    assert looks == pytest.approx([0.0, CHILDREN_EVERY_S, 2 * CHILDREN_EVERY_S])


def test_a_child_that_has_vanished_costs_nothing() -> None:
    clock = FakeClock()
    meter = open_estimated(watts=1.0, clock=clock)
    meter.poll()
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        process = psutil.Process(child.pid)
    meter._cpu_s._children = [process]  # type: ignore[attr-defined]
    assert meter.poll()[0].value > 0


def test_a_child_that_ends_unseen_does_not_stall_the_counter(monkeypatch):
    from joulediff.measuring.meters import estimated
    from joulediff.measuring.meters.scripted import FakeClock

    live_s = iter([0.0, 2.0, 5.0, 0.0, 1.0])  # a child ends unseen after the third look, another begins
    monkeypatch.setattr(estimated, "_ended_s", lambda: 0.0)
    monkeypatch.setattr(estimated, "_live_s", lambda child: next(live_s))
    used_s = estimated.ProcessTime(clock=FakeClock())
    used_s._children, used_s._looked_s = [object()], float("inf")
    before_s = estimated.time.process_time()
    found = [used_s() for _ in range(5)]
    spent_s = estimated.time.process_time() - before_s
    assert found[-1] - found[0] == pytest.approx(6.0, abs=spent_s + 0.01)
