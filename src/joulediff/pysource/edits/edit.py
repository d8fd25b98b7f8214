"""An edit of a program's source, and how edits are applied.

The patches of two edits of one search never overlap, so any subset of the edits can be applied in any order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from joulediff.pysource.edits.parsed import Parsed, parse_file
from joulediff.pysource.edits.syntax import blocks_of, holds_name, holds_value
from joulediff.pysource.source_files import SourceFile

# What may stand between the object of a `with` and its colon.
_COLON = re.compile(r"[\s,)]*:")

EditKind = Literal["argument", "value", "call", "left_out", "added", "moved", "code", "support"]
EditContext = Literal["", "with", "decorator", "import"]


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces the characters from `start` to `end` of a file by `text`.

    Patches at one offset are applied in the order of `rank`. A file that the program does not have is created, as
    `module`.
    """

    path: str
    start: int
    end: int
    text: str
    rank: int = 0
    module: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """One difference of program b, as a change of program a. `needs` are indices in the result of `find_edits`."""

    kind: EditKind
    path: str
    line: int
    end_line: int
    path_b: str
    line_b: int | None
    key: str
    call: str
    value_a: str | None
    value_b: str | None
    function: str
    needs: tuple[int, ...]
    context: EditContext
    patches: tuple[Patch, ...]


def apply_edits(files: Sequence[SourceFile], edits: Iterable[Edit]) -> tuple[SourceFile, ...]:
    """Return the files with the edits applied. The needs of an edit are not added: see `close_over_needs`."""
    patches = {patch for edit in edits for patch in edit.patches}
    known = {file.path for file in files}
    changed = [apply_patches(file, [patch for patch in patches if patch.path == file.path]) for file in files]
    new = {patch.path: patch for patch in patches if patch.path not in known}
    return (*changed, *(SourceFile(patch.module, patch.path, patch.text) for _, patch in sorted(new.items())))


def close_over_needs(edits: Sequence[Edit], chosen: Iterable[int]) -> tuple[int, ...]:
    """Return the chosen indices and those that they need, in ascending order."""
    found: set[int] = set()
    waiting = list(chosen)
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting += edits[index].needs
    return tuple(sorted(found))


def count_lines(edit: Edit, files: Iterable[SourceFile]) -> int:
    """Return the number of lines that an edit replaces or puts in their place, whichever are more."""
    texts = {file.path: file.text for file in files}
    found = 0
    for patch in edit.patches:
        old = texts.get(patch.path, "")[patch.start : patch.end]
        found += max(sum(bool(line.strip()) for line in text.splitlines()) for text in (old, patch.text))
    return found


def leave_out(file: SourceFile, line: int) -> SourceFile | None:
    """Return the file with `pass` in place of the statement at a line; None if nothing there can be left out.

    A statement can be left out if it is an expression, or assigns names that nothing in the file reads. Of a `with`,
    the object is left out, and the statements inside stay.
    """
    parsed = parse_file(file)
    if parsed is None:
        return None
    here = [
        statement
        for block in blocks_of(parsed.tree)
        for statement in block
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno)
    ]
    # Blocks are listed from the outside in.
    innermost = here[-1] if here else None
    if isinstance(innermost, ast.With):
        header = _header_of(parsed, innermost)
        return None if header is None else apply_patches(file, [Patch(file.path, *header, "if True:")])
    if innermost is None or holds_value(innermost, parsed.tree):
        return None
    patch = Patch(file.path, parsed.start(innermost), parsed.end(innermost), "pass")
    return apply_patches(file, [patch])


def _header_of(parsed: Parsed, statement: ast.With) -> tuple[int, int] | None:
    """Return the span of a `with` up to its colon; None if it has several objects, or if its name is read."""
    if len(statement.items) != 1 or holds_name(statement.items[0].optional_vars, parsed.tree):
        return None
    last = statement.items[0].optional_vars or statement.items[0].context_expr
    colon = _COLON.match(parsed.text, parsed.end(last))
    return None if colon is None else (parsed.start(statement), colon.end())


def apply_patches(file: SourceFile, patches: Iterable[Patch]) -> SourceFile:
    """Return the file with patches of it applied."""
    pieces = []
    position = 0
    for patch in sorted(patches, key=lambda patch: (patch.start, patch.end, patch.rank)):
        pieces += [file.text[position : patch.start], patch.text]
        position = max(position, patch.end)
    return SourceFile(file.module, file.path, "".join(pieces) + file.text[position:])
