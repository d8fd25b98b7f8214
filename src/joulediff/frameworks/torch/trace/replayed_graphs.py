"""Joins the kernels of replayed CUDA graphs to the operators that were captured into them.

A replay launches all kernels of a graph at once. On one stream they run in the order of capture, and each operator is
known by how many it has. Otherwise the kernels of the graph have all of its operators in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.frameworks.torch.trace.compiled import Owner
from joulediff.frameworks.torch.trace.traced import GraphReplay, Traced

# A replay fills in a seed and an offset for random numbers.
_SEED, _SEEDS = "aten::fill_", 2


@dataclass(frozen=True, slots=True)
class GraphWork:
    """`launches`: by place in the traced launches. `calls`: the traced calls that belong to a replay."""

    launches: Mapping[int, Owner] = field(default_factory=dict)
    calls: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def join_graphs(traced: Traced, replays: Sequence[GraphReplay], *, outside: Collection[int]) -> GraphWork:
    """Return the operators of the kernels of graphs; `outside` are launches that belong to compiled code."""
    graphs: defaultdict[int, list[int]] = defaultdict(list)
    for at, launch in enumerate(traced.launches):
        if launch.graph is not None and at not in outside:
            graphs[launch.graph].append(at)
    launches: dict[int, Owner] = {}
    calls: set[int] = set()
    for group, replay in zip(graphs.values(), replays, strict=False):
        group.sort(key=lambda at: traced.launches[at].kernel.start_s)
        launches.update(zip(group, _owners(replay, len(group)), strict=False))
        if replay.is_random and replay.ops:
            seeds = set(_find_seeds(traced, group[0]))
            calls |= seeds
            owner = Owner(replay.ops[0], (), "fused")
            launches.update({at: owner for at, launch in enumerate(traced.launches) if launch.call in seeds})
    return GraphWork(launches, frozenset(calls), tuple(_notes(len(graphs), replays)))


def _owners(replay: GraphReplay, kernels: int) -> list[Owner]:
    """Return the owner of each kernel of a graph, in the order in which they run."""
    if replay.nodes is not None and sum(replay.nodes) == kernels:
        pairs = zip(replay.ops, replay.nodes, strict=True)
        return [Owner(op, (), "op") for op, count in pairs for _ in range(count)]
    if not replay.ops:
        return []
    working = replay.ops
    if replay.nodes is not None:
        working = tuple(op for op, count in zip(replay.ops, replay.nodes, strict=True) if count) or replay.ops
    owner = Owner(working[0], working[1:], "fused" if replay.is_known else "op")
    return [owner] * kernels


def _find_seeds(traced: Traced, launch: int) -> Iterator[int]:
    """Yield the calls just before the launch of a graph that fill in its seeds."""
    found = traced.launches[launch]
    before = [
        at
        for at, call in enumerate(traced.calls)
        if call.parent == found.call and call.start_s + call.duration_s <= found.start_s
    ]
    for at in before[-_SEEDS:]:
        if traced.calls[at].name == _SEED:
            yield at


def _notes(graphs: int, replays: Sequence[GraphReplay]) -> Iterator[str]:
    unknown = sum(not replay.is_known for replay in replays)
    if unknown:
        count = (
            "1 replay of a CUDA graph is one row"
            if unknown == 1
            else f"{unknown} replays of CUDA graphs are a row each"
        )
        yield (
            f"{count}: its operators are not known. They are known if joulediff starts the program, and the graph runs "
            "nothing but PyTorch's operators"
        )
    if replays and graphs != len(replays):
        yield f"the captured step replayed {len(replays)} CUDA graphs, the traced one {graphs}"
