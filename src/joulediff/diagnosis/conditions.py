"""Compare the conditions under which two runs were measured; differences are reported before any result.

A serious difference makes joules incomparable: another device, meter, driver, power limit or clock. Versions of
libraries are often the subject of a diff, and are only reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from joulediff.measuring.freed_memory import NAME as FREED_MEMORY
from joulediff.model.diff import ConditionDifference
from joulediff.model.measurement import DeviceState, Measurement
from joulediff.model.pair import Pair
from joulediff.model.run import Run, Setting

# A GPU that is this much warmer has noticeably more leakage power.
HEAT_C = 15.0
# A program at its power limit runs at a lower clock; a limit that a person set shows in the largest clock.
CLOCK_SHARE = 0.02
# A page fault that takes memory: 1.6 to 2.0 µs on a virtual machine (AMD EPYC, `benchmarks/freed_memory.py`).
MINOR_FAULT_S = 1.5e-6
# Chosen: one that reads from a fast disk.
MAJOR_FAULT_S = 1e-4
# Page faults that could change a step by less than this share are no difference.
FAULTS_SHARE = 0.01
_REPORTED = ("package.", "host.python", "host.os", "host.kernel")
_NO_ENERGY = "the energy of a step"


def compare_conditions(a: Run, b: Run) -> tuple[ConditionDifference, ...]:
    """Return the conditions that differ, serious ones first."""
    found = [*_devices(a, b), *_meters(a.measurement, b.measurement), *_states(a.measurement, b.measurement)]
    found += _versions(a, b)
    return tuple(sorted(dict.fromkeys(found), key=lambda each: not each.serious))


def _devices(a: Run, b: Run) -> Iterator[ConditionDifference]:
    on_gpu = any(op.device != "cpu" for run in (a, b) for op in run.ops)
    names = sorted({name for run in (a, b) for name in run.settings if name.startswith("device.")})
    for name in names:
        left, right = a.settings.get(name), b.settings.get(name)
        if left != right and not name.endswith(".schedule"):  # the program chooses how the host waits
            yield ConditionDifference(name.removeprefix("device."), left, right, serious=True)
    for name in ("host.cpu", "host.cores_usable"):
        left, right = a.settings.get(name), b.settings.get(name)
        if left != right:
            yield ConditionDifference(name.removeprefix("host."), left, right, serious=not on_gpu)


def _meters(a: Measurement | None, b: Measurement | None) -> Iterator[ConditionDifference]:
    if a is None or b is None:
        if a is not b:
            left, right = ("not measured" if each is None else "measured" for each in (a, b))
            yield ConditionDifference(_NO_ENERGY, left, right, serious=True)
        return
    counted = [{name: domain for name, domain in each.domains.items() if domain.counted} for each in (a, b)]
    if counted[0].keys() != counted[1].keys():
        names = [", ".join(sorted(each)) or "nothing" for each in counted]
        yield ConditionDifference("metered", names[0], names[1], serious=True)
    for name in sorted(counted[0].keys() & counted[1].keys()):
        mine, other = counted[0][name], counted[1][name]
        for what, x, y in (
            ("device", mine.device, other.device),
            ("source", mine.energy.source, other.energy.source),
            ("meter", mine.kind, other.kind),
        ):
            if x != y:
                yield ConditionDifference(f"{what} of {name}", x, y, serious=True)


def _states(a: Measurement | None, b: Measurement | None) -> Iterator[ConditionDifference]:
    if a is None or b is None:
        return
    kept = Pair(*(next((each.value for each in run.conditions if each.name == FREED_MEMORY), None) for run in (a, b)))
    if None not in kept and kept.a != kept.b:
        yield ConditionDifference(FREED_MEMORY, kept.a, kept.b, serious=False)
    yield from _faults(a, b)
    right = {state.domain: state for state in b.states}
    for left in a.states:
        if (other := right.get(left.domain)) is not None:
            yield from _state(left, other)
    for name in sorted(a.clocks_mhz.keys() & b.clocks_mhz.keys()):
        yield from _differing(f"clock of {name}, MHz", a.clocks_mhz[name], b.clocks_mhz[name], CLOCK_SHARE)


def _faults(a: Measurement, b: Measurement) -> Iterator[ConditionDifference]:
    """Yield the page faults of a step if the sides differ by enough of them to show in the shorter step."""
    least_s = FAULTS_SHARE * min(a.step_s, b.step_s)
    for name, left, right, fault_s in (
        ("minor page faults of a step", a.minor_faults, b.minor_faults, MINOR_FAULT_S),
        ("major page faults of a step", a.major_faults, b.major_faults, MAJOR_FAULT_S),
    ):
        if left is not None and right is not None and abs(left - right) * fault_s > least_s:
            yield ConditionDifference(name, round(left, 1), round(right, 1), serious=False)


def _state(a: DeviceState, b: DeviceState) -> Iterator[ConditionDifference]:
    yield from _differing(f"power limit of {a.domain}, W", a.power_limit_w, b.power_limit_w, 0.01, serious=True)
    yield from _differing(f"largest clock of {a.domain}, MHz", a.clock_max_mhz, b.clock_max_mhz, 0.01, serious=True)
    warm, other = a.temperature_c, b.temperature_c
    if warm is not None and other is not None and abs(warm - other) > HEAT_C:
        yield ConditionDifference(f"temperature of {a.domain}, °C", warm, other, serious=False)


def _differing(
    name: str, a: float | None, b: float | None, share: float, *, serious: bool = False
) -> Iterator[ConditionDifference]:
    if a and b and abs(a / b - 1) > share:
        yield ConditionDifference(name, round(a, 1), round(b, 1), serious)


def _versions(a: Run, b: Run) -> Iterator[ConditionDifference]:
    for name in sorted({name for run in (a, b) for name in run.settings if name.startswith(_REPORTED)}):
        left: Setting = a.settings.get(name)
        right: Setting = b.settings.get(name)
        # A library that only one side loads is no condition.
        if left != right and left is not None and right is not None:
            yield ConditionDifference(name.removeprefix("package."), left, right, serious=False)
