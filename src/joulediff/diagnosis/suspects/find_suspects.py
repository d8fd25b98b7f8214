"""Finds the suspects of a difference: edits of the source, then values of the state, then settings.

An edit names the user's own line, so it comes first. Values and settings are suspects where the source is the same, or
does not explain the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.evidence.recorded_settings import differing_settings
from joulediff.diagnosis.evidence.state import differing_leaves
from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.frameworks.framework import can_act, group_switches
from joulediff.model.errors import JoulediffError
from joulediff.model.pair import Pair, SideName, other_side
from joulediff.model.run import Run, Setting
from joulediff.pysource.edits.edit import Edit
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.edits.same_calls import find_call_edits

# Programs that differ in more places are two systems: their operators are compared, not their source.
MAX_EDITS = 24
# A longer block is another implementation, and no cause that a reader could act on.
MAX_CODE_LINES = 24
# Calls in code that is written differently whose arguments are tried.
MAX_CALLS = 4
# Values of the state that are tried.
MAX_LEAVES = 6
_TEXT_CHARS = 60
# The order in which kinds of edits are tried.
_ORDER = ("argument", "value", "left_out", "call", "moved", "added", "code")


def find_differences(work: Investigation, side: SideName) -> Iterator[Differences]:
    """Yield the suspects of each class, for the expensive program `side`; both programs can be run."""
    yield from (found for found in _find_edits(work, side) if found.suspects)
    leaves = _find_leaves(work.comparison, side)
    if leaves:
        yield Differences(leaves)
    settings = _find_settings(work.comparison, side)
    if settings:
        yield Differences(settings)


def _find_edits(work: Investigation, side: SideName) -> Iterator[Differences]:
    """Yield the edits of the source, and then those of calls whose surroundings are written differently."""
    try:
        mine, other = work.live[side].read_source(), work.live[other_side(side)].read_source()
    except (JoulediffError, NotImplementedError):
        return
    run, first = work.comparison.run(side), _first_settings(work.comparison, side)
    edits = find_edits(mine.files, other.files, entries=(mine.builder, other.builder))
    if sum(edit.kind != "support" for edit in edits) <= MAX_EDITS:
        yield Differences(_to_suspects(run, edits), mine.files, other.files, edits, first)
    calls = find_call_edits(mine.files, other.files, known=edits)
    yield Differences(_to_suspects(run, calls)[:MAX_CALLS], mine.files, other.files, calls, first)


def _to_suspects(run: Run, edits: Sequence[Edit]) -> tuple[Suspect, ...]:
    chosen = [at for at, edit in enumerate(edits) if edit.kind != "support" and not _is_rewrite(edit)]
    chosen.sort(key=lambda at: _rank(run, edits[at]))
    return tuple(Suspect(text_of(edits[at]), edits[at].key, edit=at) for at in chosen)


def _is_rewrite(edit: Edit) -> bool:
    return edit.kind == "code" and edit.end_line - edit.line >= MAX_CODE_LINES


def _rank(run: Run, edit: Edit) -> tuple[bool, int, int]:
    """Return the place of an edit in the order of trials: code of the step first, then by kind and length."""
    return (not is_in_frames(run, edit), _ORDER.index(edit.kind), edit.end_line - edit.line)


def is_in_frames(run: Run, edit: Edit) -> bool:
    """Return whether an operator of the step was called from the function, or the lines, that an edit changes."""
    return any(
        frame.file == edit.path and (frame.function == edit.function or edit.line <= frame.line <= edit.end_line)
        for frame in run.frames
    )


def text_of(edit: Edit) -> str:
    """Return an edit in words that follow "the step with"."""
    where = f"({edit.path}:{edit.line})"
    mine, other = _short(edit.value_a), _short(edit.value_b)
    if edit.kind == "moved":
        return f"{edit.key} computed where the other program does {where}"
    if edit.kind == "argument":
        return f"{edit.key} left out {where}" if other is None else f"{edit.key}={other} {where}"
    if edit.kind == "left_out" or other is None:
        return f"{edit.key if mine is None else mine} left out {where}"
    if mine is None:
        return f"{other} added {where}"
    return f"{other} instead of {mine} {where}"


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_CHARS else f"{line[: _TEXT_CHARS - 1]}…"


def _first_settings(comparison: Comparison, side: SideName) -> dict[str, Setting]:
    """Return settings as the program found them: those of the other program that its source does not set."""
    run, other = comparison.run(side), comparison.run(other_side(side))
    differing = differing_settings(run.settings, other.settings)
    return {
        name: Pair(*values).of("b")
        for name, values in differing.items()
        if name not in other.set_places and not name.startswith("env.")
    }


def _find_leaves(comparison: Comparison, side: SideName) -> tuple[Suspect, ...]:
    found = []
    for leaf in differing_leaves(comparison)[:MAX_LEAVES]:
        value = Pair(leaf.value_a, leaf.value_b).of(other_side(side))
        paths = Pair(leaf.paths, leaf.paths_b).of(side)
        found.append(Suspect(f"{paths[0]} = {value}", leaf.name, state=dict.fromkeys(paths, value)))
    return tuple(found)


def _find_settings(comparison: Comparison, side: SideName) -> tuple[Suspect, ...]:
    run, other = comparison.run(side), comparison.run(other_side(side))
    differing = differing_settings(run.settings, other.settings)
    ops = [*run.ops, *other.ops]
    found = []
    for names in group_switches(differing):
        acting = [name for name in names if can_act(name, ops)]
        if acting:
            key = next((name for name in acting if name in run.set_places), acting[0])
            value = other.settings.get(key)
            found.append(Suspect(f"{key} = {value}", key, settings={key: value}))
    return tuple(found)
