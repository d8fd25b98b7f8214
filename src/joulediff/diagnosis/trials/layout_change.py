"""Trial: the expensive side's own operators, on inputs with the data type or the layout of the cheap side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from joulediff.diagnosis.comparison import Comparison
from joulediff.frameworks.jobs import Feed, Job, JobCost
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.run import Setting

if TYPE_CHECKING:
    from joulediff.diagnosis.trials.region_trials import RegionTrials

# Aspects of a layout that the strides of a tensor decide.
_BY_STRIDES = {"strides", "memory_format", "alignment"}


def measure_with_layout(
    trials: RegionTrials,
    name: str,
    region: Region,
    comparison: Comparison,
    aspects: set[str],
    settings: Mapping[str, Setting],
) -> JobCost:
    """Return the cost of a region in the recording `name`, with its inputs in the form of the cheap side's."""
    ops = comparison.runnable_ops(region, trials.expensive)
    feeds = _feeds(trials, region, comparison, aspects)
    if aspects and not feeds:
        raise JoulediffError("the layout comes about within the region itself")
    outputs = region.outputs_of(trials.expensive) if aspects or settings else []
    compare = tuple((value, value) for value in outputs)
    return trials.measure_changed(
        Job(name, ops, base=name, collect=ops, feeds=feeds, compare=compare, settings=settings)
    )


def _feeds(trials: RegionTrials, region: Region, comparison: Comparison, aspects: set[str]) -> tuple[Feed, ...]:
    run, other = comparison.run(trials.expensive), comparison.run(trials.cheap)
    feeds = []
    for mine, theirs in zip(region.inputs_of(trials.expensive), region.inputs_of(trials.cheap), strict=True):
        form, wanted = run.values[mine].form, other.values[theirs].form
        if "dtype" in aspects:
            form = replace(form, dtype=wanted.dtype)
        if _BY_STRIDES & aspects and form.shape == wanted.shape:
            form = replace(form, strides=wanted.strides)
        if form != run.values[mine].form:
            feeds.append(Feed(mine, mine, form))
    return tuple(feeds)
