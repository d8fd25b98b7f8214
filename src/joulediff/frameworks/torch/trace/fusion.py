"""Finds which captured operators each part of compiled code computes.

The captured pass runs compiled code eagerly, so its operators are known in order, but not which kernel computes each.
Calls of libraries are found by order. Another operator belongs to the earliest generated kernel that names it, after
those that make its inputs and before the calls that need its result. An operator that no part names was removed, or is
a view, and needs no kernel.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.frameworks.torch.trace.align import plain_name
from joulediff.frameworks.torch.trace.generated_code import Part
from joulediff.model.run import Op


def split_ops(graphs: Sequence[Sequence[Part]], ops: Sequence[Op]) -> list[list[Op]]:
    """Return the operators of each graph; graphs and operators are in the order in which they ran.

    The longest common sequence of names shows where one graph ends and the next one begins. An operator between two
    graphs belongs to the earlier one, unless only the later one names it.
    """
    if len(graphs) < 2:
        return [list(ops) for _ in graphs]
    tokens = [(at, name) for at, parts in enumerate(graphs) for part in parts for name in _names(part)]
    found: list[list[Op]] = [[] for _ in graphs]
    named = [{name for part in parts for name in _names(part)} for parts in graphs]
    matched = dict(longest_common([plain_name(op.name) for op in ops], [name for _, name in tokens]))
    places = [tokens[matched[at]][0] if at in matched else None for at in range(len(ops))]
    following: list[int | None] = [None] * len(ops)
    after: int | None = None
    for at in range(len(ops) - 1, -1, -1):
        after = places[at] if places[at] is not None else after
        following[at] = after
    here: int | None = None
    for op, place, later in zip(ops, places, following, strict=True):
        here = place if place is not None else here
        name = plain_name(op.name)
        begins = later is not None and (here is None or (name in named[later] and name not in named[here]))
        chosen = later if begins else here
        if chosen is not None:
            here = chosen
            found[chosen].append(op)
    return found


def find_members(parts: Sequence[Part], ops: Sequence[Op], *, views: Collection[int] = ()) -> list[tuple[int, ...]]:
    """Return the operators that each part of one graph computes, in order; none only if the graph has no operator.

    A part that is not the first to name an operator computes it again or finishes it, so it has that operator, too. A
    part that names none of the operators has that of the nearest part.
    """
    assigned = _Assignment(parts, ops, frozenset(views))
    assigned.assign()
    return assigned.complete()


@dataclass(slots=True)
class _Assignment:
    parts: Sequence[Part]
    ops: Sequence[Op]
    views: frozenset[int]
    members: list[list[int]] = field(init=False)
    _generated: dict[str, list[int]] = field(init=False)
    """By name of an operator: the generated parts that name it."""

    def __post_init__(self) -> None:
        self.members = [[] for _ in self.parts]
        self._generated = defaultdict(list)
        for at, part in enumerate(self.parts):
            for name in _names(part) if part.is_generated else ():
                self._generated[name].append(at)

    def assign(self) -> None:
        """Give each operator to the earliest generated part that can run it, between the calls that surround it."""
        calls = self._find_calls()
        latest = self._find_latest(calls)
        made_by: dict[int, int] = {}
        called = -1
        for at, op in enumerate(self.ops):
            first = max((made_by.get(value, -1) for value in op.inputs), default=-1)
            place = calls.get(at)
            if place is not None:
                called = place
            elif op.id not in self.views:
                # What depends on nothing, such as a mask, runs about where the program made it.
                place = self._place_of(plain_name(op.name), called if first < 0 else first, latest[at])
            if place is not None:
                self.members[place].append(op.id)
            made_by.update(dict.fromkeys((*op.outputs, *op.writes), first if place is None else place))

    def _find_calls(self) -> dict[int, int]:
        """Return the part of each operator that is a call of a library, in the order of both."""
        known = {plain_name(op.name) for op in self.ops if op.id not in self.views}
        calls = [(at, part) for at, part in enumerate(self.parts) if not part.is_generated]
        names = [next((name for name in _names(part) if name in known), part.name) for _, part in calls]
        pairs = longest_common([plain_name(op.name) for op in self.ops], names)
        return {op: calls[call][0] for op, call in pairs}

    def _find_latest(self, calls: Mapping[int, int]) -> list[int]:
        """Return the last part before any call that needs an operator's results."""
        needed: dict[int, int] = {}
        found = [len(self.parts)] * len(self.ops)
        for at in range(len(self.ops) - 1, -1, -1):
            op = self.ops[at]
            found[at] = min(
                (needed.get(value, len(self.parts)) for value in (*op.outputs, *op.writes)), default=len(self.parts)
            )
            limit = calls[at] - 1 if at in calls else found[at]
            for value in op.inputs:
                needed[value] = min(needed.get(value, limit), limit)
        return found

    def _place_of(self, name: str, first: int, last: int) -> int | None:
        places = self._generated.get(name, ())
        at = bisect_left(places, first)
        return places[at] if at < len(places) and places[at] <= last else None

    def complete(self) -> list[tuple[int, ...]]:
        """Return the operators of each part; a part without one gets those of another part."""
        names = {op.id: plain_name(op.name) for op in self.ops}
        owners = [at for at, members in enumerate(self.members) if members]
        found = [tuple(members) for members in self.members]
        for at, part in enumerate(self.parts):
            if found[at]:
                continue
            alike = [each for each in owners if any(names[op] in _names(part) for op in self.members[each])]
            nearest = min(alike or owners, key=lambda each: (abs(each - at), each), default=None)
            if nearest is not None:
                same = tuple(op for op in self.members[nearest] if names[op] in _names(part))
                found[at] = same or (self.members[nearest][-1 if nearest < at else 0],)
            elif self.ops:
                computing = [op.id for op in self.ops if op.id not in self.views]
                found[at] = tuple(computing or [op.id for op in self.ops])
        return found


def _names(part: Part) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plain_name(name) for name in part.ops))


def longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of a longest common subsequence, in order.

    Rows of the usual table are numbers whose zero bits mark a growth of the length (Hyyrö 2004), so sequences of
    thousands take milliseconds.
    """
    mask = (1 << len(b)) - 1
    where: dict[Hashable, int] = defaultdict(int)
    for at, item in enumerate(b):
        where[item] |= 1 << at
    rows = [mask]
    for item in a:
        row = rows[-1]
        both = row & where.get(item, 0)
        rows.append(((row + both) | (row - both)) & mask)
    found: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if rows[i] >> (j - 1) & 1:
            j -= 1  # the last item of `b` adds nothing
        elif _grown(rows[i - 1], j) == _grown(rows[i], j):
            i -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def _grown(row: int, count: int) -> int:
    return count - (row & ((1 << count) - 1)).bit_count()
