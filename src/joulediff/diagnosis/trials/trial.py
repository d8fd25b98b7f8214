"""Counterfactuals: change one thing on the expensive side alone, run it, and look at kernels, outputs and joules.

A change explains a difference only if the energy falls to within 10 % of the cheap side's, and the outputs stay. What
cannot be run is no explanation, and its reason is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.significance import ALPHA, chance
from joulediff.diagnosis.trials.transplant import Transplant
from joulediff.frameworks.jobs import OWN, Feed, Job, JobCost, LiveProgram
from joulediff.matching import match_regions
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, scale
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region, Trial
from joulediff.model.pair import SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting
from joulediff.model.signature import difference

# As near to the cheap side as a change must come.
NEAR_SHARE = 0.10
# What comes this near is looked at again, so often in all; an estimate on a busy machine more often.
CLOSE_SHARE, LOOKS = 0.3, 2
CLOSE_ESTIMATE, ESTIMATE_LOOKS = 1.0, 3
_NOT_NEAR = "the energy falls, but not to the other side's"
WINDOW_S = 0.3
MEASURE_S, WAIT_S = 2.0, 5.0
# Weighed one after the other, the two sides repeat better than from recording to recording (one sigma, as a share).
AGAIN_SPREAD = {"metered": 0.015, "replayed": 0.015, "attributed": 0.05, "estimated": 0.04}
# What costs less than this part of what was recorded was disturbed then.
AGAIN_SHARE = 0.5
# On a busy machine an estimate of one short window says little.
ROUNDS = {"estimated": 3}


@dataclass(frozen=True, slots=True)
class Suspect:
    """One thing that differs: settings of one switch, or the layout of tensors, or the calls themselves."""

    text: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    layout: tuple[str, ...] = ()
    """Aspects in which inputs take the form of the cheap side: `dtype`, `strides`."""
    calls: bool = False
    """The cheap side's operators run in place of the expensive side's."""


@dataclass(slots=True)
class Trials:
    """The tries at one region of the expensive side."""

    sides: Comparison
    expensive: SideName
    region: Region
    live: Mapping[SideName, LiveProgram]
    thresholds: Thresholds
    made: list[Trial] = field(default_factory=list)
    times: tuple[float, float] | None = None
    """Seconds of the expensive and the cheap side, as weighed."""
    lent: int = 0
    """Tensors that the other program lent: weights or constants that only it has."""
    paced: bool = False
    """Operators run at the host's pace: what is tried is how many there are."""
    _before: JobCost | None = None
    _other: JobCost | None = None

    @property
    def cheap(self) -> SideName:
        """The side that costs less."""
        return other_side(self.expensive)

    @property
    def before(self) -> JobCost:
        """What the region costs as it is."""
        if self._before is None:
            ops = self.sides.slice_of(self.region, self.expensive)
            self._before = self._weigh(self.expensive, Job(OWN, ops, collect=ops))
        return self._before

    @property
    def other(self) -> JobCost:
        """What the cheap side costs: weighed in the same way where that program is there, else as recorded."""
        if self._other is None:
            self._other = self._cost(self.cheap, self.sides.slice_of(self.region, self.cheap))
        return self._other

    def repeats(self, *, slices: bool = True, sure: bool = False) -> bool | None:
        """Return whether the difference is there again when both sides are weighed; None where that cannot be had.

        The region's own operators are weighed, or, with `slices`, all that lead to its outputs. What the recording is
        `sure` of need only be there, whatever the noise of a short look.
        """
        if slices:
            pair = [self.before, self.other]
        else:  # nothing but the region itself
            pair = [self._cost(side, ops_of(self.region, side)) for side in (self.expensive, self.cheap)]
        before, other = (each.energy for each in pair)
        if before is None or other is None:
            return None
        if pair[0].time_s is not None and pair[1].time_s is not None:
            self.times = (pair[0].time_s, pair[1].time_s)
        is_more = before.joules > other.joules * (1 + self.thresholds.threshold)
        return is_more and (sure or chance(before, other, spread=AGAIN_SPREAD) < ALPHA)

    def costs_again(self, ops: Sequence[int], recorded_j: float) -> bool | None:
        """Return whether operators that the cheap side lacks cost what was recorded, about; None if not known."""
        found = self._weigh(self.expensive, Job(OWN, tuple(ops), collect=tuple(ops))).energy
        return None if found is None else found.low > 0 and found.joules >= AGAIN_SHARE * recorded_j

    def _cost(self, side: SideName, ops: tuple[int, ...]) -> JobCost:
        """Return what operators of a side cost: weighed where the program is there, else as recorded."""
        if side in self.live:
            return self._weigh(side, Job(OWN, ops, collect=ops))
        costs = self.sides.costs[side]
        return JobCost(costs.of(ops), costs.time_s(ops), costs.names(ops))

    def change(self, suspects: Sequence[Suspect]) -> Trial:
        """Try several suspects at once, and keep what came of it; what was tried before is not tried again."""
        # The other side's calls bring their settings and layouts with them.
        suspects = [suspect for suspect in suspects if suspect.calls] or suspects
        change = " and ".join(suspect.text for suspect in suspects)
        known = next((trial for trial in self.made if trial.change == change), None)
        if known is not None:
            return known
        trial = self._try(change, suspects)
        is_estimate = trial.after is not None and trial.after.source == "estimated"
        for _ in range((ESTIMATE_LOOKS if is_estimate else LOOKS) - 1):
            if trial.explains or not _is_close(trial):
                break
            self._other = None  # it may be the noise of one short look
            again = self._try(change, suspects)
            trial = again if again.explains else trial
        self.made.append(trial)
        return trial

    def _try(self, change: str, suspects: Sequence[Suspect]) -> Trial:
        self.lent = 0
        try:
            after, note = self._change(suspects), None
        except JoulediffError as error:
            after, note = None, error.what
        return self._judge(change, after, note)

    def _change(self, suspects: Sequence[Suspect]) -> JobCost:
        if any(suspect.calls for suspect in suspects):
            return self._transplant()
        settings = {name: value for suspect in suspects for name, value in suspect.settings.items()}
        aspects = {aspect for suspect in suspects for aspect in suspect.layout}
        if not settings:
            return self._lay_out(OWN, self.region, self.sides, aspects, settings)
        name, run = self.live[self.expensive].capture(settings)
        changed = self._match_changed(run)
        region = self._find_again(changed)
        weighed = self._lay_out(name, region, changed, aspects, settings)
        gaps = [gap for gap in (weighed.difference, *self._signed_differences(changed, region)) if gap is not None]
        return replace(weighed, difference=_most(gaps))

    def _match_changed(self, run: Run) -> Comparison:
        a, b = (run, self.sides.b) if self.expensive == "a" else (self.sides.a, run)
        tolerance = self.sides.tolerance
        return Comparison(a, b, match_regions(a, b, tolerance=tolerance), tolerance)

    def _find_again(self, changed: Comparison) -> Region:
        """Return the region of the changed run that holds what this region's cheap side does."""
        wanted = set(ops_of(self.region, self.cheap))
        for region in changed.regions:
            if wanted.intersection(ops_of(region, self.cheap)) and ops_of(region, self.expensive):
                return region
        raise JoulediffError("with the change the part cannot be found again")

    def _lay_out(
        self, name: str, region: Region, sides: Comparison, aspects: set[str], settings: Mapping[str, Setting]
    ) -> JobCost:
        """Weigh the expensive side's own operators, with inputs in the form of the cheap side's in these aspects."""
        ops = sides.slice_of(region, self.expensive)
        run, other = sides.run(self.expensive), sides.run(self.cheap)
        feeds = []
        for mine, theirs in self._pairs(region):
            form, wanted = run.values[mine].form, other.values[theirs].form
            if "dtype" in aspects:
                form = replace(form, dtype=wanted.dtype)
            if {"strides", "memory_format", "alignment"} & aspects and form.shape == wanted.shape:
                form = replace(form, strides=wanted.strides)
            if form != run.values[mine].form:
                feeds.append(Feed(mine, mine, form))
        if aspects and not feeds:
            raise JoulediffError("the layout comes about within the part itself")
        compare = tuple((mine, mine) for mine, _ in self._outputs(region)) if aspects or settings else ()
        job = Job(name, ops, base=name, collect=ops, feeds=tuple(feeds), compare=compare, settings=settings)
        return self._weigh_changed(job)

    def _transplant(self) -> JobCost:
        """Weigh the cheap side's operators on the expensive side's tensors."""
        plan = Transplant(self.sides, self.region, self.expensive)
        self._borrow(plan)
        found = self._weigh_changed(plan.job(exact=False))
        # As they lie, the tensors may not suit: then as the cheap side has them.
        return self._weigh_changed(plan.job(exact=True)) if found.energy is None else found

    def _borrow(self, plan: Transplant) -> None:
        """Have the cheap side lend what only it was given: a constant, weights in one piece."""
        wanted = plan.find_wanted()
        if not wanted or self.cheap not in self.live:
            return
        with TemporaryDirectory(prefix="joulediff-") as folder:
            path = Path(folder) / "tensors"
            self.live[self.cheap].export_tensors(plan.theirs, wanted, path)
            self.live[self.expensive].import_tensors(path)
        self.lent = len(wanted)

    def _pairs(self, region: Region) -> list[tuple[int, int]]:
        """Return shared inputs as (expensive, cheap)."""
        return [(a, b) if self.expensive == "a" else (b, a) for a, b in region.inputs]

    def _outputs(self, region: Region) -> list[tuple[int, int]]:
        return [(a, b) if self.expensive == "a" else (b, a) for a, b in region.outputs]

    def _signed_differences(self, changed: Comparison, region: Region) -> list[float | None]:
        """Return how far outputs of the changed run lie from the cheap side's, and from those before, by signatures."""
        run, other, own = changed.run(self.expensive), self.sides.run(self.cheap), self.sides.run(self.expensive)
        before = {theirs: mine for mine, theirs in self._outputs(self.region)}
        found = []
        for mine, theirs in self._outputs(region):
            found.append(difference(run.signature_of(mine), other.signature_of(theirs)))
            if theirs in before:
                found.append(difference(run.signature_of(mine), own.signature_of(before[theirs])))
        return found

    def _weigh_changed(self, job: Job) -> JobCost:
        """Weigh a changed part: with the change the program would run as the other one does, clock and all."""
        return self._weigh(self.expensive, job, as_other=True)

    def _weigh(self, side: SideName, job: Job, *, as_other: bool = False) -> JobCost:
        if side not in self.live:
            raise JoulediffError("not tried: the program is not there to be run again")
        found = self._ask(side, job, as_other=as_other)
        rounds = 1 if found.energy is None else ROUNDS.get(found.energy.source, 1)
        more = [self._ask(side, job, as_other=as_other) for _ in range(rounds - 1)]
        energies = [each.energy for each in (found, *more) if each.energy is not None]
        # What disturbs a measurement of CPU time adds to it: the least is nearest to the truth.
        return replace(found, energy=_least(energies)) if energies else found

    def _ask(self, side: SideName, job: Job, *, as_other: bool) -> JobCost:
        try:
            return self.live[side].measure_job(replace(job, paced=self.paced), window_s=WINDOW_S, as_other=as_other)
        except JoulediffError as error:  # the program is gone
            return JobCost(None, None, note=error.what)

    def _judge(self, change: str, after: JobCost | None, note: str | None) -> Trial:
        before, other = self.before, self.other
        energy = None if after is None else after.energy
        gap = None if after is None else after.difference
        fell = _is_below(energy, before.energy, 1 - self.thresholds.threshold / 2)
        near = _is_below(energy, other.energy, 1 + NEAR_SHARE)
        stayed = not self.lent if gap is None else gap <= self.thresholds.difference
        if note is None and before.energy is None and energy is not None:
            note = f"as it is, it could not be weighed: {before.note or 'it has no energy'}"
        if note is None:
            note = _tell_failure(after, fell=fell, near=near, stayed=stayed)
        if note is None and self.lent:
            note = f"with {'a tensor' if self.lent == 1 else f'{self.lent} tensors'} that only the other program has"
        return Trial(
            change,
            before.energy,
            energy,
            other.energy,
            before.kernels,
            () if after is None else after.kernels,
            gap,
            explains=fell and near and stayed,
            note=note,
        )


