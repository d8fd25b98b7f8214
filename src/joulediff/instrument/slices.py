"""Divides the energy of one domain among the segments of a program, up to the last reading of the meter.

Between two readings only their difference is known. The energy above the floor, which is the idle power, is divided by
CPU time (a CPU's domains) or by time (all others); the floor by time. All that is divided adds up to the readings: what
no segment covers counts as outside of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulediff.instrument.recorder import BETWEEN, Node

# Two parts of a program that run between the same two readings differ at most by this factor in watts for a second of
# CPU time: vector code and waiting for memory differ by less on the CPUs in the table of `meters/estimated`'s sources.
CPU_POWER_RATIO = 2.0
# A node that did this share of the work between two readings had nearly all their energy for itself.
CERTAIN_SHARE = 0.9
_TINY_S = 1e-12


@dataclass(frozen=True, slots=True)
class Points:
    """The energy of a domain at the moments it is known, since any moment."""

    time_s: np.ndarray
    energy_j: np.ndarray
    error_j: np.ndarray
    """Standard error of each point's energy since the point before."""


@dataclass(frozen=True, slots=True)
class Work:
    """CPU time at moments in order: of the program's process, and of the processes that it started."""

    time_s: np.ndarray
    own_s: np.ndarray
    children_s: np.ndarray

    def own(self, time_s: np.ndarray) -> np.ndarray:
        """Return the CPU time of the process at any moments."""
        return np.asarray(np.interp(time_s, self.time_s, self.own_s))

    def children(self, time_s: np.ndarray) -> np.ndarray:
        """Return the CPU time of other processes at any moments."""
        return np.asarray(np.interp(time_s, self.time_s, self.children_s))


@dataclass(frozen=True, slots=True)
class Shares:
    """What nodes got between readings. `joules` are above the floor; `floor_s` is their time, shared by threads."""

    node: np.ndarray
    joules: np.ndarray
    low_j: np.ndarray
    high_j: np.ndarray
    variance_j2: np.ndarray
    certain_j: np.ndarray
    """The part of `joules` from between readings that the node had for itself."""

    @staticmethod
    def sums(shares: Shares, count: int) -> np.ndarray:
        """Return the sums by node, a row for each node: joules, low, high, variance, certain."""
        fields = (shares.joules, shares.low_j, shares.high_j, shares.variance_j2, shares.certain_j)
        return np.stack([np.bincount(shares.node, each, minlength=count) for each in fields], axis=1)


@dataclass(frozen=True, slots=True)
class Divided:
    """The energy between two moments of one domain: by node, alone and with the calls inside."""

    own: np.ndarray
    """A row for each node: joules above the floor, low, high, variance, certain."""
    total: np.ndarray
    floor_s: np.ndarray
    """By node: its time, divided by the number of threads that were in calls."""
    children: np.ndarray
    """One row, for the processes that the program started."""
    inside_j: float
    """All energy above the floor in the program's time."""
    inside_s: float


