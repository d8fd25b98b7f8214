"""Compute the derived fields of stored judgements anew, without a device, and write down that they were.

Nothing measured changes: a folder that is not as it was recorded is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from joulediff.archive.codec import to_plain
from joulediff.cases.case import FILE, Case
from joulediff.cases.judge import Judgement, Recomputed
from joulediff.cases.recorded import MEASURED, refuse_edited
from joulediff.cases.results import judge_diff, read_results, write_results
from joulediff.cases.run import DIFF, RUNS
from joulediff.model.errors import JoulediffError
from joulediff.version import __version__

SOURCES = (DIFF, RUNS["a"], FILE)
# Sums may differ in the last bits between machines.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Change:
    """The fields of a judgement that have another value now."""

    case: str
    fields: tuple[str, ...]


def recompute(folder: Path, cases: Sequence[Case], names: Sequence[str] = ()) -> Iterator[Change]:
    """Judge the cases of a kept folder anew, all or those of `names`, and yield what changed.

    `results.json` is written after each case that changed. Its judgement then has the fields that changed since the
    recording, the files that they follow from, and the version that computed them.
    """
    kept = {each.case: each for each in read_results(folder)}
    refuse_edited(folder, kept)
    judged = [case for case in cases if case.id in kept and (folder / case.id / DIFF).exists()]
    if unknown := [name for name in names if name not in [case.id for case in judged]]:
        raise JoulediffError(f"{folder} has no result of {unknown[0]}", fix="name cases that it keeps, or none for all")
    for case in judged:
        if names and case.id not in names:
            continue
        before = kept[case.id]
        after = judge_diff(case, folder / case.id, before)
        changed = tuple(_changed_fields(before, after))
        if changed:
            earlier = () if before.recomputed is None else before.recomputed.fields
            made = Recomputed(tuple(dict.fromkeys([*earlier, *changed])), SOURCES, __version__)
            kept[case.id] = replace(after, recomputed=made)
            write_results(folder, kept.values())
            yield Change(case.id, changed)


def _changed_fields(before: Judgement, after: Judgement) -> Iterator[str]:
    for each in fields(Judgement):
        if each.name in (*MEASURED, "recomputed"):
            continue
        if not _is_same(to_plain(getattr(before, each.name)), to_plain(getattr(after, each.name))):
            yield each.name


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_TOLERANCE) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_is_same(a[name], b[name]) for name in a)
    return bool(a == b)