def explain(trials: Trials, suspects: Sequence[Suspect], *, most: int = 8) -> tuple[Suspect, ...]:
    """Return the smallest set of suspects that explains the difference; nothing where none does.

    Each is tried alone first; if none is enough, all together, and then without one after the other.
    """
    for suspect in suspects[:most]:
        if trials.change([suspect]).explains:
            return (suspect,)
    if len(suspects) < 2 or not trials.change(suspects).explains:
        return ()
    left = list(suspects)
    for suspect in suspects[:most]:
        fewer = [each for each in left if each is not suspect]
        if len(fewer) > 1 and trials.change(fewer).explains:
            left = fewer
    return tuple(left)


def without_waiting(
    sides: Comparison,
    expensive: SideName,
    place: Place | None,
    live: Mapping[SideName, LiveProgram],
    limits: Thresholds,
) -> Trial | None:
    """Return what the whole step costs if it does not wait in a line; None where it cannot be run again."""
    if expensive not in live or place is None:
        return None
    change = f"no wait in {place.file}:{place.line}"
    before, cheap = (_measure_now(sides, side, live) for side in (expensive, other_side(expensive)))
    try:
        found = live[expensive].measure_without_sync(place.file, place.line)
    except JoulediffError as error:
        return Trial(change, before, None, cheap, note=error.what, of_step=True)
    fell = _is_below(found.energy, before, 1 - limits.threshold / 2)
    near = _is_below(found.energy, cheap, 1 + NEAR_SHARE)
    note = None if fell and near else _NOT_NEAR if fell else "the energy stays as it is"
    return Trial(change, before, found.energy, cheap, explains=fell and near, note=note, of_step=True)


