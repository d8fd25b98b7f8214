"""Trials of one region: change one thing on the expensive side, run it, and compare kernels, outputs and energy.

A change explains a difference only if the energy falls to within 10 % of the cheap side's and the outputs stay equal.
A change that cannot be run explains nothing, and its reason is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.lead import Change
from joulediff.diagnosis.significance import ALPHA, chance
from joulediff.diagnosis.trials.layout_change import measure_with_layout
from joulediff.diagnosis.trials.settings_change import measure_with_settings
from joulediff.diagnosis.trials.transplant import measure_transplant
from joulediff.frameworks.jobs import OWN, Job, JobCost, LiveProgram
from joulediff.model.diff import Thresholds
from joulediff.model.energy import is_at_most, joules_of, lowest
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import TOGETHER, Region, Trial
from joulediff.model.pair import SideName, other_side

# The energy after a change must be within this share of the cheap side's.
NEAR_SHARE = 0.10
# A trial within this share is repeated, up to this many times in all; an estimate on a busy machine more often.
CLOSE_SHARE, LOOKS = 0.3, 2
CLOSE_ESTIMATE, ESTIMATE_LOOKS = 1.0, 3
WINDOW_S = 0.3
# Measured one after the other, the two sides repeat better than between recordings (one sigma, as a share).
AGAIN_SPREAD = {"metered": 0.015, "replayed": 0.015, "attributed": 0.05, "estimated": 0.04}
# Operators that cost less than this share of their recorded energy were disturbed in the recording.
AGAIN_SHARE = 0.5
# An estimate from one short window is unreliable on a busy machine.
ROUNDS = {"estimated": 3}

Outcome = Literal["explains", "failed", "outputs differ", "no less energy", "not near"]
NOTES: Mapping[Outcome, str] = {
    "outputs differ": "the outputs change with it",
    "no less energy": "the energy stays as it is",
    "not near": "the energy falls, but not to the other side's",
}


@dataclass(slots=True)
class RegionTrials:
    """The trials of one region of the expensive side, with the costs before and of the cheap side."""

    comparison: Comparison
    expensive: SideName
    region: Region
    live: Mapping[SideName, LiveProgram]
    thresholds: Thresholds
    times: tuple[float, float] | None = None
    """Measured seconds of the expensive and the cheap side."""
    imported: int = 0
    """Number of tensors that the other program exported: weights or constants that only it has."""
    at_host_pace: bool = False
    """Operators are launched one by one at the rate of the host: the trial tests their number."""
    _made: dict[tuple[Change, ...], Trial] = field(default_factory=dict)
    _before: JobCost | None = None
    _other: JobCost | None = None

    @property
    def cheap(self) -> SideName:
        """The side that costs less."""
        return other_side(self.expensive)

    @property
    def made(self) -> tuple[Trial, ...]:
        """The trials that were made, in order."""
        return tuple(self._made.values())

    @property
    def before(self) -> JobCost:
        """The cost of the region without a change."""
        if self._before is None:
            ops = self.comparison.runnable_ops(self.region, self.expensive)
            self._before = self._measure(self.expensive, Job(OWN, ops, collect=ops))
        return self._before

    @property
    def other(self) -> JobCost:
        """The cost of the cheap side: measured in the same way if that program can be run, else as recorded."""
        if self._other is None:
            self._other = self._cost(self.cheap, self.comparison.runnable_ops(self.region, self.cheap))
        return self._other

    def repeats(self, *, with_inputs: bool = True, is_sure: bool = False) -> bool | None:
        """Return whether both sides differ when they are measured again; None if that is not known.

        The region's own operators are measured or, `with_inputs`, all that lead to its outputs. With `is_sure`, the
        recording has shown the difference already, and the noise of a short measurement does not count.
        """
        if with_inputs:
            expensive, cheap = self.before, self.other
        else:
            expensive, cheap = (self._cost(side, ops_of(self.region, side)) for side in (self.expensive, self.cheap))
        if expensive.energy is None or cheap.energy is None:
            return None
        if expensive.time_s is not None and cheap.time_s is not None:
            self.times = (expensive.time_s, cheap.time_s)
        is_more = not is_at_most(expensive.energy, 1 + self.thresholds.threshold, cheap.energy)
        return is_more and (is_sure or chance(expensive.energy, cheap.energy, spread=AGAIN_SPREAD) < ALPHA)

    def costs_again(self, ops: Sequence[int]) -> bool | None:
        """Return whether operators that the cheap side lacks cost about the recorded energy; None if not known."""
        found = self._measure(self.expensive, Job(OWN, tuple(ops), collect=tuple(ops))).energy
        recorded = self.comparison.costs[self.expensive].of(ops)
        if found is None:
            return None
        return found.is_surely_positive and joules_of(found) >= AGAIN_SHARE * joules_of(recorded)

    def try_changes(self, changes: Sequence[Change]) -> Trial:
        """Try several changes at once; a trial that was made before is not repeated."""
        # The other side's calls bring their settings and layouts with them.
        key = tuple(change for change in changes if change.calls) or tuple(changes)
        if key not in self._made:
            self._made[key] = self._try_until_sure(key)
        return self._made[key]

    def measure_changed(self, job: Job) -> JobCost:
        """Return the cost of a changed region, at the clock of the other program: the change brings that clock."""
        return self._measure(self.expensive, job, as_other=True)

    def _try_until_sure(self, changes: tuple[Change, ...]) -> Trial:
        trial, outcome = self._try(changes)
        for _ in range((ESTIMATE_LOOKS if _is_estimate(trial) else LOOKS) - 1):
            if outcome != "not near" or not _is_close(trial):
                break
            self._other = None  # the cheap side's short measurement may be off, too
            again, outcome = self._try(changes)
            trial = again if again.explains else trial
            outcome = "explains" if again.explains else "not near"
        return trial

    def _try(self, changes: tuple[Change, ...]) -> tuple[Trial, Outcome]:
        self.imported = 0
        try:
            after = self._apply(changes)
        except JoulediffError as error:
            after = JobCost(None, None, note=error.what)
        return self._judge(TOGETHER.join(change.text for change in changes), after)

    def _apply(self, changes: Sequence[Change]) -> JobCost:
        if any(change.calls for change in changes):
            return measure_transplant(self)
        settings = dict(setting for change in changes for setting in change.settings)
        aspects = {aspect for change in changes for aspect in change.layout}
        if settings:
            return measure_with_settings(self, settings, aspects)
        return measure_with_layout(self, OWN, self.region, self.comparison, aspects, settings)

    def _cost(self, side: SideName, ops: tuple[int, ...]) -> JobCost:
        """Return the cost of operators of a side: measured if the program can be run, else as recorded."""
        if side in self.live:
            return self._measure(side, Job(OWN, ops, collect=ops))
        costs = self.comparison.costs[side]
        return JobCost(costs.of(ops), costs.time_s(ops), costs.names(ops))

    def _measure(self, side: SideName, job: Job, *, as_other: bool = False) -> JobCost:
        if side not in self.live:
            raise JoulediffError("not tried: the program cannot be run again")
        found = self._measure_once(side, job, as_other=as_other)
        rounds = 1 if found.energy is None else ROUNDS.get(found.energy.source, 1)
        more = [self._measure_once(side, job, as_other=as_other) for _ in range(rounds - 1)]
        energies = [each.energy for each in (found, *more) if each.energy is not None]
        # A disturbance adds to measured CPU time, so the lowest value is nearest to the truth.
        return replace(found, energy=lowest(energies)) if energies else found

    def _measure_once(self, side: SideName, job: Job, *, as_other: bool) -> JobCost:
        try:
            return self.live[side].measure_job(
                replace(job, paced=self.at_host_pace), window_s=WINDOW_S, as_other=as_other
            )
        except JoulediffError as error:  # the program ended
            return JobCost(None, None, note=error.what)

    def _judge(self, change: str, after: JobCost) -> tuple[Trial, Outcome]:
        before, other = self.before, self.other
        outcome = self._outcome(after)
        note = after.note or "it could not be run" if outcome == "failed" else NOTES.get(outcome)
        if outcome != "failed" and before.energy is None:
            note = f"as it is, it could not be measured: {before.note or 'it has no energy'}"
        if note is None and self.imported:
            count = "a tensor" if self.imported == 1 else f"{self.imported} tensors"
            note = f"with {count} that only the other program has"
        trial = Trial(
            change,
            before.energy,
            after.energy,
            other.energy,
            before.kernels,
            after.kernels,
            after.difference,
            explains=outcome == "explains",
            note=note,
        )
        return trial, outcome

    def _outcome(self, after: JobCost) -> Outcome:
        if after.energy is None:
            return "failed"
        # Outputs of imported tensors must be compared: the tensors may not be those of this program.
        has_equal_outputs = not self.imported
        if after.difference is not None:
            has_equal_outputs = after.difference <= self.thresholds.difference
        if not has_equal_outputs:
            return "outputs differ"
        if not is_at_most(after.energy, 1 - self.thresholds.threshold / 2, self.before.energy):
            return "no less energy"
        return "explains" if is_at_most(after.energy, 1 + NEAR_SHARE, self.other.energy) else "not near"


def _is_close(trial: Trial) -> bool:
    share = CLOSE_ESTIMATE if _is_estimate(trial) else CLOSE_SHARE
    return is_at_most(trial.after, 1 + share, trial.other)


def _is_estimate(trial: Trial) -> bool:
    return trial.after is not None and trial.after.source == "estimated"
