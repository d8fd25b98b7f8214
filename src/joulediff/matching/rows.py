"""Regions for people: those that repeat from layer to layer are one row, with a name and a place.

Names come from the operators and modules of both sides; they describe what was matched and had no part in it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.frameworks.framework import short_name
from joulediff.model.finding import Region, RegionKind
from joulediff.model.run import Run

# So many operators are named, and then the rest counted.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RegionGroup:
    """Regions that are alike: the same operators in modules that differ by numbers alone."""

    name: str
    """`bmm, mul, _softmax, 5 more ↔ scaled_dot_product_attention`; one side's name where both are alike."""
    where: str
    """`transformer.h.*.attn`; empty outside of modules."""
    kind: RegionKind
    regions: tuple[int, ...]
    ops_a: int
    """Operators of one region in a."""
    ops_b: int


def group_regions(a: Run, b: Run, regions: Sequence[Region]) -> list[RegionGroup]:
    """Return the rows of a match, in the order of their first regions. Every region is in one of them."""
    found: defaultdict[tuple[str, str, RegionKind], list[Region]] = defaultdict(list)
    for region in regions:
        found[_name(a, b, region), _where(a, b, region), region.kind].append(region)
    return [
        RegionGroup(name, where, kind, tuple(each.id for each in group), len(group[0].a), len(group[0].b))
        for (name, where, kind), group in found.items()
    ]


def _name(a: Run, b: Run, region: Region) -> str:
    ours, theirs = name_ops(a, region.a), name_ops(b, region.b)
    if ours == theirs or not theirs:
        return ours
    return f"{ours} ↔ {theirs}" if ours else theirs


def name_ops(run: Run, ops: Sequence[int]) -> str:
    """Return operators in a few words: `mul, pow, add, 5 more`; views are named only if there is nothing else."""
    computing = [op for op in ops if not is_view(run, op)] or list(ops)
    names = [short_name(run.ops[op].name) for op in computing]
    kinds = list(dict.fromkeys(names))
    if len(kinds) <= _NAMED:
        counts = Counter(names)
        return ", ".join(name if counts[name] == 1 else f"{name} ×{counts[name]}" for name in kinds)
    rest = len(names) - sum(names.count(name) for name in kinds[:_NAMED])
    return f"{', '.join(kinds[:_NAMED])}, {rest} more"


def is_view(run: Run, op: int) -> bool:
    """Return whether an operator only gives other shapes to memory that it reads."""
    found = run.ops[op]
    memory = {run.values[value].storage for value in found.inputs}
    return bool(found.outputs) and not found.writes and all(run.values[v].storage in memory for v in found.outputs)


def _where(a: Run, b: Run, region: Region) -> str:
    """Return the module that most operators of a side belong to, with stars for numbers."""
    for run, ops in ((a, region.a), (b, region.b)):
        modules = Counter(module for op in ops if (module := _module(run, op)))
        if modules:
            return re.sub(r"(?<![^.])\d+(?![^.])", "*", modules.most_common(1)[0][0])
    return ""


def _module(run: Run, op: int) -> str | None:
    found = run.ops[op]
    if found.module is None and found.forward is not None:
        return run.ops[found.forward].module
    return found.module