def _measure_now(sides: Comparison, side: SideName, live: Mapping[SideName, LiveProgram]) -> Energy | None:
    """Return the energy of a step as it is now: a profiler that was there may have left the host slower."""
    if side in live:
        with suppress(JoulediffError):
            return live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S).energy
    return sides.costs[side].total


def saved(trial: Trial, recorded: Energy | None) -> Energy | None:
    """Return what a change saves of a recorded energy, going by how much it saved where it was tried."""
    if recorded is None or trial.before is None or trial.after is None or not trial.before.joules > 0:
        return None
    return scale(recorded, 1 - trial.after.joules / trial.before.joules)


def _is_below(energy: Energy | None, other: Energy | None, share: float) -> bool:
    return energy is not None and other is not None and energy.joules <= share * other.joules


def _most(gaps: Sequence[float]) -> float | None:
    """Return the largest gap; what is no number is larger than all."""
    return next((gap for gap in gaps if math.isnan(gap)), max(gaps, default=None))


def _least(energies: Sequence[Energy]) -> Energy:
    """Return the least of several looks at one thing, as sure as the surest of them."""
    least = min(energies, key=lambda each: each.joules)
    half_j = min((each.high - each.low) / 2 for each in energies)
    return Energy(least.joules, least.joules - half_j, least.joules + half_j, least.source)


def _is_close(trial: Trial) -> bool:
    is_estimate = trial.after is not None and trial.after.source == "estimated"
    return trial.note == _NOT_NEAR and _is_below(
        trial.after, trial.other, 1 + (CLOSE_ESTIMATE if is_estimate else CLOSE_SHARE)
    )


def _tell_failure(after: JobCost | None, *, fell: bool, near: bool, stayed: bool) -> str | None:
    if after is None or after.energy is None:
        return after.note if after is not None else "it could not be run"
    if not stayed:
        return "the outputs change with it"
    if not fell:
        return "the energy stays as it is"
    return None if near else _NOT_NEAR
