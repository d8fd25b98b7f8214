"""A match as JSON: every region with its operators and tensors, and what has no counterpart."""

from __future__ import annotations

from typing import Any

from joulediff.report.json import dump, energy_record
from joulediff.report.views.match_rows import MatchReport, MatchSide

MATCH_SCHEMA = "joulediff.match/1"


def match_to_json(report: MatchReport) -> str:
    """Return a match as JSON text."""
    return dump(match_record(report))


def match_record(report: MatchReport) -> dict[str, Any]:
    """Return the fields of `joulediff.match/1`. Operators and values are numbers of their own run."""
    return {
        "schema": MATCH_SCHEMA,
        "a": _side(report, report.a),
        "b": _side(report, report.b),
        "groups": [
            {
                "name": row.group.name,
                "where": row.group.where,
                "kind": row.group.kind,
                "regions": list(row.group.regions),
                "energy_a": energy_record(row.energy_a),
                "energy_b": energy_record(row.energy_b),
            }
            for row in report.rows
        ],
        "regions": [
            {
                "id": region.id,
                "kind": region.kind,
                "ops_a": list(region.a),
                "ops_b": list(region.b),
                "inputs": [list(pair) for pair in region.inputs],
                "outputs": [list(pair) for pair in region.outputs],
                "energy_a": energy_record(report.energies[region.id][0]),
                "energy_b": energy_record(report.energies[region.id][1]),
            }
            for region in report.regions
        ],
    }


def _side(report: MatchReport, side: MatchSide) -> dict[str, Any]:
    return {
        "label": side.run.label,
        "ops": [op.name for op in side.run.ops],
        "energy": energy_record(side.energy),
        "matched_share_of_ops": side.share_of_ops,
        "matched_share_of_energy": side.share_of_energy,
        "matched_energy": energy_record(side.matched_energy),
        "unmatched_energy": energy_record(side.unmatched_energy),
        "unmatched": list(side.unmatched),
        "unmatched_names": dict(report.unmatched_names(side)),
    }
