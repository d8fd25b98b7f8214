"""The right answer to a pair of programs, and whether a finding gives it: its kind, its key and its line.

A line is right if its text is accepted, wherever it moved in the program since the answer was written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from joulediff.model.diff import Diff
from joulediff.model.finding import Finding, FindingKind
from joulediff.model.pair import SideName
from joulediff.model.place import Place

WASTEFUL, LEAN = "wasteful.py", "lean.py"
# `groups[0]['lr']` is the path `groups.lr`: a position names nothing.
_POSITION = re.compile(r"\[-?\d+\]")
_NAME_IN_BRACKETS = re.compile(r"\[['\"]([^'\"\]]*)['\"]\]")


@dataclass(frozen=True, slots=True)
class Answer:
    """The accepted kinds, keys and lines of the first finding against a program. Without lines, any is right."""

    program: Path
    """The wasteful program. Other files of its folder are the user's code as well, except the lean program."""
    kinds: tuple[FindingKind, ...]
    keys: tuple[str, ...]
    lines: tuple[str, ...]
    """Exact texts of lines of the user's code, without the space around them."""

    def has_kind(self, finding: Finding) -> bool:
        """Return whether the kind of a finding is accepted."""
        return finding.kind in self.kinds

    def has_key(self, finding: Finding) -> bool:
        """Return whether each name in the key of a finding is accepted."""
        told = finding.cause.keys
        return bool(told) and all(any(is_same_name(name, key) for key in self.keys) for name in told)

    def has_line(self, finding: Finding) -> bool:
        """Return whether a finding names an accepted line."""
        return not self.lines or self._accepted(finding) is not None

    def told_line(self, finding: Finding) -> str | None:
        """Return the line of the user's code that a finding names: an accepted one if it names several."""
        texts = (_text_of(place, file) for place, file in self._places(finding))
        return self._accepted(finding) or next((text for text in texts if text is not None), None)

    def _accepted(self, finding: Finding) -> str | None:
        for place, file in self._places(finding):
            for text in _statement_lines(place, file):
                if text in self.lines:
                    return text
        return None

    def _places(self, finding: Finding) -> Iterator[tuple[Place, Path]]:
        """Yield the lines of the user's code that a finding names, with their files.

        These are the line of the cause, the innermost one of the call path, and the innermost one in the program.
        """
        side: SideName = finding.expensive
        cause, path = finding.cause.locations.of(side), finding.work.paths.of(side)
        yield from self._in_user_code([cause] if cause is not None else [])
        callers = list(self._in_user_code(reversed(path)))
        yield from callers[:1]
        yield from [each for each in callers if each[1] == self.program][:1]

    def _in_user_code(self, places: Iterable[Place]) -> Iterator[tuple[Place, Path]]:
        """Yield those places that are in the user's code; files of recordings have no folders of their machine."""
        folder = self.program.parent
        for place in places:
            *_, parent, name = ("", *Path(place.file).parts)
            file = folder / name
            if parent in ("", folder.name) and name != LEAN and file.suffix == ".py" and file.is_file():
                yield place, file


def first_against(diff: Diff, side: SideName = "a") -> Finding | None:
    """Return the first finding against a side."""
    return next((finding for finding in diff.findings if finding.expensive == side), None)


def is_same_name(told: str, key: str) -> bool:
    """Return whether two names are equal, or the last part of one is the other: `use_cache`, `config.use_cache`."""
    a, b = _parts(told), _parts(key)
    return a == b or (bool(a and b) and a[-1] == b[-1] and 1 in (len(a), len(b)))


def _parts(name: str) -> list[str]:
    plain = _NAME_IN_BRACKETS.sub(r".\1", _POSITION.sub("", name.strip().removesuffix("()")))
    return [part for part in plain.split(".") if part]


def _text_of(place: Place, file: Path) -> str | None:
    if place.text is not None:
        return place.text.strip()
    lines = _lines(file)
    return lines[place.line - 1] if 0 < place.line <= len(lines) else None


def _statement_lines(place: Place, file: Path) -> Sequence[str]:
    """Return the lines of the statement at a place; only its own line if the file changed since the recording.

    The interpreter gives a call of several lines any of them.
    """
    text, lines = _text_of(place, file), _lines(file)
    if text is None:
        return ()
    if not 0 < place.line <= len(lines) or lines[place.line - 1] != text:
        return (text,)
    first, last = _statements(file).get(place.line, (place.line, place.line))
    return (text, *lines[first - 1 : last])


@cache
def _lines(file: Path) -> tuple[str, ...]:
    return tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines())


@cache
def _statements(file: Path) -> dict[int, tuple[int, int]]:
    """Return the first and last line of the statement at each line; of a block, those of its head."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.stmt):
            continue
        body: list[ast.stmt] = getattr(node, "body", [])
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        for line in range(node.lineno, max(last, node.lineno) + 1):
            found[line] = (node.lineno, max(last, node.lineno))
    return found
