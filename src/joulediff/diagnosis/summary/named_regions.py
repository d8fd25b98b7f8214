"""The energy of each side in the regions that the programs name with `joulediff.region`.

Each operator counts in its innermost region, so the regions and the rest sum to the metered energy.
"""

from __future__ import annotations

from joulediff.diagnosis.comparison import Comparison
from joulediff.model.diff import NamedRegion
from joulediff.model.energy import joules_of, remainder
from joulediff.model.pair import SIDES, Pair


def compare_named_regions(comparison: Comparison) -> tuple[NamedRegion, ...]:
    """Return the regions of both sides with the most energy first, and the rest of the step; empty without regions."""
    ops: dict[str, Pair[list[int]]] = {}
    counts = []
    for side in SIDES:
        run = comparison.run(side)
        counts.append(len(run.ops))
        for op in run.ops:
            if op.region is not None:
                ops.setdefault(op.region, Pair([], [])).of(side).append(op.id)
    found = [
        NamedRegion(
            name,
            len(ids.a),
            len(ids.b),
            comparison.costs["a"].of(ids.a),
            comparison.costs["b"].of(ids.b),
        )
        for name, ids in ops.items()
    ]
    if not found:
        return ()
    found.sort(key=lambda each: -max(joules_of(each.energy_a), joules_of(each.energy_b)))
    rest = [remainder(comparison.costs[side].total, [each.energies.of(side) for each in found]) for side in SIDES]
    in_regions = Pair(sum(each.ops_a for each in found), sum(each.ops_b for each in found))
    return (*found, NamedRegion(None, counts[0] - in_regions.a, counts[1] - in_regions.b, rest[0], rest[1]))
