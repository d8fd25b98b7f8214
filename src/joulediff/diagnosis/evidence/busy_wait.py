"""A host that spins while it waits for its device: the device's joules are the same, and a core is kept busy.

No operator shows it, nor the device's meter. What tells is the CPU's energy of a step beside the way the program
chose to wait, and the proof is the same step, with nothing but that way changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from joulediff.diagnosis.build import suggest
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.settings import set_place
from joulediff.diagnosis.significance import joules
from joulediff.diagnosis.trials.trial import MEASURE_S, NEAR_SHARE, WAIT_S
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Cause, Confirmation, Cost, Finding, Proof, Trial, Work
from joulediff.model.measurement import Measurement
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.run import Run

_CPU = "cpu"
_SCHEDULE = ".schedule"
# A side that waits so is busy with something else.
_SLEEPS = "blocking_sync"
# Where a wait sleeps, what is left is the work of asking. A part of what spinning costs may stay for that.
_LEFT_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Spinning:
    """One side's CPU is busy while it waits; the setting says how each side waits."""

    setting: str
    expensive: SideName
    energy_a: Energy
    energy_b: Energy

    @property
    def delta_j(self) -> float:
        """What the expensive side's CPU spends more in a step."""
        return abs(self.energy_a.joules - self.energy_b.joules)


def find_spinning(sides: Comparison, threshold: float) -> Spinning | None:
    """Return the side whose CPU is kept busy by the way it waits for a device; None where they wait alike."""
    known = [name for name in sides.a.settings if name.startswith("device.") and name in sides.b.settings]
    names = [name for name in known if name.endswith(_SCHEDULE)]
    setting = next((name for name in names if sides.b.settings[name] != sides.a.settings[name]), None)
    a, b = (_cpu_energy(sides.run(side).measurement) for side in SIDES)
    if setting is None or a is None or b is None:
        return None
    expensive: SideName = "a" if a.joules > b.joules else "b"
    more, less = (a, b) if expensive == "a" else (b, a)
    if more.low <= less.high or more.joules <= (1 + threshold) * less.joules:
        return None
    if sides.run(expensive).settings[setting] == _SLEEPS:
        return None
    return Spinning(setting, expensive, a, b)


def write_spinning(
    sides: Comparison, found: Spinning, live: Mapping[SideName, LiveProgram], limits: Thresholds
) -> Finding:
    """Return the finding on a host that spins, tried where its program can be run."""
    side, runs = found.expensive, {name: sides.run(name) for name in SIDES}
    values = {name: runs[name].settings[found.setting] for name in SIDES}
    places = {name: set_place(runs[name], found.setting) for name in SIDES}
    cause = Cause(
        "setting", found.setting, values["a"], values["b"], places["a"], places["b"], tuple(_evidence(sides, found))
    )
    trial, is_slower = _try(sides, found, live, limits)
    spins_s, sleeps_s = (_step_s(runs[name].measurement) or 0.0 for name in (side, other_side(side)))
    # One look at a step repeats no better than the limit: both programs must show it, too.
    is_slower = is_slower and sleeps_s > spins_s * (1 + limits.slower)
    whole_j = joules(sides.costs[side].total) + _uncounted_j(runs[side], found)
    saved_j = None
    if trial is not None and trial.explains and trial.before is not None and trial.after is not None:
        saved_j = trial.before.joules - trial.after.joules
    share = None if saved_j is None or whole_j <= 0 else saved_j / whole_j
    cheap_j = min(found.energy_a.joules, found.energy_b.joules)
    return Finding(
        id="",
        kind="misconfiguration",
        verdict="tradeoff" if is_slower else "waste",
        expensive=side,
        region="cpu: spinning while it waits for a device",
        where="",
        regions=(),
        cost=Cost(
            energy_a=found.energy_a,
            energy_b=found.energy_b,
            delta_j=found.delta_j,
            ratio=found.delta_j / cheap_j + 1 if cheap_j > 0 else None,
            share_of_run=found.delta_j / whole_j if whole_j > 0 else None,
            p_value=None,
            time_a_s=_step_s(sides.a.measurement),
            time_b_s=_step_s(sides.b.measurement),
            difference=None,
        ),
        work=Work(
            ops_a=(),
            ops_b=(),
            kernels_a=(),
            kernels_b=(),
            path_a=(),
            path_b=(),
        ),
        cause=cause,
        proof=Proof(
            confirmed=trial is not None and trial.explains,
            confirmation=None if trial is None else Confirmation((trial,), saved_j, share),
        ),
        suggestion=suggest("misconfiguration", cause, side),
    )


def _try(
    sides: Comparison, found: Spinning, live: Mapping[SideName, LiveProgram], limits: Thresholds
) -> tuple[Trial | None, bool]:
    """Return what the step costs the CPU if it waits as the other side does, and whether it then takes longer."""
    side, other = found.expensive, other_side(found.expensive)
    if side not in live:
        return None, False
    value = sides.run(other).settings[found.setting]
    change = f"{found.setting} = {value}"
    cheap = found.energy_b if side == "a" else found.energy_a
    try:
        before = live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S)
        after = live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S, settings={found.setting: value})
        if other in live:
            cheap = _cpu_energy(live[other].measure(seconds=MEASURE_S, wait_s=WAIT_S)) or cheap
    except JoulediffError as error:
        return Trial(change, None, None, cheap, note=error.what, of_step=True), False
    old, new = _cpu_energy(before), _cpu_energy(after)
    if old is None or new is None:
        return Trial(change, old, new, cheap, note="the CPU's energy is not known", of_step=True), False
    fell = new.high < old.low and new.joules <= (1 - limits.threshold / 2) * old.joules
    near = new.joules <= (1 + NEAR_SHARE) * cheap.joules + _LEFT_SHARE * (old.joules - cheap.joules)
    note = (
        "energies of the CPU"
        if fell and near
        else "the CPU's energy stays above the other side's"
        if fell
        else "the energy stays as it is"
    )
    is_slower = after.step_s > before.step_s * (1 + limits.slower)
    return Trial(change, old, new, cheap, explains=fell and near, note=note, of_step=True), fell and is_slower


def _evidence(sides: Comparison, found: Spinning) -> list[str]:
    told = []
    for side in SIDES:
        run = sides.run(side)
        measured = cast("Measurement", run.measurement)
        power_w = measured.domains[_CPU].power_w
        told.append(
            f"{side.upper()} waits by {run.settings[found.setting]}: its CPU draws {power_w:.3g} W during the step"
        )
    if not _is_counted(sides.run(found.expensive)):
        told.append("the CPU's energy is an estimate from CPU time, and in no total")
    return told


def _cpu_energy(measured: Measurement | None) -> Energy | None:
    return None if measured is None or _CPU not in measured.domains else measured.domains[_CPU].energy


def _is_counted(run: Run) -> bool:
    return run.measurement is not None and _CPU in run.measurement.domains and run.measurement.domains[_CPU].counted


def _uncounted_j(run: Run, found: Spinning) -> float:
    """Return the CPU's joules where the total does not hold them."""
    return 0.0 if _is_counted(run) else joules(found.energy_a if found.expensive == "a" else found.energy_b)


def _step_s(measured: Measurement | None) -> float | None:
    return None if measured is None else measured.step_s
