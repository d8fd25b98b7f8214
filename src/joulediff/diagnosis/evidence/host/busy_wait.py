"""Evidence: a host that spins while it waits for its device keeps a CPU core busy.

Neither an operator nor the device's meter shows it. The evidence is the CPU's energy of a step together with the
setting that says how the program waits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.recorded_settings import set_place
from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.suggest import suggest_sleep
from joulediff.model.energy import Energy, add_independent, costlier_side, difference_j, is_at_most, overlap
from joulediff.model.measurement import Measurement
from joulediff.model.pair import SIDES, Pair, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting

_CPU = "cpu"
_SCHEDULE = ".schedule"
# A side that sleeps while it waits uses its CPU for something else.
_SLEEPS = "blocking_sync"
# The line that waits takes at least this share of the host's time.
LEAST_SHARE_OF_TIME = 0.5


@dataclass(frozen=True, slots=True)
class BusyWait:
    """One side's CPU is busy while it waits; `setting` says how each side waits."""

    setting: str
    expensive: SideName
    energy_a: Energy
    energy_b: Energy

    @property
    def energies(self) -> Pair[Energy]:
        """The CPU's energy of a step on each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def delta_j(self) -> float:
        """The extra energy of the expensive side's CPU in a step."""
        return abs(difference_j(*self.energies))


def find_busy_wait(comparison: Comparison, threshold: float) -> BusyWait | None:
    """Return the side whose CPU is kept busy by the way it waits for a device; None if both wait alike."""
    setting = _differing_schedule(comparison.a, comparison.b)
    a, b = (cpu_energy(comparison.run(side).measurement) for side in SIDES)
    if setting is None or a is None or b is None:
        return None
    expensive = costlier_side(a, b)
    found = BusyWait(setting, expensive, a, b)
    more, less = found.energies.of(expensive), found.energies.of(other_side(expensive))
    if overlap(more, less) or is_at_most(more, 1 + threshold, less):
        return None
    is_asleep = comparison.run(expensive).settings[setting] == _SLEEPS
    return None if is_asleep else found


def busy_wait_lead(comparison: Comparison, found: BusyWait) -> Lead:
    """Return the setting as a lead. Its trial is one of the whole step, so it has no change of a region."""
    values: Pair[Setting] = Pair(*(comparison.run(side).settings[found.setting] for side in SIDES))
    runs = Pair(comparison.a, comparison.b)
    locations = Pair(*(set_place(run, found.setting) or busiest_line(run) for run in runs))
    evidence = [
        f"{side.upper()} waits by {values.of(side)}: its CPU draws {_cpu_power_w(comparison.run(side)):.3g} W "
        "during the step"
        for side in SIDES
    ]
    if not is_cpu_counted(comparison.run(found.expensive)):
        evidence.append("the CPU's energy is an estimate from CPU time, and in no total")
    cause = make_cause("setting", found.setting, values, locations, tuple(evidence))
    return Lead("misconfiguration", cause, (), suggest_sleep(cause, found.expensive))


def busiest_line(run: Run) -> Place | None:
    """Return the user's line in which the host spends at least half of its sampled time, such as that of a wait."""
    own: list[int | None] = []  # the innermost frame of the user's on the path of each; a parent is always earlier
    for number, frame in enumerate(run.frames):
        outer = None if frame.parent is None else own[frame.parent]
        own.append(number if frame.owner is None else outer)
    times_s: defaultdict[tuple[str, int, str], float] = defaultdict(float)
    for sample in run.host_samples:
        at = None if sample.frame is None else own[sample.frame]
        if at is not None:
            frame = run.frames[at]
            times_s[frame.file, frame.line, frame.function] += sample.time_s
    if not times_s:
        return None
    (file, line, function), time_s = max(times_s.items(), key=lambda each: each[1])
    if time_s < LEAST_SHARE_OF_TIME * sum(sample.time_s for sample in run.host_samples):
        return None
    return Place(file, line, function, run.line_text(file, line))


def whole_step(comparison: Comparison, found: BusyWait) -> Energy | None:
    """Return the energy of the expensive side's step, with the CPU's also where the total does not count it."""
    total = comparison.costs[found.expensive].total
    if is_cpu_counted(comparison.run(found.expensive)):
        return total
    cpu = found.energies.of(found.expensive)
    return cpu if total is None else add_independent((total, cpu))


def is_slower_asleep(comparison: Comparison, found: BusyWait, slower: float) -> bool:
    """Return whether the recorded step of the side that sleeps is longer by more than the share `slower`."""
    spins, sleeps = (comparison.run(side).measurement for side in (found.expensive, other_side(found.expensive)))
    return spins is not None and sleeps is not None and sleeps.step_s > spins.step_s * (1 + slower)


def cpu_energy(measured: Measurement | None) -> Energy | None:
    """Return the CPU's energy of a step; None if it was not measured."""
    return None if measured is None or _CPU not in measured.domains else measured.domains[_CPU].energy


def _differing_schedule(a: Run, b: Run) -> str | None:
    names = [name for name in a.settings if name.startswith("device.") and name in b.settings]
    schedules = [name for name in names if name.endswith(_SCHEDULE)]
    return next((name for name in schedules if b.settings[name] != a.settings[name]), None)


def _cpu_power_w(run: Run) -> float:
    assert run.measurement is not None
    return run.measurement.domains[_CPU].power_w


def is_cpu_counted(run: Run) -> bool:
    """Return whether the energy of a step includes that of the CPU."""
    return run.measurement is not None and _CPU in run.measurement.domains and run.measurement.domains[_CPU].counted
