"""The user's own source files, as text that can be compared and changed."""

from dataclasses import dataclass


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
