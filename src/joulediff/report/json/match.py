"""A match as JSON (`joulediff.match/1`): every region with its operators and tensors, and operators left over.

Operators and values are numbers of their own run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from joulediff.model.energy import Energy
from joulediff.model.finding import Basis, RegionKind
from joulediff.model.place import Place
from joulediff.report.json import copy_fields, dump
from joulediff.report.views.match_rows import MatchReport, MatchSide

MATCH_SCHEMA = "joulediff.match/1"


@dataclass(frozen=True, slots=True)
class MatchSideRecord:
    """One run of a match."""

    label: str
    ops: tuple[str, ...]
    energy: Energy | None
    share_of_ops: float = field(metadata={"name": "matched_share_of_ops"})
    share_of_energy: float | None = field(metadata={"name": "matched_share_of_energy"})
    matched_energy: Energy | None
    unmatched_energy: Energy | None
    unmatched: tuple[int, ...]
    unmatched_names: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Regions that are alike."""

    name: str
    where: str
    kind: RegionKind
    regions: tuple[int, ...]
    energy_a: Energy | None
    energy_b: Energy | None


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """One region, with the pairs of tensors at its borders."""

    id: int
    kind: RegionKind
    ops_a: tuple[int, ...]
    ops_b: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    energy_a: Energy | None
    energy_b: Energy | None
    basis: Basis
    drift: float | None


@dataclass(frozen=True, slots=True)
class DivergenceRecord:
    """Operators with equal inputs whose outputs differ more than rounding explains."""

    name: str
    where: str
    ops_a: tuple[int, ...]
    ops_b: tuple[int, ...]
    location_a: Place | None
    location_b: Place | None
    difference: float
    expected: float
    executed: float | None


@dataclass(frozen=True, slots=True)
class MatchRecord:
    """The fields of `joulediff.match/1`."""

    schema: str
    a: MatchSideRecord
    b: MatchSideRecord
    groups: tuple[GroupRecord, ...]
    regions: tuple[RegionRecord, ...]
    divergences: tuple[DivergenceRecord, ...]
    outputs_agree: bool
    notes: tuple[str, ...]


def match_to_json(report: MatchReport) -> str:
    """Return a match as JSON text."""
    groups = [copy_fields(GroupRecord, row.group, energy_a=row.energy_a, energy_b=row.energy_b) for row in report.rows]
    regions = []
    for region in report.regions:
        energy_a, energy_b = report.energies[region.id]
        regions.append(
            copy_fields(RegionRecord, region, ops_a=region.a, ops_b=region.b, energy_a=energy_a, energy_b=energy_b)
        )
    divergences = [
        copy_fields(DivergenceRecord, named, ops_a=each.a, ops_b=each.b)
        for named, each in zip(report.divergences, report.match.divergences, strict=True)
    ]
    return dump(
        MatchRecord(
            MATCH_SCHEMA,
            _side(report, report.a),
            _side(report, report.b),
            tuple(groups),
            tuple(regions),
            tuple(divergences),
            report.match.outputs_agree,
            report.match.notes,
        )
    )


def _side(report: MatchReport, side: MatchSide) -> MatchSideRecord:
    return copy_fields(
        MatchSideRecord,
        side,
        label=side.run.label,
        ops=tuple(op.name for op in side.run.ops),
        unmatched_names=dict(report.unmatched_names(side)),
    )
