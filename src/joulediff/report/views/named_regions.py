"""The regions that the programs of a diff name, as a table whose columns sum to the step."""

from __future__ import annotations

import math

from joulediff.model.diff import Diff, NamedRegion
from joulediff.model.energy import Energy, higher_over_lower
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.short_texts import format_places, pick_unit, ratio_text, round_to_sum, shown_j

TITLE = "energy by named region"
REST = "(rest of the step)"


def named_region_table(diff: Diff) -> TextTable | None:
    """Return the energy of each named region on both sides; None without regions or energies."""
    rows = diff.named_regions
    totals = [shown_j(diff.a.step.energy), shown_j(diff.b.step.energy)]
    known = [total for total in totals if total is not None]
    if not rows or len(known) < len(totals) or not diff.comparable:
        return None
    factor, unit, places = pick_unit(max(map(abs, known)), "J")
    if not all(math.isfinite(total * 10**places / factor) for total in known):
        return None
    sides = [_cells([each.energy_a for each in rows], 10**places / factor, known[0], places)]
    sides.append(_cells([each.energy_b for each in rows], 10**places / factor, known[1], places))
    ratios = [*map(_ratio, rows), _energy_ratio(diff.a.step.energy, diff.b.step.energy)]
    names = [*(REST if each.name is None else each.name for each in rows), "all of a step"]
    counts = [f"{each.ops_a:,} ↔ {each.ops_b:,}" for each in rows]
    total = f"{sum(each.ops_a for each in rows):,} ↔ {sum(each.ops_b for each in rows):,}"
    emphasis: list[Emphasis] = ["" for _ in rows]
    columns = (
        Column(f"A {unit}", sides[0], is_right=True),
        Column(f"B {unit}", sides[1], is_right=True),
        Column("ratio", ratios, is_right=True),
        Column("operators", [*counts, total], is_right=True, spare=0),
        Column("region", names, cut="begin"),
    )
    return TextTable(columns, (*emphasis, "total"))


def _cells(energies: list[Energy | None], per_joule: float, total_j: float, places: int) -> list[str]:
    scaled = [None if each is None else each.joules * per_joule for each in energies]
    units = round_to_sum(scaled, total=round(total_j * per_joule))
    cells = [
        "-" if energy is None else format_places(each, places) for energy, each in zip(energies, units, strict=True)
    ]
    return [*cells, format_places(round(total_j * per_joule), places)]


def _ratio(row: NamedRegion) -> str:
    if (row.energy_a is None) != (row.energy_b is None):
        return "only in A" if row.energy_b is None else "only in B"
    return _energy_ratio(row.energy_a, row.energy_b)


def _energy_ratio(a: Energy | None, b: Energy | None) -> str:
    ratio = higher_over_lower(a, b)
    return "" if ratio is None else ratio_text(ratio)
