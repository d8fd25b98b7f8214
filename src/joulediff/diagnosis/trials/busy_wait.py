"""Trial: the same step with another way in which the host waits for its device."""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.evidence.host.busy_wait import cpu_energy, is_slower_asleep, whole_step
from joulediff.diagnosis.trials.region_trials import NEAR_SHARE, NOTES
from joulediff.diagnosis.trials.whole_step import MEASURE_S, NOT_COMPARED, WAIT_S, step_proof
from joulediff.frameworks.framework import is_read
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, difference_j, is_at_most, joules_of, overlap
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Trial
from joulediff.model.outputs import result_distance
from joulediff.model.pair import other_side

# A host that sleeps still has some work to wait: this share of the cost of spinning may stay.
_LEFT_SHARE = 0.1


def try_sleeping(draft: Draft) -> Draft:
    """Return the draft after a trial of its way to wait, if it is about one; slower steps make it a trade-off."""
    waiting, side, other = draft.busy_wait, draft.expensive, other_side(draft.expensive)
    if waiting is None or side not in draft.live:
        return draft
    value = draft.comparison.run(other).settings[waiting.setting]
    change = f"{waiting.setting} = {value}"
    cheap = waiting.energies.of(other)
    try:
        before = draft.live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S)
        after = draft.live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S, settings={waiting.setting: value})
        _, changed = draft.live[side].capture({waiting.setting: value})
        if other in draft.live:
            again = draft.live[other].measure(seconds=MEASURE_S, wait_s=WAIT_S)
            cheap = cpu_energy(again) or cheap
    except JoulediffError as error:
        return _with_trial(draft, Trial(change, None, None, cheap, note=error.what, of_step=True))
    old, new = cpu_energy(before), cpu_energy(after)
    if old is None or new is None:
        trial = Trial(change, old, new, cheap, note="the CPU's energy is not known", of_step=True)
        return _with_trial(draft, trial)
    trial = _judge(change, old, new, cheap, threshold=draft.limits.threshold)
    trial = _with_outputs(trial, result_distance(draft.comparison.run(side), changed, is_read=is_read), draft.limits)
    slower = draft.limits.slower
    # One measurement of a step repeats no better than the limit, so the recorded steps must show it as well.
    is_slower = after.step_s > before.step_s * (1 + slower) and is_slower_asleep(draft.comparison, waiting, slower)
    has_less = _has_less(old, new, draft.limits.threshold)
    return replace(_with_trial(draft, trial), verdict="tradeoff" if has_less and is_slower else "waste")


def _judge(change: str, old: Energy, new: Energy, cheap: Energy, *, threshold: float) -> Trial:
    has_less = _has_less(old, new, threshold)
    near_j = (1 + NEAR_SHARE) * joules_of(cheap) + _LEFT_SHARE * difference_j(old, cheap)
    is_near = joules_of(new) <= near_j
    note = NOTES["no less energy"]
    if has_less:
        note = "energies of the CPU" if is_near else "the CPU's energy stays above the other side's"
    return Trial(change, old, new, cheap, explains=has_less and is_near, note=note, of_step=True)


def _with_outputs(trial: Trial, difference: float | None, limits: Thresholds) -> Trial:
    """Return the trial with the distance of its outputs; without a comparison it explains nothing."""
    if difference is None:
        return replace(trial, explains=False, note=NOT_COMPARED)
    if difference > limits.difference:
        return replace(trial, difference=difference, explains=False, note=NOTES["outputs differ"])
    return replace(trial, difference=difference)


def _has_less(old: Energy, new: Energy, threshold: float) -> bool:
    return is_at_most(new, 1 - threshold / 2, old) and not overlap(new, old)


def _with_trial(draft: Draft, trial: Trial) -> Draft:
    assert draft.busy_wait is not None
    return replace(draft, proof=step_proof(trial, whole_step(draft.comparison, draft.busy_wait)))
