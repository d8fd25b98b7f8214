"""Joins the kernels of compiled code to the captured operators that they compute.

A region of compiled code runs graphs, and operators beside them. What a graph shows in the trace is aligned with the
parts of its generated code; on a CPU the generated kernels do not show, so they have the time between the calls that
do. Every kernel of a region with captured operators gets one of them: the nearest, if its own is not known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from joulediff.frameworks.torch.trace.align import plain_name
from joulediff.frameworks.torch.trace.fusion import find_members, longest_common, split_ops
from joulediff.frameworks.torch.trace.generated_code import Graph, Part, find_graph, is_fused_name, ops_in_name
from joulediff.frameworks.torch.trace.traced import Call, Traced
from joulediff.model.run import Join, Op

GRAPH = "## Call "
BACKWARD = "CompiledFunctionBackward"
_KEY = re.compile(r"## Call CompiledFxGraph (\w+) ##")


class Owner(NamedTuple):
    """The operators of a kernel: the one that has it, and the others that it computes."""

    op: int
    members: tuple[int, ...]
    join: Join


@dataclass(frozen=True, slots=True)
class HostWork:
    """A time of the host in compiled code."""

    name: str
    thread: int
    start_s: float
    duration_s: float
    owner: Owner


@dataclass(frozen=True, slots=True)
class CompiledWork:
    """`launches`: by place in the traced launches. `host`: the work of regions that launched nothing on a device."""

    launches: Mapping[int, Owner] = field(default_factory=dict)
    host: tuple[HostWork, ...] = ()
    regions: frozenset[int] = frozenset()
    """The regions whose operators are known."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """What a graph shows in the trace: a call, or kernels that no call in the graph launched."""

    name: str
    start_s: float
    call: int | None
    launches: tuple[int, ...]
    is_fill: bool = False
    """Whether it is a copy or a fill, which belongs to the kernel after it."""


@dataclass(slots=True)
class _Run:
    """One run of a graph, or one operator beside the graphs of a region."""

    region: int
    call: int
    items: list[_Item]
    parts: tuple[Part, ...]
    is_known: bool
    """Whether the parts come from generated code."""
    ops: list[Op] = field(default_factory=list)
    members: list[tuple[int, ...]] = field(default_factory=list)


def join_compiled(
    traced: Traced,
    regions: Iterable[int],
    ops: Sequence[Op],
    *,
    graphs: Sequence[Graph] = (),
    views: Collection[int] = (),
) -> CompiledWork:
    """Return the operators of the kernels of compiled regions.

    `regions` are the places of the outermost compiled calls, `ops` the captured operators that the program runs in
    compiled code, `graphs` the generated code, and `views` the operators that only return views.
    """
    reader = _Reader(traced, graphs, ops)
    by_phase: dict[bool, list[_Run]] = {False: [], True: []}
    for region in sorted(regions, key=lambda at: traced.calls[at].start_s):
        by_phase[traced.calls[region].name == BACKWARD] += reader.read_runs(region)
    for is_backward, runs in by_phase.items():
        captured = [op for op in ops if (op.phase == "backward") is is_backward]
        for run, own in zip(runs, split_ops([run.parts for run in runs], captured), strict=True):
            run.ops = own
            run.members = find_members(run.parts, own, views=views)
        _fill_empty(runs)
    every = [*by_phase[False], *by_phase[True]]
    launches, host = _own_launches(every), tuple(_own_host_work(traced, every))
    return CompiledWork(launches, host, frozenset(run.region for run in every if run.ops), tuple(_notes(every)))


def _fill_empty(runs: Sequence[_Run]) -> None:
    """Give the kernels of a run without operators the last operators of the nearest run that has some."""
    known = [at for at, run in enumerate(runs) if run.ops]
    for at, run in enumerate(runs):
        nearest = None if run.ops else min(known, key=lambda each: (abs(each - at), each), default=None)
        if nearest is not None:
            run.ops = runs[nearest].ops
            last = next(members for members in reversed(runs[nearest].members) if members)
            run.members = [last for _ in run.parts]


def _own_launches(runs: Iterable[_Run]) -> dict[int, Owner]:
    found: dict[int, Owner] = {}
    for run in runs:
        for item, part in zip(run.items, match_items(run.items, run.parts), strict=True):
            owner = None if part is None else _owner(run, (part,))
            if owner is not None:
                found.update(dict.fromkeys(item.launches, owner))
    return found


def _owner(run: _Run, parts: Iterable[int]) -> Owner | None:
    """Return the operators of parts of a run.

    A call of a library that computes one operator under the operator's own name is that operator.
    """
    chosen = [*parts]
    members = tuple(dict.fromkeys(op for part in chosen for op in run.members[part]))
    if not members:
        return None
    names = {op.id: plain_name(op.name) for op in run.ops}
    part = run.parts[chosen[0]]
    is_call = len(chosen) == 1 and not part.is_generated and len(members) == 1
    is_op = is_call and plain_name(part.name) == names[members[0]]
    return Owner(members[0], members[1:], "op" if is_op else "fused")


def match_items(items: Sequence[_Item], parts: Sequence[Part]) -> list[int | None]:
    """Return the part of each item: that of its name, in order; kernels without a name belong to parts in between."""
    shown = [plain_name(item.name) for item in items]
    named = dict(longest_common(shown, [plain_name(part.name) for part in parts]))
    found: list[int | None] = [named.get(at) for at in range(len(items))]
    begin, before = 0, -1
    for end in (*sorted(named), len(items)):
        after = named.get(end, len(parts))
        loose = [at for at in range(begin, end) if items[at].launches]
        _spread(loose, items, range(before + 1, after), found, nearest=before if before >= 0 else after)
        begin, before = end + 1, after
    return [None if part is not None and part >= len(parts) else part for part in found]


def _spread(
    loose: Sequence[int], items: Sequence[_Item], parts: Sequence[int], found: list[int | None], *, nearest: int
) -> None:
    """Give items without a name to the parts between two named ones: as many to each, if the numbers allow it."""
    units: list[list[int]] = []
    opened = False
    for at in loose:
        if opened:
            units[-1].append(at)
        else:
            units.append([at])
        opened = items[at].is_fill
    share = len(units) // len(parts) if parts and len(units) % len(parts) == 0 else 1
    for number, unit in enumerate(units):
        part = parts[min(number // max(1, share), len(parts) - 1)] if parts else nearest
        for at in unit:
            found[at] = part


def _own_host_work(traced: Traced, runs: Sequence[_Run]) -> Iterator[HostWork]:
    busy = {run.region for run in runs if any(item.launches for item in run.items)}
    for run in runs:
        if run.region not in busy:
            yield from _host_work_of(traced.calls, run)


def _host_work_of(calls: Sequence[Call], run: _Run) -> Iterator[HostWork]:
    """Yield the calls of a run, and the time between them for the generated kernels there."""
    graph = calls[run.call]
    shown = {part: item for item, part in zip(run.items, match_items(run.items, run.parts), strict=True)}
    hidden: list[int] = []
    edge_s = graph.start_s
    for part in range(len(run.parts)):
        item = shown.get(part)
        call = None if item is None or item.call is None else calls[item.call]
        if call is None:
            hidden.append(part)
            continue
        yield from _hidden_work(run, graph.thread, hidden, edge_s, call.start_s)
        if (owner := _owner(run, [part])) is not None:
            yield HostWork(call.name, call.thread, call.start_s, call.duration_s, owner)
        edge_s, hidden = call.start_s + call.duration_s, []
    yield from _hidden_work(run, graph.thread, hidden, edge_s, graph.start_s + graph.duration_s)


def _hidden_work(run: _Run, thread: int, parts: Sequence[int], start_s: float, end_s: float) -> Iterator[HostWork]:
    owner = _owner(run, parts) if parts else None
    if owner is not None and end_s > start_s:
        yield HostWork(run.parts[parts[0]].name, thread, start_s, end_s - start_s, owner._replace(join="fused"))


def _notes(runs: Sequence[_Run]) -> Iterator[str]:
    unknown = {run.call for run in runs if not run.is_known}
    if unknown:
        count = "1 graph" if len(unknown) == 1 else f"{len(unknown)} graphs"
        yield (
            f"the compiler keeps no code of {count} that the step runs: operators are joined to these kernels by name "
            "and order only"
        )


class _Reader:
    """Reads the runs of regions from a trace."""

    def __init__(self, traced: Traced, graphs: Sequence[Graph], ops: Sequence[Op]) -> None:
        self._calls = traced.calls
        self._traced = traced
        self._graphs = graphs
        names = dict.fromkeys(plain_name(op.name) for op in ops)
        self._known = {name.partition("::")[2]: name for name in names}
        self._launches: dict[int | None, list[int]] = defaultdict(list)
        for at, launch in enumerate(traced.launches):
            self._launches[launch.call].append(at)

    def read_runs(self, region: int) -> list[_Run]:
        """Return what a region runs, in order."""
        works = find_work(self._calls, region) or [region]
        runs = [self._read_run(region, call) for call in works]
        inside = {at for call in works for at in range(call, self._calls[call].end)}
        for at in range(region, self._calls[region].end):
            if at not in inside and self._launches[at]:
                self._add_loose(runs, self._launches[at])
        return runs

    def _add_loose(self, runs: Sequence[_Run], launches: Sequence[int]) -> None:
        """Add kernels that the region launched beside its graphs to the run before them."""
        for item in self._to_items(launches):
            before = [run for run in runs if self._calls[run.call].start_s <= item.start_s]
            run = before[-1] if before else runs[0]
            run.items.append(item)
            run.items.sort(key=lambda each: each.start_s)

    def _read_run(self, region: int, call: int) -> _Run:
        shown = self._calls[call]
        if "::" in shown.name:
            return self._read_op(region, call)
        found = _KEY.match(shown.name)
        items = self._read_items(call)
        graph = find_graph(self._graphs, found[1] if found else None, [item.name for item in items])
        parts = self._guess_parts(call, items) if graph is None else graph.parts
        return _Run(region, call, items, tuple(map(self._complete, parts)), is_known=graph is not None)

    def _read_op(self, region: int, call: int) -> _Run:
        """Return an operator beside the graphs as a run; a composite one runs the operators below it."""
        below = range(call, self._calls[call].end)
        names = dict.fromkeys(self._calls[at].name for at in below if "::" in self._calls[at].name)
        launches = tuple(at for each in below for at in self._launches[each])
        item = _Item(self._calls[call].name, self._calls[call].start_s, call, launches)
        part = Part(item.name, tuple(names), is_generated=len(names) > 1)
        return _Run(region, call, [item], (part,), is_known=True)

    def _read_items(self, graph: int) -> list[_Item]:
        """Return the calls that a graph shows, and the kernels that it launches itself, in order."""
        items: list[_Item] = self._to_items(self._launches[graph])
        at = graph + 1
        while at < self._calls[graph].end:
            call = self._calls[at]
            is_item = "::" in call.name or is_fused_name(call.name)
            end = call.end if is_item else at + 1
            launches = [launch for each in range(at, end) for launch in self._launches[each]]
            if is_item:
                items.append(_Item(call.name, call.start_s, at, tuple(launches)))
            else:
                items += self._to_items(launches)
            at = end
        return sorted(items, key=lambda item: item.start_s)

    def _to_items(self, launches: Iterable[int]) -> list[_Item]:
        kernels = [(at, self._traced.launches[at]) for at in launches]
        return [
            _Item(each.kernel.name, each.start_s, None, (at,), is_fill=each.kernel.kind in ("memcpy", "memset"))
            for at, each in kernels
        ]

    def _guess_parts(self, call: int, items: Sequence[_Item]) -> tuple[Part, ...]:
        """Return parts by what the trace shows, for a graph whose code is not there."""
        shown = [item for item in items if item.launches or item.call is None]
        if not shown:
            return (Part(self._calls[call].name, (), is_generated=True),)
        return tuple(
            Part(item.name, (item.name,) if "::" in item.name else (), is_generated="::" not in item.name)
            for item in shown
        )

    def _complete(self, part: Part) -> Part:
        """Return a part with the operators that its name tells, if the code does not."""
        if part.ops or not part.is_generated:
            return part
        if not is_fused_name(part.name):
            return Part(part.name, (f"triton::{part.name}",), is_generated=True)
        return Part(part.name, ops_in_name(part.name, self._known), is_generated=True)


def find_work(calls: Sequence[Call], region: int) -> list[int]:
    """Return the calls in a region that compute: its graphs, and operators beside them."""
    found, at = [], region + 1
    while at < calls[region].end:
        works = calls[at].name.startswith(GRAPH) or "::" in calls[at].name
        if works:
            found.append(at)
        at = calls[at].end if works else at + 1
    return found
