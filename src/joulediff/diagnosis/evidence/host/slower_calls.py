"""Evidence: the host of one side takes longer in a function of a library that both call, or in its own Python code.

Programs that are written differently have no lines in common, so samples are compared by what the innermost line of
the user's calls, wherever that line is. Lines that run operators are left to the evidence on operators.
"""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.host.host_lines import HostLine, LineSearch
from joulediff.diagnosis.evidence.host.host_stacks import (
    Stack,
    lines_with_operators,
    slower_factor,
    stacks_of_both,
    time_of,
)
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.run import Run

Callee = tuple[str, str] | None
"""File and name of a function of a library; None for the user's own code."""


def find_slower_calls(comparison: Comparison, expensive: SideName) -> tuple[HostLine, ...]:
    """Return the lines that call what this side spends more host time in, those with the most first."""
    runs = Pair(comparison.run(expensive), comparison.run(other_side(expensive)))
    stacks = stacks_of_both(runs)
    if stacks is None:
        return ()
    search = LineSearch(runs.a, runs.b, slower_factor(*stacks), expensive, lines_with_operators(runs.a))
    mine, others = (_by_callee(run, each) for run, each in zip(runs, stacks, strict=True))
    found = []
    for callee, calls in mine.items():
        theirs = others.get(callee, [])
        # A function that only this side calls may do what the other one does in its way.
        if (theirs or callee is None) and search.is_more(calls, theirs):
            found.append(_to_line(search, calls, theirs))
    return tuple(sorted(found, key=lambda line: -line.excess_s))


def _by_callee(run: Run, stacks: list[Stack]) -> dict[Callee, list[Stack]]:
    """Return samples of the host alone by the function that the user's innermost line calls."""
    with_operators = lines_with_operators(run)
    found: dict[Callee, list[Stack]] = {}
    for stack in stacks:
        if not stack.own or stack.is_gc or (stack.own[-1].file, stack.own[-1].line) in with_operators:
            continue
        callee = None if stack.callee is None else (stack.callee.file, stack.callee.function)
        found.setdefault(callee, []).append(replace(stack, own=stack.own[-1:]))
    return found


def _to_line(search: LineSearch, calls: list[Stack], theirs: list[Stack]) -> HostLine:
    """Return the line of the function with most of the calls, with the time of all calls on both sides."""
    functions: dict[tuple[str, str], list[Stack]] = {}
    for stack in calls:
        functions.setdefault((stack.own[0].file, stack.own[0].function), []).append(stack)
    line = search.to_line(max(functions.values(), key=time_of), [], 0)
    mine_s, other_s = time_of(calls), time_of(theirs)
    times_s = pair_from(search.expensive, mine_s, other_s)
    share = line.share * (mine_s - other_s) / line.excess_s
    return replace(line, seconds_a=times_s.a, seconds_b=times_s.b, share=share)
