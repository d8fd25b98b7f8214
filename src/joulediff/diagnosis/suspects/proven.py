"""What is known of a cause that was proven: the changes that were made, what they did, and the row that they explain.

The chief edit is the one that names the cause: one that the step runs, and that leaves out a call, comes first. If the
step runs the same operators, the one in whose lines the host spends the most time does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.lead import Lead, Subject
from joulediff.diagnosis.suspects.effect import Effect
from joulediff.diagnosis.suspects.find_suspects import is_in_frames
from joulediff.diagnosis.suspects.source_names import called_name
from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.diagnosis.suspects.try_suspects import Tried
from joulediff.energy.host_energy import host_parts
from joulediff.model.errors import JoulediffError
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run
from joulediff.pysource.edits.edit import Edit
from joulediff.pysource.edits.naming import function_at
from joulediff.pysource.line_trace import Target
from joulediff.pysource.source_files import SourceFile

# Functions that run when a program is built.
_BUILDERS = ("__init__", "__new__", "__post_init__")
_CHIEF = ("left_out", "moved", "call", "code", "value", "argument", "added", "support")


@dataclass(frozen=True, slots=True)
class Proven:
    """A proven cause. `edit` is the chief one of `edits`; both are empty if a value or a setting was changed."""

    comparison: Comparison
    side: SideName
    differences: Differences
    suspects: tuple[Suspect, ...]
    settings: tuple[str, ...]
    """The settings that the changed program has otherwise."""
    effect: Effect
    subject: Subject | None
    """The row with the most energy."""
    leads: tuple[Lead, ...]
    """What evidence says of that row."""
    edits: tuple[Edit, ...] = ()
    edit: Edit | None = None
    lines: tuple[int, ...] = ()
    """The lines of the chief edit that the step runs."""
    brings_code: bool = False
    """The edits put functions or classes of the other program in the place of this one's."""

    @property
    def run(self) -> Run:
        """The run of the expensive program."""
        return self.comparison.run(self.side)

    @property
    def other_run(self) -> Run:
        """The run of the cheap program."""
        return self.comparison.run(other_side(self.side))

    @property
    def place(self) -> Place | None:
        """The user's line of the row."""
        return None if self.subject is None else self.subject.place(self.side)

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions that the cheap program runs."""
        return frozenset(frame.function.rpartition(".")[2] for frame in self.other_run.frames)

    def places(self, edit: Edit) -> Pair[Place | None]:
        """Return the line of an edit in the expensive program, and that of its counterpart."""
        mine = self.place_at(edit, edit.line)
        line_b = edit.line_b
        other = None if line_b is None else _place(self.differences.other_files, edit.path_b, line_b, edit.function)
        return pair_from(self.side, mine, other)

    def place_at(self, edit: Edit, line: int) -> Place | None:
        """Return a line of the expensive program in the file and function of an edit."""
        return _place(self.differences.files, edit.path, line, edit.function)


def make_proven(
    work: Investigation,
    side: SideName,
    differences: Differences,
    tried: Tried,
    effect: Effect,
    subject: Subject | None,
) -> Proven:
    """Return what is known of the cause that a trial proved."""
    proven = Proven(
        work.comparison,
        side,
        differences,
        tuple(differences.suspects[at] for at in tried.chosen),
        tuple(tried.cost.settings),
        effect,
        subject,
        () if subject is None else tuple(find_leads(subject)),
        tuple(differences.edits_of(tried.chosen)),
        brings_code=differences.brings_code(tried.chosen),
    )
    if not proven.edits:
        return proven
    inside = [_lines_in_step(work, side, differences, edit) for edit in proven.edits]
    host_s = [_host_time_s(proven, edit) for edit in proven.edits]
    chief = min(range(len(inside)), key=lambda at: (not inside[at], -host_s[at], _rank(proven.edits[at])))
    return replace(proven, edit=proven.edits[chief], lines=tuple(inside[chief]))


def _host_time_s(proven: Proven, edit: Edit) -> float:
    """Return the time of the host in the lines of an edit, if no operator changed: they name the cause."""
    if not proven.effect.is_nothing:
        return 0.0
    lines = range(edit.line, edit.end_line + 1)
    frames = ((part.frame, part.time_s) for part in host_parts(proven.run, "line"))
    return sum(time_s for frame, time_s in frames if frame and frame.file == edit.path and frame.line in lines)


def _rank(edit: Edit) -> tuple[bool, int]:
    """Return the order in which edits that were changed together name their cause: lost calls come first."""
    return (called_name(edit.value_a) is None, _CHIEF.index(edit.kind))


def _lines_in_step(work: Investigation, side: SideName, differences: Differences, edit: Edit) -> list[int]:
    """Return the changed lines that the step runs."""
    lines = _changed_lines(differences.files, edit)
    return [line for line in lines if _is_in_step(work, side, differences, edit, line)]


def _changed_lines(files: Sequence[SourceFile], edit: Edit) -> list[int]:
    """Return the lines of the expensive program that an edit changes, its own line first: a move has several."""
    texts = {file.path: file.text for file in files}
    found = [edit.line]
    for patch in edit.patches:
        text = texts.get(patch.path)
        if text is not None and patch.path == edit.path and patch.start < patch.end:
            skipped = len(text[patch.start : patch.end]) - len(text[patch.start : patch.end].lstrip())
            found.append(1 + text.count("\n", 0, patch.start + skipped))
    return list(dict.fromkeys(found))


def _is_in_step(work: Investigation, side: SideName, differences: Differences, edit: Edit, line: int) -> bool:
    """Return whether the step runs the code at a line, and not only the code that builds the program."""
    text = next((file.text for file in differences.files if file.path == edit.path), "")
    function = function_at(text, line)
    at = replace(edit, line=line, end_line=max(line, edit.end_line), function=function)
    if is_in_frames(work.comparison.run(side), at):
        return True
    if not function or function.rpartition(".")[2] in _BUILDERS:
        return False
    try:
        return work.live[side].trace_lines(Target(edit.path, function, line)) is not None
    except (JoulediffError, NotImplementedError):
        return False


def _place(files: Sequence[SourceFile], path: str, line: int, function: str) -> Place | None:
    text = next((file.text for file in files if file.path == path), None)
    if text is None:
        return None
    lines = text.splitlines()
    return Place(path, line, function, lines[line - 1].strip() if 0 < line <= len(lines) else None)
