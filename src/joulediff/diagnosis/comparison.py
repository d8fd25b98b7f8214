"""Two runs and what equals what in them, as every kind of evidence wants to look at it.

A region's own operators seldom stand alone: views and copies between them are regions of their own. `slice_of` gives
all that leads from the tensors both sides share to the region's outputs, so that it can be run as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from joulediff.diagnosis.evidence.settings import differing_settings
from joulediff.energy.ledger import Costs
from joulediff.frameworks.framework import settings_at
from joulediff.matching import TOLERANCE, RegionGroup, group_regions
from joulediff.model.finding import Region
from joulediff.model.pair import SIDES, SideName
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run

# A region with more than this before it, and three times its own operators, is not a matter of a few operators.
MAX_SLICE = 200


@dataclass(frozen=True)
class Comparison:
    """Both runs of a diff, with their regions."""

    a: Run
    b: Run
    regions: Sequence[Region]
    tolerance: float = TOLERANCE
    """With which they were matched."""

    @cached_property
    def groups(self) -> list[RegionGroup]:
        """Regions that repeat, as rows."""
        return group_regions(self.a, self.b, self.regions)

    @cached_property
    def costs(self) -> dict[SideName, Costs]:
        """What operators cost on each side."""
        return {"a": Costs(self.a), "b": Costs(self.b)}

    @cached_property
    def by_id(self) -> dict[int, Region]:
        """Regions by their numbers."""
        return {region.id: region for region in self.regions}

    @cached_property
    def carriers(self) -> dict[SideName, frozenset[int]]:
        """Operators that only bring tensors to others: of every region that does not compute the same on both sides."""
        return {
            side: frozenset(op for r in self.regions if r.kind != "equal" for op in ops_of(r, side)) for side in SIDES
        }

    def settings_alike(self, a: int, b: int) -> bool:
        """Return whether two operators ran under the same settings, as far as a program chooses them."""
        key = self._spans["a"][a], self._spans["b"][b]
        if key not in self._alike:
            self._alike[key] = not differing_settings(settings_at(self.a, a), settings_at(self.b, b))
        return self._alike[key]

    @cached_property
    def _alike(self) -> dict[tuple[int, int], bool]:
        return {}

    @cached_property
    def _spans(self) -> dict[SideName, list[int]]:
        """The span of settings that each operator lies in; -1 for none."""
        found: dict[SideName, list[int]] = {side: [-1] * len(self.run(side).ops) for side in SIDES}
        for side in SIDES:
            for number, span in enumerate(self.run(side).spans):
                found[side][span.first : span.last + 1] = [number] * (span.last + 1 - span.first)
        return found

    def run(self, side: SideName) -> Run:
        """Return the run of a side."""
        return self.a if side == "a" else self.b

    def slice_of(self, region: Region, side: SideName) -> tuple[int, ...]:
        """Return the operators of one side that lead from shared tensors to the region's outputs, in order."""
        found = set(ops_of(region, side))
        values = [value for op in found for value in self.run(side).ops[op].inputs]
        return self._with_carriers(found, values, {pair[0 if side == "a" else 1] for pair in region.inputs}, side)

    def reach_outputs(self, region: Region, side: SideName, ops: Sequence[int]) -> tuple[int, ...]:
        """Return operators with those behind them that only bring what they make to the region's outputs."""
        outputs = [pair[0 if side == "a" else 1] for pair in region.outputs]
        return self._with_carriers(set(ops), outputs, set(), side)

    def _with_carriers(self, found: set[int], values: list[int], shared: set[int], side: SideName) -> tuple[int, ...]:
        """Return operators with those that only bring values, back to what is shared."""
        run, carriers = self.run(side), self.carriers[side]
        most = 3 * len(found) + MAX_SLICE
        while values and len(found) <= most:
            value = values.pop()
            maker = run.values[value].producer
            if value in shared or maker is None or maker in found or maker not in carriers:
                continue
            found.add(maker)
            values += run.ops[maker].inputs
        return tuple(sorted(found))

    def readers_of(self, ops: Iterable[int], side: SideName) -> list[Region]:
        """Return the computing regions whose slices hold one of these operators."""
        wanted = set(ops)
        return [r for r in self.regions if r.kind == "equal" and wanted.intersection(self._slices[side][r.id])]

    @cached_property
    def _slices(self) -> dict[SideName, dict[int, tuple[int, ...]]]:
        equal = [region for region in self.regions if region.kind == "equal"]
        return {side: {region.id: self.slice_of(region, side) for region in equal} for side in SIDES}


def ops_of(region: Region, side: SideName) -> tuple[int, ...]:
    """Return a region's operators on one side."""
    return region.a if side == "a" else region.b


def costliest(sides: Comparison, side: SideName, ops: Iterable[int]) -> int | None:
    """Return the operator with the most joules, or else the most device time."""
    costs = sides.costs[side]

    def weight(op: int) -> tuple[float, float]:
        energy = costs.of([op])
        return (0.0 if energy is None else energy.joules, costs.time_s([op]) or 0.0)

    working = [op for op in ops if costs.kernels[op]]
    return max(working or list(ops), key=weight, default=None)


def to_place(run: Run, frame: Frame | None) -> Place | None:
    """Return a frame as a place, with its line of code where the run holds it."""
    if frame is None:
        return None
    return Place(frame.file, frame.line, frame.function, run.line_text(frame.file, frame.line))
