"""The user's own source files, as text that can be compared and changed."""

import re
from dataclasses import dataclass

# Ends of lines for Python; `str.splitlines` knows more of them.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """Return the lines of a source as Python counts them, each with its end."""
    return _LINE.findall(text)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the user's own code; `module` is the name it is imported by, "" for the program's own file."""

    module: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """The user's own files of one program, its own file first, and the name of the function that builds its step."""

    builder: str
    files: tuple[SourceFile, ...]
