"""Patches the file of a program, and takes the patch out: bytes to bytes.

The encoding of the file, its byte order mark and its ends of lines stay. Nothing is written here.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joulediff.instrument.notebook.read import SUFFIX
from joulediff.instrument.patch.edits import apply_edits
from joulediff.instrument.patch.header import find_header
from joulediff.instrument.patch.libraries import choose_libraries, other_libraries
from joulediff.instrument.patch.notebook import patch_notebook, unpatch_notebook
from joulediff.instrument.patch.source import (
    Level,
    PatchRequest,
    parse_python,
    patch_source,
    refuse_patched,
    unpatch_source,
)
from joulediff.model.errors import ProgramError


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A file as text, and the name of its encoding."""

    text: str
    encoding: str

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return self.text.encode(self.encoding)


@dataclass(frozen=True, slots=True)
class PatchedProgram:
    """The text of a file before and after, what is measured, and how many calls."""

    before: ProgramText
    after: ProgramText
    calls: int
    libraries: tuple[str, ...] = ()


def patch_program(path: str, *, output: str | None, libraries: Sequence[str], level: Level) -> PatchedProgram:
    """Return the file at `path` with the measuring of its calls. `output` is where it will be."""
    before = read_text(path)
    folder = Path(path).resolve().parent
    target = folder if output is None else Path(output).resolve().parent
    request = PatchRequest(
        libraries=tuple(libraries),
        program=_seen_from(Path(path).resolve(), target),
        level=level,
        local=frozenset(each.stem for each in folder.iterdir()),
    )
    if path.endswith(SUFFIX):
        found, request = patch_notebook(before.text, path, request)
    else:
        refuse_patched(before.text, path)
        parse_python(before.text, path)
        if level == "method":
            chosen = choose_libraries(before.text, libraries, path)
            request = replace(request, libraries=chosen, other=other_libraries(chosen))
        found = patch_source(before.text, path, request)
    after = replace(before, text=apply_edits(before.text, found.edits))
    return PatchedProgram(before, after, found.calls, request.libraries if level == "method" else ())


def unpatch_program(path: str) -> PatchedProgram:
    """Return the patched file at `path` as it was."""
    before = read_text(path)
    if path.endswith(SUFFIX):
        found = unpatch_notebook(before.text, path)
    else:
        header = find_header(before.text)
        if header is None:
            raise not_patched(path)
        found = unpatch_source(before.text, path, header)
    return PatchedProgram(before, replace(before, text=apply_edits(before.text, found.edits)), found.calls)


def not_patched(path: str) -> ProgramError:
    """Return the error for a file without the lines that a patch adds."""
    return ProgramError(f"{path} is not patched", fix="give a file that joulediff patch wrote")


def read_text(path: str) -> ProgramText:
    """Return a file as text, by the encoding that it declares. Raises if it cannot be written back unchanged."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ProgramError(f"{path} cannot be read ({error.strerror})", fix="check that you may read it") from error
    try:
        encoding = "utf-8" if path.endswith(SUFFIX) else tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        found = ProgramText(content.decode(encoding), encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ProgramError(
            f"{path} cannot be read as text: {error}", fix="check the encoding that it declares in its first two lines"
        ) from error
    if found.to_bytes() != content:
        raise ProgramError(
            f"{path} cannot be written back in its encoding {encoding}", fix="save it as UTF-8, then patch it"
        )
    return found


def _seen_from(path: Path, folder: Path) -> str:
    """Return a path as it is named from a folder, with `/` on every system; the whole one on another drive."""
    import os

    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.as_posix()
