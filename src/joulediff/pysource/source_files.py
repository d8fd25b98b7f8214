"""The user's own source files, as text that can be compared and changed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the user's own code; `module` is the name it is imported by, "" for the program's own file."""

    module: str
    path: str
    text: str
