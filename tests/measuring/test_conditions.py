from __future__ import annotations

import os
import subprocess
import sys

import pytest

from joulediff.measuring.conditions import judge_devices
from joulediff.model.measurement import Condition, DeviceState

NO_SUCH_PID = 2**22 + 1  # beyond the largest pid Linux gives


def at_rest(**facts: object) -> DeviceState:
    return DeviceState("gpu0", **{"clock_mhz": 1980.0, "temperature_c": 40.0, **facts})  # type: ignore[arg-type]


def judge(before: DeviceState, after: DeviceState, *, idle: bool = True) -> dict[str, Condition]:
    return {c.name: c for c in judge_devices([before], [after], idle=idle)}


def test_a_resting_device_holds_all_conditions() -> None:
    found = judge(at_rest(), at_rest())
    assert set(found) == {"throttling", "other programs on the device", "temperature", "clock"}
    assert all(c.ok and c.domain == "gpu0" for c in found.values())


def test_no_device_has_no_conditions() -> None:
    assert judge_devices([], [], idle=True) == []


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("reason", ["thermal", "hw slowdown", "sw thermal"])
def test_throttling_is_never_fine(reason: str, idle: bool) -> None:
    found = judge(at_rest(), at_rest(throttle=(reason,)), idle=idle)["throttling"]
    assert not found.ok
    assert found.value == reason
    assert "gpu0" in str(found.advice)
    assert reason in str(found.advice)


def test_the_power_cap_is_a_fault_at_rest_and_a_fact_at_work() -> None:
    capped = at_rest(throttle=("power cap",))
    assert not judge(capped, capped, idle=True)["throttling"].ok
    assert judge(capped, capped, idle=False)["throttling"].ok
    assert judge(capped, capped, idle=False)["throttling"].value == "none"


def test_at_work_the_power_cap_does_not_hide_another_reason() -> None:
    hot = at_rest(throttle=("power cap", "thermal"))
    found = judge(hot, hot, idle=False)["throttling"]
    assert not found.ok
    assert found.value == "thermal"


def test_another_program_on_the_device_is_named() -> None:
    parent = os.getppid()
    found = judge(at_rest(), at_rest(other_pids=(parent, NO_SUCH_PID)))["other programs on the device"]
    assert not found.ok
    assert str(parent) in found.value
    assert f"{NO_SUCH_PID} (not visible from here)" in found.value
    assert "its energy is measured with yours" in str(found.advice)


def test_our_own_process_and_its_children_are_not_other_programs() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ours = at_rest(other_pids=(os.getpid(), child.pid))
        found = judge(ours, ours)["other programs on the device"]
        child.communicate(b"\n")
    assert found.ok
    assert found.value == "none"


def test_a_crowd_is_cut_short() -> None:
    crowd = tuple(NO_SUCH_PID + i for i in range(50))
    assert len(judge(at_rest(), at_rest(other_pids=crowd))["other programs on the device"].value) < 200


@pytest.mark.parametrize(("first_c", "last_c", "ok"), [(40, 42, True), (40, 43, False), (45, 42, False)])
def test_temperature_drift(first_c: float, last_c: float, ok: bool) -> None:
    found = judge(at_rest(temperature_c=first_c), at_rest(temperature_c=last_c))["temperature"]
    assert found.ok is ok
    assert f"{last_c} °C" in found.value


@pytest.mark.parametrize(("first_mhz", "last_mhz", "ok"), [(1980, 1900, True), (1980, 345, False), (345, 1980, False)])
def test_clock_drift(first_mhz: float, last_mhz: float, ok: bool) -> None:
    assert judge(at_rest(clock_mhz=first_mhz), at_rest(clock_mhz=last_mhz))["clock"].ok is ok


def test_at_work_temperature_and_clock_may_move() -> None:
    found = judge(at_rest(), at_rest(temperature_c=80.0, clock_mhz=1200.0), idle=False)
    assert set(found) == {"throttling", "other programs on the device"}


def test_what_a_driver_does_not_report_is_not_judged() -> None:
    silent = DeviceState("gpu0")
    assert set(judge(silent, silent)) == {"throttling", "other programs on the device"}


def test_a_device_that_appears_meanwhile_has_no_drift() -> None:
    found = {c.name: c for c in judge_devices([], [at_rest()], idle=True)}
    assert found["temperature"].ok
    assert found["clock"].ok


def test_each_device_is_judged_against_its_own_past() -> None:
    before = [at_rest(), DeviceState("gpu1", temperature_c=70.0)]
    after = [DeviceState("gpu1", temperature_c=70.0), at_rest(temperature_c=60.0)]
    verdicts = {(c.domain, c.name): c.ok for c in judge_devices(before, after, idle=True)}
    assert verdicts["gpu1", "temperature"]
    assert not verdicts["gpu0", "temperature"]