def divide(
    table: np.ndarray,
    nodes: Sequence[Node],
    points: Points,
    work: Work,
    *,
    start_s: float,
    end_s: float,
    program_s: tuple[float, float],
    floor_w: float,
    most_w: float,
    by_cpu: bool,
    is_exact: bool,
) -> Divided:
    """Return what each node used from `start_s` to `end_s`, which are moments of points. `table` has the segments.

    The program ran in `program_s`. No part of the time has more than `most_w` above the floor. `is_exact` says that
    energy is CPU time times watts, as an estimate is.
    """
    count = len(nodes)
    parents = np.array([node.parent for node in nodes])
    is_gap = np.array([node.parent == BETWEEN or node.id == BETWEEN for node in nodes])
    first, last = (int(np.searchsorted(points.time_s, edge)) for edge in (start_s, end_s))
    known_s = points.time_s[first : last + 1]
    energy_j = np.diff(points.energy_j[first : last + 1]) - floor_w * np.diff(known_s)
    error_j = points.error_j[first + 1 : last + 1]
    here_s = np.clip(program_s, start_s, end_s)
    begin, end = np.clip(table[:, 1], *here_s), np.clip(table[:, 2], *here_s)
    used = end > begin
    owner, begin, end = table[used, 0].astype(int), begin[used], end[used]
    edges = np.unique(np.concatenate([known_s, begin, end, here_s]))
    width_s = np.diff(edges)
    interval = np.clip(np.searchsorted(known_s, edges[:-1] + width_s / 2) - 1, 0, len(known_s) - 2)

    from_slice, to_slice = np.searchsorted(edges, begin), np.searchsorted(edges, end)
    in_calls = ~is_gap[owner]
    change = np.zeros(len(edges), dtype=int)
    np.add.at(change, from_slice[in_calls], 1)
    np.add.at(change, to_slice[in_calls], -1)
    threads = np.cumsum(change)[:-1]
    each, at = _expand(owner, from_slice, to_slice)
    weight = np.where(is_gap[each], (threads[at] == 0).astype(float), 1.0 / np.maximum(threads[at], 1))
    keep = weight > 0
    each, at, weight = each[keep], at[keep], weight[keep]

    own_s = np.diff(work.own(edges)) if by_cpu else width_s
    children_s = np.diff(work.children(edges)) if by_cpu else np.zeros(len(width_s))
    all_s = np.bincount(interval, own_s + children_s, minlength=len(known_s) - 1)
    # Without any CPU time between two readings, time divides.
    is_still = all_s[interval] <= _TINY_S
    own_s = np.where(is_still, width_s, own_s)
    all_s = np.where(all_s <= _TINY_S, np.diff(known_s), all_s)

    inside = (edges[:-1] >= program_s[0] - _TINY_S) & (edges[1:] <= program_s[1] + _TINY_S)
    ratio = 1.0 if is_exact else CPU_POWER_RATIO if by_cpu else np.inf
    price = _Price(energy_j, error_j, np.diff(known_s) * most_w, ratio)
    own = _pair_shares(each, interval[at], own_s[at] * weight / all_s[interval[at]], count)
    total = _with_ancestors(own, parents, count)
    children = _pair_shares(
        np.zeros(int(inside.sum()), dtype=int), interval[inside], (children_s / all_s[interval])[inside], 1
    )
    part = (own_s + np.where(is_still, 0.0, children_s)) / all_s[interval]
    return Divided(
        own=Shares.sums(price.of(*own), count),
        total=Shares.sums(price.of(*total), count),
        floor_s=np.bincount(each, width_s[at] * weight, minlength=count),
        children=Shares.sums(price.of(*children), 1),
        inside_j=float((energy_j[interval] * part)[inside].sum()),
        inside_s=float(width_s[inside].sum()),
    )


def _expand(owner: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the owner and the number of each slice that segments cover."""
    counts = last - first
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return np.repeat(owner, counts), starts + np.arange(int(counts.sum()))


def _pair_shares(
    node: np.ndarray, interval: np.ndarray, share: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the node, the interval and the share of each pair of both that occurs."""
    pairs, place = np.unique(interval * count + node, return_inverse=True)
    return pairs % count, pairs // count, np.bincount(place, share, minlength=len(pairs))


def _with_ancestors(
    own: tuple[np.ndarray, np.ndarray, np.ndarray], parents: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs with the shares of all nodes below them."""
    node, interval, share = own
    levels = [(node, interval, share)]
    while len(node):
        node = parents[node]
        there = node >= 0
        node, interval, share = node[there], interval[there], share[there]
        levels.append((node, interval, share))
    node, interval, share = (np.concatenate(each) for each in zip(*levels, strict=True))
    return _pair_shares(node.astype(int), interval.astype(int), share, count)


@dataclass(frozen=True, slots=True)
class _Price:
    """The energy between each two readings, and how much two parts of it may differ.

    With a finite ratio they differ by that factor for the same share; else each part has between nothing and its share
    of `most_j`.
    """

    energy_j: np.ndarray
    error_j: np.ndarray
    most_j: np.ndarray
    ratio: float

    def of(self, node: np.ndarray, interval: np.ndarray, share: np.ndarray) -> Shares:
        energy_j = self.energy_j[interval]
        share = np.clip(share, 0.0, 1.0)
        rest = 1.0 - share
        joules = energy_j * share
        if np.isinf(self.ratio):
            most_j = self.most_j[interval]
            low_j, high_j = np.maximum(0.0, energy_j - rest * most_j), np.minimum(energy_j, share * most_j)
        else:
            low_j = energy_j * share / np.maximum(share + self.ratio * rest, _TINY_S)
            high_j = energy_j * share / np.maximum(share + rest / self.ratio, _TINY_S)
        ends = np.sort(np.stack([low_j, high_j]), axis=0)
        return Shares(
            node=node,
            joules=joules,
            low_j=np.minimum(ends[0], joules),
            high_j=np.maximum(ends[1], joules),
            variance_j2=(share * self.error_j[interval]) ** 2,
            certain_j=np.where((share >= CERTAIN_SHARE) | (self.ratio == 1.0), joules, 0.0),
        )
