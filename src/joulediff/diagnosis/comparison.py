"""Two runs, their matched regions, and the questions that evidence and trials ask about them.

The operators of a region can seldom run alone: views and copies between them are separate regions. `runnable_ops`
returns all operators from the tensors that both sides share to the region's outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from joulediff.diagnosis.evidence.recorded_settings import differing_settings
from joulediff.energy.ledger import Costs
from joulediff.frameworks.framework import outer_path, place_of, settings_at
from joulediff.matching.match_runs import TOLERANCE
from joulediff.matching.rows import RegionGroup, group_regions, name_ops
from joulediff.model.diff import NamedDivergence
from joulediff.model.energy import joules_of
from joulediff.model.finding import Divergence, Region
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run

if TYPE_CHECKING:
    from joulediff.diagnosis.evidence.state import Leaf

# The operators of a region with this share of its energy decide on its function.
_MAIN_SHARE = 0.95
# Limit on the operators added to a region, beside three times its own: more would no longer be about the region.
MAX_ADDED = 200


@dataclass(frozen=True)
class Comparison:
    """Both runs of a diff, with their regions."""

    a: Run
    b: Run
    regions: Sequence[Region]
    tolerance: float = TOLERANCE
    """The tolerance of the matching."""
    divergences: Sequence[Divergence] = ()
    """Where the runs begin to differ."""
    outputs_agree: bool = True

    @property
    def is_whole_step(self) -> bool:
        """Whether a side has no operators: there is nothing to match, and the steps are compared as a whole."""
        return not (self.a.ops and self.b.ops)

    @cached_property
    def groups(self) -> list[RegionGroup]:
        """Similar regions, grouped to rows."""
        return group_regions(self.a, self.b, self.regions)

    @cached_property
    def costs(self) -> dict[SideName, Costs]:
        """The costs of operators on each side."""
        return {"a": Costs(self.a), "b": Costs(self.b)}

    @cached_property
    def by_id(self) -> dict[int, Region]:
        """Regions by their numbers."""
        return {region.id: region for region in self.regions}

    @cached_property
    def moving_ops(self) -> dict[SideName, frozenset[int]]:
        """Operators that only move or prepare tensors: those of every region that is not `equal`."""
        return {
            side: frozenset(op for r in self.regions if r.kind != "equal" for op in ops_of(r, side)) for side in SIDES
        }

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The differences of state, the likeliest cause first."""
        from joulediff.diagnosis.evidence.state import compare_state

        return compare_state(self)

    def same_settings(self, a: int, b: int) -> bool:
        """Return whether two operators ran under the same settings that a program can choose."""
        key = self._spans["a"][a], self._spans["b"][b]
        if key not in self._same:
            self._same[key] = not differing_settings(settings_at(self.a, a), settings_at(self.b, b))
        return self._same[key]

    @cached_property
    def _same(self) -> dict[tuple[int, int], bool]:
        return {}

    @cached_property
    def _spans(self) -> dict[SideName, list[int]]:
        """The number of the span of settings of each operator; -1 for none."""
        found: dict[SideName, list[int]] = {side: [-1] * len(self.run(side).ops) for side in SIDES}
        for side in SIDES:
            for number, span in enumerate(self.run(side).spans):
                found[side][span.first : span.last + 1] = [number] * (span.last + 1 - span.first)
        return found

    def run(self, side: SideName) -> Run:
        """Return the run of a side."""
        return Pair(self.a, self.b).of(side)

    def runnable_ops(self, region: Region, side: SideName) -> tuple[int, ...]:
        """Return the operators of one side that lead from shared tensors to the region's outputs, in order."""
        found = set(ops_of(region, side))
        values = [value for op in found for value in self.run(side).ops[op].inputs]
        return self._with_moving_ops(found, values, set(region.inputs_of(side)), side)

    def extend_to_outputs(self, region: Region, side: SideName, ops: Sequence[int]) -> tuple[int, ...]:
        """Return operators, and those after them that only move their results to the region's outputs."""
        return self._with_moving_ops(set(ops), region.outputs_of(side), set(), side)

    def _with_moving_ops(self, found: set[int], values: list[int], shared: set[int], side: SideName) -> tuple[int, ...]:
        """Return operators, and those before them that only move values, back to the shared values."""
        run, moving_ops = self.run(side), self.moving_ops[side]
        most = 3 * len(found) + MAX_ADDED
        while values and len(found) <= most:
            value = values.pop()
            maker = run.values[value].producer
            if value in shared or maker is None or maker in found or maker not in moving_ops:
                continue
            found.add(maker)
            values += run.ops[maker].inputs
        return tuple(sorted(found))

    def readers_of(self, ops: Iterable[int], side: SideName) -> list[Region]:
        """Return the `equal` regions that need one of these operators to run."""
        wanted = set(ops)
        return [r for r in self.regions if r.kind == "equal" and wanted.intersection(self._runnable[side][r.id])]

    @cached_property
    def _runnable(self) -> dict[SideName, dict[int, tuple[int, ...]]]:
        equal = [region for region in self.regions if region.kind == "equal"]
        return {side: {region.id: self.runnable_ops(region, side) for region in equal} for side in SIDES}


