"""Lines of a notebook that are not Python: magics, shell lines and questions.

Python's own parser decides: a line is a magic if it looks like one and Python cannot read the cell because of it. So a
`%` inside of a string or of an expression over several lines is none.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from joulediff.model.errors import ProgramError
from joulediff.pysource.source_files import split_lines

# Magics that only set up how a notebook is shown or how modules are loaded.
_HARMLESS = re.compile(r"\s*%(?:matplotlib|load_ext|reload_ext|autoreload|config|precision|autosave)\b")
# Cell magics that run the cell's own Python code once in the namespace of the notebook.
_PYTHON_BODY = re.compile(r"%%(?:time|capture)\b")
_HARMLESS_CELL = re.compile(r"%%time\b|%%capture$")
_CELL_MAGIC = re.compile(r"\s*%%\w")
_LOOKS_LIKE_ONE = re.compile(
    r"(?P<indent>\s*)(?:[%!?]|[,;/](?=\S)|.*\?\s*$|[\w.,\[\]()'\" *]+=\s*[%!])"  # `?name`, `name?`, `files = !ls`
)


@dataclass(frozen=True, slots=True)
class Magic:
    """One line of a cell that is not Python. Lines count from 1."""

    line: int
    text: str
    is_harmless: bool
    """The program may run without it."""


@dataclass(frozen=True, slots=True)
class PlainCell:
    """A cell whose magics were replaced, so that Python can read it. Each character left is at its place."""

    source: str
    magics: tuple[Magic, ...] = ()
    cell_magic: Magic | None = None
    """The `%%` line that takes the rest of the cell; the source is empty unless that is Python code."""


def to_plain(source: str, name: str) -> PlainCell:
    """Return the Python code of a cell. Raises ProgramError if it is neither Python nor magics."""
    given = split_lines(source)
    lines = list(given)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    cell_magic = None
    if lines and _CELL_MAGIC.match(lines[first]):
        text = lines[first].strip()
        cell_magic = Magic(first + 1, text, _HARMLESS_CELL.match(text) is not None)
        if _PYTHON_BODY.match(text) is None:
            return PlainCell("", (), cell_magic)
        lines[first] = _blank(lines[first])
    magics: list[Magic] = []
    while (error := _error_of("".join(lines), name)) is not None:
        at = (error.lineno or 0) - 1
        looks = _LOOKS_LIKE_ONE.match(lines[at]) if 0 <= at < len(lines) else None
        if looks is None or any(each.line == at + 1 for each in magics):
            shown = given[at].strip() if 0 <= at < len(given) else ""
            raise ProgramError(
                f"{name}, line {at + 1}: {error.msg}" + (f": {shown}" if shown else ""),
                fix="correct the line: a notebook is run or patched only if Python can read it",
            ) from error
        magics.append(Magic(at + 1, lines[at].strip(), _HARMLESS.match(lines[at]) is not None))
        goes_on = lines[at].rstrip("\r\n").endswith("\\")
        blank = _blank(lines[at])
        indent = len(looks["indent"])
        lines[at] = f"{lines[at][:indent]}0{blank[indent + 1 :]}"
        while goes_on and at + 1 < len(lines):
            at += 1
            goes_on = lines[at].rstrip("\r\n").endswith("\\")
            lines[at] = _blank(lines[at])
    return PlainCell("".join(lines), tuple(sorted(magics, key=lambda each: each.line)), cell_magic)


def _error_of(source: str, name: str) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            ast.parse(source, name)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(
            f"Python cannot read {name}: {error or 'it is nested too deeply'}", fix="check the source of this cell"
        ) from error
    return None


def _blank(line: str) -> str:
    """Return a line of spaces as long as the given one, with its end."""
    text = line.rstrip("\r\n")
    return " " * len(text) + line[len(text) :]
