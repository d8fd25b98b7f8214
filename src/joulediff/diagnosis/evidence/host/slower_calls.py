"""Evidence: the host of one side takes longer in a function of a library that both call, or in its own Python code.

Programs that are written differently have no lines in common, so samples are compared by what the innermost line of
the user's calls, wherever that line is. Lines that run operators are left to the evidence on operators, unless these
only make tensors: then the time beyond them counts, such as that to convert a list to a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison, to_place
from joulediff.diagnosis.evidence.host.host_lines import HostLine, LineSearch
from joulediff.diagnosis.evidence.host.host_stacks import (
    Stack,
    launch_time_s,
    line_of,
    lines_with_operators,
    ops_by_line,
    shares_beyond_operators,
    slower_factor,
    stacks_of_both,
    time_of,
)
from joulediff.frameworks.framework import is_copy
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run, is_view

Callee = tuple[str, str] | None
"""File and name of a function of a library; None for the user's own code, and for the host's part of operators."""


def find_slower_calls(comparison: Comparison, expensive: SideName) -> tuple[HostLine, ...]:
    """Return the lines that call what this side spends more host time in, those with the most first."""
    runs = Pair(comparison.run(expensive), comparison.run(other_side(expensive)))
    stacks = stacks_of_both(runs)
    if stacks is None:
        return ()
    launch_s = launch_time_s(runs.b, stacks.b)
    search = LineSearch(runs.a, runs.b, slower_factor(*stacks), expensive, lines_with_operators(runs.a))
    mine, others = (_by_callee(run, each, launch_s) for run, each in zip(runs, stacks, strict=True))
    found = []
    for callee, calls in mine.items():
        theirs = others.get(callee, [])
        # A function that only this side calls may do what the other one does in its way.
        if (theirs or callee is None) and search.is_more(calls, theirs):
            line = _to_line(search, calls, theirs)
            found.append(line if callee is None else replace(line, other=_chief_place(runs.b, theirs)))
    return tuple(sorted(found, key=lambda line: -line.excess_s))


def _by_callee(run: Run, stacks: Sequence[Stack], launch_s: float) -> dict[Callee, list[Stack]]:
    """Return samples of the host alone by the function that the user's innermost line calls."""
    ops, shares = ops_by_line(run), shares_beyond_operators(run, stacks, launch_s)
    found: dict[Callee, list[Stack]] = {}
    for stack in stacks:
        if not stack.own or stack.is_gc:
            continue
        line = line_of(stack.own[-1])
        callee = None if stack.callee is None else (stack.callee.file, stack.callee.function)
        innermost = replace(stack, own=stack.own[-1:])
        if line in ops and stack.calls_framework:
            if not all(_only_makes(run, op) for op in ops[line]):
                continue
            callee, innermost = None, _part(innermost, shares[line])
        if innermost.count:
            found.setdefault(callee, []).append(innermost)
    return found


def _only_makes(run: Run, op: int) -> bool:
    """Return whether an operator computes nothing: it makes, copies or views a tensor."""
    found = run.ops[op]
    is_given = not found.writes and set(found.outputs) <= set(found.inputs)
    return is_given or not found.inputs or is_view(run, op) or is_copy(found.name)


def _part(stack: Stack, share: float) -> Stack:
    """Return a share of the time of samples, with the noise of all of it."""
    return replace(stack, time_s=share * stack.time_s, wait_s=share * stack.wait_s, count=round(share**2 * stack.count))


def _chief_place(run: Run, calls: Sequence[Stack]) -> Place | None:
    """Return the line with most of the time of a function's calls."""
    return to_place(run, max(calls, key=lambda stack: stack.time_s).own[0])


def _to_line(search: LineSearch, calls: Sequence[Stack], theirs: Sequence[Stack]) -> HostLine:
    """Return the line of the function with most of the calls, with the time of all calls on both sides."""
    functions: dict[tuple[str, str], list[Stack]] = {}
    for stack in calls:
        functions.setdefault((stack.own[0].file, stack.own[0].function), []).append(stack)
    line = search.to_line(max(functions.values(), key=time_of), [], 0)
    mine_s, other_s = time_of(calls), time_of(theirs)
    times_s = pair_from(search.expensive, mine_s, other_s)
    share = line.share * (mine_s - other_s) / line.excess_s
    return replace(line, seconds_a=times_s.a, seconds_b=times_s.b, share=share, runs_operators=False)
