"""Verify doubtful matches by execution: the operators of one side run on the tensors of the other.

Values leave a match in doubt if its outputs are farther apart than rounding explains: either the two sides compute
something else, or a small difference of their inputs was amplified. On the same inputs, only the first remains. No
energy is measured, and a match that cannot be run stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.trials.transplant import Transplant
from joulediff.frameworks.jobs import LiveProgram
from joulediff.matching.features import rounding_of
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.pair import SIDES, SideName
from joulediff.model.progress import ProgressListener

# Each run executes the step once more to collect its tensors.
MAX_RUNS = 8
# Outputs are equal within this many rounding errors of the coarsest float type, or within LEAST.
ROUNDED, LEAST = 8.0, 1e-5
# A difference came from the inputs if at most this share of it is left on equal inputs.
LEFT_SHARE = 0.5


def verify_matches(
    comparison: Comparison, live: Mapping[SideName, LiveProgram], listener: ProgressListener
) -> Comparison:
    """Return a comparison whose doubtful regions are verified: `executed`, or with what the execution showed."""
    if not all(side in live for side in SIDES):
        return comparison
    regions, divergences = list(comparison.regions), list(comparison.divergences)
    places = {(each.a, each.b): at for at, each in enumerate(divergences)}
    chosen = _choose(comparison)
    for number, region in enumerate(chosen):
        listener.stage(f"verifying matches: {number + 1} of {len(chosen)}", number / len(chosen))
        executed = _execute(comparison, region, live)
        if executed is None:
            continue
        at = places.get((region.a, region.b))
        is_equal = executed <= _rounding(comparison, region)
        if at is not None:
            is_equal = is_equal and executed <= LEFT_SHARE * divergences[at].difference
            divergences[at] = replace(divergences[at], executed=executed)
        if is_equal:
            regions[regions.index(region)] = replace(region, basis="executed", drift=executed)
    verified = {(each.a, each.b) for each in regions if each.basis == "executed"}
    left = [each for each in divergences if (each.a, each.b) not in verified]
    return replace(comparison, regions=tuple(regions), divergences=tuple(left))


def _choose(comparison: Comparison) -> Sequence[Region]:
    """Return the regions to run: the first doubtful region of each row, then the second ones, up to the limit."""
    diverging = {(each.a, each.b) for each in comparison.divergences}
    doubtful = {each.id for each in comparison.regions if _is_doubtful(each, diverging)}
    ranked = []
    for group in comparison.groups:
        members = [number for number in group.regions if number in doubtful]
        ranked += [(rank, number) for rank, number in enumerate(members)]
    return [comparison.by_id[number] for _, number in sorted(ranked)[:MAX_RUNS]]


def _is_doubtful(region: Region, diverging: set[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    if region.kind != "equal" or not region.outputs or region.basis in ("call", "executed"):
        return False
    return region.drift is None or (region.a, region.b) in diverging


def _execute(comparison: Comparison, region: Region, live: Mapping[SideName, LiveProgram]) -> float | None:
    """Return the distance of the outputs if one side runs the operators of both; None if neither side can."""
    for side in ("b", "a"):
        plan = Transplant(comparison, region, side)
        # With the constants of this side, a difference of the constants would not show.
        if plan.feeds_unequal_constants():
            return None
        try:
            plan.import_missing(live)
            for exact in (False, True):
                found = live[side].compare_job(plan.job(exact=exact))
                if found.difference is not None:
                    return found.difference
        except JoulediffError:  # a tensor cannot be transferred, or the program has ended
            continue
    return None


def _rounding(comparison: Comparison, region: Region) -> float:
    """Return the distance of outputs that the rounding within a region explains."""
    values = [
        comparison.run(side).values[value]
        for side in SIDES
        for op in ops_of(region, side)
        for value in comparison.run(side).ops[op].outputs
    ]
    coarsest = max((rounding_of(value.dtype, value.device) for value in values), default=0.0)
    return max(LEAST, ROUNDED * coarsest)
