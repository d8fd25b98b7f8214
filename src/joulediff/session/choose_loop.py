"""Chooses the loop of a script that is the step: the marked one, the one that the user names, or the one that trains.

What the source cannot decide is decided while the script runs, among the loops that are returned.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulediff.frameworks.framework import frameworks
from joulediff.model.errors import ProgramError
from joulediff.model.options import ANY_LOOP
from joulediff.pysource.loops.find_loops import FoundLoop, Script, find_loops
from joulediff.pysource.scripts import check_source

LISTED = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """The loops of which the first that runs often enough is the step."""

    loops: tuple[FoundLoop, ...]
    needs_model: bool = False
    """Whether only an iteration that calls a model counts, since the source does not show which loop does the work."""


def read_script(source: bytes, name: str) -> Script:
    """Return the loops of a script; raises ProgramError for a syntax error."""
    check_source(source, name)
    return find_loops(ast.parse(source), source)


def choose_loops(script: Script, where: str, name: str) -> Choice:
    """Return the loops that `where` may mean: a line, a function or `ANY_LOOP`. `name` is that of the script."""
    if where.isdecimal():
        return Choice((_at_line(script, int(where), name),))
    if where == ANY_LOOP:
        return _choose_among(script, script.marked or script.loops, f"{name}", name)
    inside = [each for each in script.loops if where in (each.place, each.place.rpartition(".")[2])]
    if not inside:
        raise ProgramError(f"{name} has no loop in a function {where}", fix=_which(script.loops))
    return _choose_among(script, inside, f"{where} in {name}", name)


def _choose_among(script: Script, loops: Sequence[FoundLoop], place: str, name: str) -> Choice:
    if not loops:
        raise ProgramError(f"{place} has no loop that could be the step", fix=_without_loop(name))
    marked = [each for each in loops if each.kind != "loop"]
    if len(marked) == 1:
        return Choice((_usable(marked[0], name),))
    if marked:
        raise ProgramError(f"{len(marked)} loops or blocks of {place} are marked as the step", fix=_which(marked))
    training = script.calling(_training_calls(), loops)
    usable = script.working(training)
    if training and not usable:
        _usable(training[0], name)
    if usable:
        return Choice(tuple(usable))
    working = script.working(loops)
    if not working and len(loops) == 1:
        working = [_usable(loops[0], name)]
    if not working:
        raise ProgramError(f"no loop of {place} calls a function or a model", fix=_without_loop(name))
    return Choice(tuple(working), needs_model=len(working) > 1)


def _training_calls() -> frozenset[str]:
    return frozenset(call for each in frameworks() for call in each.training_calls)


def _at_line(script: Script, line: int, name: str) -> FoundLoop:
    around = [each for each in script.loops if each.holds(line)]
    if not around:
        raise ProgramError(f"there is no loop around line {line} of {name}", fix=_which(script.loops))
    return _usable(around[-1], name)


def _usable(loop: FoundLoop, name: str) -> FoundLoop:
    """Return a loop whose body can be repeated; raises ProgramError for any other."""
    refusal = loop.refusal
    if refusal is not None:
        what = f"the {loop.kind} at {name}:{loop.line} cannot be repeated: {refusal.why} ({name}:{refusal.line})"
        raise ProgramError(what, fix=refusal.fix)
    return loop


def _without_loop(name: str) -> str:
    return (
        "mark the part that is to be repeated: with joulediff.step(): ...\n"
        f"  or give a function that returns the step (joulediff record {Path(name).name}:NAME)"
    )


def _which(loops: Sequence[FoundLoop]) -> str:
    return f"choose one by its line:\n{list_loops(loops)}" if loops else "there is none in the whole file"


def list_loops(loops: Sequence[FoundLoop], facts: Sequence[str] = ()) -> str:
    """Return a line for each loop, with the option that chooses it; `facts` are added to the lines."""
    options = [f"--loop {each.line}" for each in loops]
    room = max(map(len, options), default=0)
    lines = []
    for i, (option, loop) in enumerate(zip(options, loops, strict=True)):
        fact = f"  {facts[i]}" if facts else ""
        lines.append(f"    {option:<{room}}  {loop.place}: {loop.text[:60]}{fact}")
    more = len(lines) - LISTED
    return "\n".join([*lines[:LISTED], *([f"    and {more} more"] if more > 0 else [])])
