"""Trial: the expensive side's step under other settings, captured again and matched with the cheap side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.trials.layout_change import measure_with_layout
from joulediff.frameworks.jobs import JobCost
from joulediff.matching.match_runs import match_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.pair import pair_from
from joulediff.model.run import Run, Setting
from joulediff.model.signature import difference

if TYPE_CHECKING:
    from joulediff.diagnosis.trials.region_trials import RegionTrials


def measure_with_settings(trials: RegionTrials, settings: Mapping[str, Setting], aspects: set[str]) -> JobCost:
    """Return the cost of the region under other settings, and how far its outputs differ from both sides'."""
    name, run = trials.live[trials.expensive].capture(settings)
    changed = _match_again(trials, run)
    region = _find_again(trials, changed)
    found = measure_with_layout(trials, name, region, changed, aspects, settings)
    distances = [found.difference, *_signature_distances(trials, changed, region)]
    return replace(found, difference=_largest([each for each in distances if each is not None]))


def _match_again(trials: RegionTrials, run: Run) -> Comparison:
    comparison = trials.comparison
    runs = pair_from(trials.expensive, run, comparison.run(trials.cheap))
    regions = match_regions(runs.a, runs.b, tolerance=comparison.tolerance)
    return Comparison(runs.a, runs.b, regions, comparison.tolerance)


def _find_again(trials: RegionTrials, changed: Comparison) -> Region:
    """Return the region of the changed run with the same operators of the cheap side."""
    wanted = set(ops_of(trials.region, trials.cheap))
    for region in changed.regions:
        if wanted.intersection(ops_of(region, trials.cheap)) and ops_of(region, trials.expensive):
            return region
    raise JoulediffError("with the change the region cannot be found again")


def _signature_distances(trials: RegionTrials, changed: Comparison, region: Region) -> Iterator[float | None]:
    """Yield the distances of the changed run's outputs to the cheap side's and to those before the change."""
    run = changed.run(trials.expensive)
    other, own = trials.comparison.run(trials.cheap), trials.comparison.run(trials.expensive)
    before = dict(zip(trials.region.outputs_of(trials.cheap), trials.region.outputs_of(trials.expensive), strict=True))
    for mine, theirs in zip(region.outputs_of(trials.expensive), region.outputs_of(trials.cheap), strict=True):
        yield difference(run.signature_of(mine), other.signature_of(theirs))
        if theirs in before:
            yield difference(run.signature_of(mine), own.signature_of(before[theirs]))


def _largest(distances: Sequence[float]) -> float | None:
    """Return the largest distance; one that is not a number counts as larger than all."""
    return next((each for each in distances if math.isnan(each)), max(distances, default=None))
