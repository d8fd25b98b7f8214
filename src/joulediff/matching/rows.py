"""Rows of a report: regions that repeat from layer to layer form one row with a name and a module.

Names come from the operators and modules of both sides. Matching itself does not use them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from joulediff.frameworks.framework import short_name
from joulediff.model.finding import Region, RegionKind
from joulediff.model.run import Run, is_view

# Most operators that a name lists; the others are counted.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RegionGroup:
    """Similar regions: the same operators in modules whose names differ by numbers only."""

    name: str
    """`bmm, mul, _softmax, 5 more ↔ scaled_dot_product_attention`; one name where both sides have the same."""
    where: str
    """`transformer.h.*.attn`, after the region that the program names; empty outside of both."""
    kind: RegionKind
    regions: tuple[int, ...]
    ops_a: int
    """Number of operators of one region in a."""
    ops_b: int


def group_regions(a: Run, b: Run, regions: Sequence[Region]) -> list[RegionGroup]:
    """Return the rows of a match, in the order of their first regions. Every region is in exactly one row."""
    found: defaultdict[tuple[str, str, RegionKind, bool], list[Region]] = defaultdict(list)
    for region in regions:
        # The sides of a region of two calls may differ in size, as the steps of a loop with and without a cache.
        key = (_name(a, b, region), _where(a, b, region), region.kind, region.basis == "call")
        found[key].append(region)
    return [
        RegionGroup(name, where, kind, tuple(each.id for each in group), len(group[0].a), len(group[0].b))
        for (name, where, kind, _), group in found.items()
    ]


def _name(a: Run, b: Run, region: Region) -> str:
    ours, theirs = name_ops(a, region.a), name_ops(b, region.b)
    if ours == theirs or not theirs:
        return ours
    return f"{ours} ↔ {theirs}" if ours else theirs


def name_ops(run: Run, ops: Sequence[int]) -> str:
    """Return a short name for operators: `mul, pow, add, 5 more`. Views are named only if there is nothing else."""
    computing = [op for op in ops if not is_view(run, op)] or list(ops)
    names = [short_name(run.ops[op].name) for op in computing]
    kinds = list(dict.fromkeys(names))
    if len(kinds) <= _NAMED:
        counts = Counter(names)
        return ", ".join(name if counts[name] == 1 else f"{name} ×{counts[name]}" for name in kinds)
    rest = len(names) - sum(names.count(name) for name in kinds[:_NAMED])
    return f"{', '.join(kinds[:_NAMED])}, {rest} more"


def _where(a: Run, b: Run, region: Region) -> str:
    """Return the named region and the module of most operators of a side: `encoder, model.layers.*.attn`."""
    for run, ops in ((a, region.a), (b, region.b)):
        modules = Counter(module for op in ops if (module := _module(run, op)))
        named = Counter(name for op in ops if (name := run.ops[op].region))
        if modules or named:
            module = _with_stars(modules.most_common(1)[0][0]) if modules else ""
            return ", ".join(filter(None, [named.most_common(1)[0][0] if named else "", module]))
    return ""


def common_module(run: Run, ops: Sequence[int]) -> str:
    """Return the narrowest module that contains all operators which are in one, with stars for numbers."""
    paths = [module.split(".") for op in ops if (module := _module(run, op))]
    if not paths:
        return ""
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return _with_stars(".".join(parts[0] for parts in shared))


def _with_stars(module: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def _module(run: Run, op: int) -> str | None:
    found = run.ops[op]
    if found.module is None and found.forward is not None:
        return run.ops[found.forward].module
    return found.module
