"""The lines that `joulediff patch` adds to a program, and what they say.

The lines alone decide whether a file is patched, and under which name its calls are measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MODULE = "joulediff.patched"
_NAME = "measured"
_OTHER_NAMES = ("measured_call", "joulediff_measured")
_FOR_CALLS = "# Added by `joulediff patch`; `joulediff patch --undo FILE` removes it and each `{name}(...)`."
_FOR_PROGRAM = "# Added by `joulediff patch`; `joulediff patch --undo FILE` removes it."
_LINES = re.compile(
    r"^# Added by `joulediff patch`;[^\r\n]*(?P<end>\r\n|\n)"
    rf"from {re.escape(_MODULE)} import {_NAME}(?: as (?P<other>\w+))?(?P=end)"
    r"\w+\.start\([^\r\n]*\)(?P=end)"
    r"(?P=end)?",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Header:
    """The added lines in a text, from offset `start` to `end`; `name` is the function around measured callees."""

    name: str
    start: int
    end: int


def header_lines(name: str, program: str, libraries: Sequence[str]) -> list[str]:
    """Return the lines to add, without line ends; without libraries only the whole program is measured.

    `program` is the file as it was, seen from the patched one: reports name its lines.
    """
    comment = _FOR_CALLS.format(name=name) if libraries else _FOR_PROGRAM
    renamed = "" if name == _NAME else f" as {name}"
    quoted = ", ".join(_quote(each) for each in (program, *libraries))
    return [comment, f"from {_MODULE} import {_NAME}{renamed}", f"{name}.start({quoted})", ""]


def _quote(text: str) -> str:
    shown = ascii(text)
    return shown if '"' in shown or "\\" in shown or "'" in text else f'"{text}"'


def find_header(text: str) -> Header | None:
    """Return the added lines of a patched text; None if it is not patched."""
    found = _LINES.search(text)
    if found is None:
        return None
    return Header(found["other"] or _NAME, found.start(), found.end())


def choose_name(taken: Iterable[str]) -> str:
    """Return a name for the function around measured callees that the program uses for nothing."""
    used = set(taken)
    numbered = (f"{_OTHER_NAMES[-1]}_{number}" for number in range(2, len(used) + 3))
    return next(name for name in (_NAME, *_OTHER_NAMES, *numbered) if name not in used)