def ops_of(region: Region, side: SideName) -> tuple[int, ...]:
    """Return a region's operators on one side."""
    return Pair(region.a, region.b).of(side)


def costliest(comparison: Comparison, side: SideName, ops: Iterable[int]) -> int | None:
    """Return the operator with the most energy, or else the most device time."""
    costs = comparison.costs[side]

    def weight(op: int) -> tuple[float, float]:
        return (joules_of(costs.of([op])), costs.time_s([op]) or 0.0)

    working = [op for op in ops if costs.kernels[op]]
    return max(working or list(ops), key=weight, default=None)


def to_place(run: Run, frame: Frame | None) -> Place | None:
    """Return a frame as a place, with its line of code where the run holds it."""
    if frame is None:
        return None
    return Place(frame.file, frame.line, frame.function, run.line_text(frame.file, frame.line))


def function_of(comparison: Comparison, side: SideName, ops: Sequence[int]) -> Place | None:
    """Return the narrowest function that contains operators, at its line that leads to the costliest one.

    Functions of a framework are left out, unless no other code called the operators. The cheapest operators, with a
    twentieth of the energy, do not count: an index that the region needs may be made far away.
    """
    run, chief = comparison.run(side), costliest(comparison, side, ops)
    if chief is None:
        return None
    path = _known_path(run, chief)
    depth = len(path)
    for other in {
        frame: op for op in _main_ops(comparison, side, ops) if (frame := run.ops[op].frame) is not None
    }.values():
        pairs = zip(path[:depth], _known_path(run, other), strict=False)
        depth = sum(1 for _ in takewhile(_is_same_function, pairs))
    return to_place(run, path[depth - 1]) if depth else None


def _main_ops(comparison: Comparison, side: SideName, ops: Sequence[int]) -> list[int]:
    """Return the operators with most of the energy; all if their energy is not known."""
    each_j = {op: joules_of(comparison.costs[side].of([op])) for op in ops}
    left_j = _MAIN_SHARE * sum(each_j.values())
    found: list[int] = []
    for op in sorted(ops, key=lambda op: -each_j[op]):
        if found and left_j <= 0.0 < sum(each_j.values()):
            break
        found.append(op)
        left_j -= each_j[op]
    return found


def _known_path(run: Run, op: int) -> tuple[Frame, ...]:
    return outer_path(run, op) or run.call_path(op)


def _is_same_function(frames: tuple[Frame, Frame]) -> bool:
    a, b = frames
    return (a.file, a.function) == (b.file, b.function)


def name_divergence(a: Run, b: Run, divergence: Divergence) -> NamedDivergence:
    """Return a divergence with the names, the module and the lines of its operators."""
    names = dict.fromkeys(filter(None, (name_ops(a, divergence.a), name_ops(b, divergence.b))))
    return NamedDivergence(
        name=" ↔ ".join(names),
        where=_module_of(a, divergence.a) or _module_of(b, divergence.b) or "",
        ops_a=tuple(a.ops[op].name for op in divergence.a),
        ops_b=tuple(b.ops[op].name for op in divergence.b),
        location_a=_first_place(a, divergence.a),
        location_b=_first_place(b, divergence.b),
        difference=divergence.difference,
        expected=divergence.expected,
        executed=divergence.executed,
    )


def _module_of(run: Run, ops: Iterable[int]) -> str | None:
    """Return the module of most operators; a backward operator belongs to the module of its forward operator."""
    found: Counter[str] = Counter()
    for op in ops:
        forward = run.ops[op].forward
        module = run.ops[op].module or (None if forward is None else run.ops[forward].module)
        found.update([module] if module else [])
    return found.most_common(1)[0][0] if found else None


def _first_place(run: Run, ops: Sequence[int]) -> Place | None:
    return to_place(run, place_of(run, ops[0])) if ops else None
