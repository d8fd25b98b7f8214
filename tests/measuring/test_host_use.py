"""Other programs, stolen CPU time and page faults, from invented readings; and that the real ones are read."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cli_builders import make_domain
from joulediff.measuring import host_use
from joulediff.measuring.host_use import (
    CpuUse,
    CpuWatch,
    PageFaults,
    judge_cpu,
    judge_host,
    judge_work,
    most_others,
    read_cpu_use,
    read_page_faults,
)
from joulediff.measuring.meters.meter import RealClock
from joulediff.model.measurement import Condition

STILL = CpuUse(100.0, 10.0, 1.0, delayed_s=5.0, switches=40)
ESTIMATE = make_domain(source="estimated")
PACKAGE = make_domain()
CARD = make_domain("gpu0")


@pytest.mark.parametrize(
    ("machine_s", "own_s", "cores"),
    [(2.0, 2.0, 0.0), (0.4, 0.0, 0.2), (2.0, 0.0, 1.0), (5.0, 1.0, 2.0), (1.0, 1.5, 0.0)],
)
def test_other_programs_on_the_cpu(machine_s: float, own_s: float, cores: float) -> None:
    found = judge_cpu(CpuUse(100.0, 10.0, 0.0), CpuUse(100.0 + machine_s, 10.0 + own_s, 0.0), 2.0)
    assert found.ok is (cores <= 0.25)
    assert found.value == f"{cores:.2f} cores busy"
    assert found.domain is None


@pytest.mark.parametrize(("stolen_s", "ok"), [(0.0, True), (0.1, True), (1.0, False)])
def test_time_stolen_by_the_host(stolen_s: float, ok: bool) -> None:
    found = judge_host(CpuUse(0.0, 0.0, 7.0), CpuUse(0.0, 0.0, 7.0 + stolen_s), 2.0)
    assert found.ok is ok
    assert found.value == f"{stolen_s / 2:.2f} cores"


def test_a_window_of_no_length_divides_by_nothing() -> None:
    use = CpuUse(1.0, 1.0, 1.0)
    assert judge_cpu(use, use, 0.0).ok
    assert judge_host(use, use, 0.0).ok


def test_cpu_use_only_grows() -> None:
    first, second = read_cpu_use(), read_cpu_use()
    assert second.machine_s >= first.machine_s > 0
    assert second.own_s >= first.own_s > 0
    assert second.stolen_s >= first.stolen_s >= 0


def judge_after(**gained: float) -> dict[str, Condition]:
    """Return the conditions by name of two seconds in which an estimate was measured."""
    after = replace(STILL, **{name: getattr(STILL, name) + more for name, more in gained.items()})
    return {each.name: each for each in judge_work(STILL, after, 2.0, [ESTIMATE])}


def test_two_busy_loops_of_others_disturb_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = judge_after(machine_s=4.0, own_s=1.4)["other programs on the CPU, at work"]
    assert not found.ok
    assert found.value == "1.30 cores busy"
    assert "other programs keep 1.3 cores busy" in str(found.advice)


def test_the_programs_own_work_is_not_that_of_others() -> None:
    assert judge_after(machine_s=4.0, own_s=4.0)["other programs on the CPU, at work"].ok


def test_time_stolen_at_work() -> None:
    assert not judge_after(stolen_s=1.0)["CPU time stolen by the host, at work"].ok


def test_waits_for_a_cpu_are_a_fact() -> None:
    found = judge_after(delayed_s=0.5, switches=300)["threads waiting for a CPU, at work"]
    assert found.ok
    assert found.value == "in 25% of the time, 150 involuntary switches of the program a second"


def test_without_pressure_information_only_switches_are_known() -> None:
    before, after = (replace(each, delayed_s=None) for each in (STILL, replace(STILL, switches=42)))
    found = judge_work(before, after, 2.0, [ESTIMATE])[-1]
    assert found.value == "1 involuntary switches of the program a second"


@pytest.mark.parametrize(
    ("domains", "cores", "limit"),
    [
        ([ESTIMATE], 2, 0.25),
        ([ESTIMATE], 64, 6.4),
        ([PACKAGE], 64, 0.25),
        ([PACKAGE, CARD], 64, 0.25),
        ([CARD], 64, math.inf),
        ([CARD, ESTIMATE], 64, math.inf),  # the estimate is not in the total
    ],
)
def test_the_work_of_others_that_is_allowed(domains: list[host_use.Domain], cores: int, limit: float) -> None:
    assert most_others(domains, cores) == limit


def test_pressure_of_an_unknown_form_is_not_known(tmp_path, monkeypatch):
    for text in ("", "some avg10=0.00", "some avg10=0.00 total=?"):
        (tmp_path / "cpu").write_text(text)
        monkeypatch.setattr(host_use, "_PRESSURE", tmp_path / "cpu")
        assert read_cpu_use().delayed_s is None
    (tmp_path / "cpu").write_text("some avg10=0.13 avg60=0.81 total=6734312\nfull avg10=0.00 total=0\n")
    assert read_cpu_use().delayed_s == pytest.approx(6.734312)


def test_a_watch_reads_what_grows() -> None:
    watch = CpuWatch(clock=RealClock())
    first, second = watch(), watch()
    assert second.own_s >= first.own_s > 0
    assert second.switches >= first.switches >= 0


def test_new_memory_is_counted_as_page_faults() -> None:
    pytest.importorskip("resource")
    first = read_page_faults()
    memory = bytearray(64 << 20)
    memory[::4096] = bytes(len(memory[::4096]))
    second = read_page_faults()
    assert isinstance(first, PageFaults) and isinstance(second, PageFaults)
    assert second.minor > first.minor
    assert second.major >= first.major
