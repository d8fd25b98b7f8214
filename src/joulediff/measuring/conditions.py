"""The conditions of the devices in a measurement: clocks, temperatures, throttling, and other programs on them.

They are read at both ends of a window, because drift is a difference.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import psutil

from joulediff.model.measurement import POWER_CAP, Condition, DeviceState

# Sensors report whole degrees: a change by one may be rounding, a change by three is drift.
TEMPERATURE_DRIFT_C = 2.0
CLOCK_DRIFT_SHARE = 0.05


def judge_devices(before: Sequence[DeviceState], after: Sequence[DeviceState], *, idle: bool) -> list[Condition]:
    """Return the conditions of each device between two reads of its state.

    At work a device warms up and its clock follows the load; only a resting device must hold both.
    """
    found = []
    earlier = {state.domain: state for state in before}
    own = _own_pids()
    for state in after:
        found += [_throttling(state, idle=idle), _other_programs(state, own)]
        if idle:
            first = earlier.get(state.domain, state)
            found += [c for c in (_temperature(first, state), _clock(first, state)) if c is not None]
    return found


def _throttling(state: DeviceState, *, idle: bool) -> Condition:
    # Many programs run at the power limit: a fact about them, not a fault.
    reasons = [r for r in state.throttle if idle or r != POWER_CAP]
    return Condition(
        "throttling",
        not reasons,
        ", ".join(reasons) or "none",
        state.domain,
        f"{state.domain} is throttled ({', '.join(reasons)}): let it cool, or check its power supply",
    )


def _other_programs(state: DeviceState, own: set[int]) -> Condition:
    others = [pid for pid in state.other_pids if pid not in own]
    named = ", ".join(f"{pid} ({_program(pid)})" for pid in others[:4])
    return Condition(
        "other programs on the device",
        not others,
        named or "none",
        state.domain,
        f"{state.domain} is used by process {named} too, and its energy is measured with yours: end it",
    )


def _temperature(first: DeviceState, last: DeviceState) -> Condition | None:
    if first.temperature_c is None or last.temperature_c is None:
        return None
    drift_c = last.temperature_c - first.temperature_c
    return Condition(
        "temperature",
        abs(drift_c) <= TEMPERATURE_DRIFT_C,
        f"{last.temperature_c:.0f} °C, {drift_c:+.0f} °C in the window",
        last.domain,
        f"{last.domain} is still changing temperature: wait longer (--wait)",
    )


def _clock(first: DeviceState, last: DeviceState) -> Condition | None:
    if not first.clock_mhz or not last.clock_mhz:
        return None
    drift = abs(last.clock_mhz / first.clock_mhz - 1)
    return Condition(
        "clock",
        drift <= CLOCK_DRIFT_SHARE,
        f"{last.clock_mhz:.0f} MHz",
        last.domain,
        f"{last.domain} changed its clock from {first.clock_mhz:.0f} to {last.clock_mhz:.0f} MHz while idle: "
        "wait longer (--wait)",
    )


_ignored: set[int] = set()


def ignore_process(pid: int) -> None:
    """Do not report a process, which only waits, as another program on a device."""
    _ignored.add(pid)


def _own_pids() -> set[int]:
    try:
        me = psutil.Process()
        return {os.getpid(), *_ignored, *(p.pid for p in me.children(recursive=True))}
    except psutil.Error:
        return {os.getpid(), *_ignored}


def _program(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "not visible from here"
