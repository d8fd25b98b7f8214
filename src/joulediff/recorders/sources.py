"""The lines around recorded ones, so that a report can show them where the files are not."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path

from joulediff.findings import Place
from joulediff.runs import Frame, SourceText

# Lines shown before and after a recorded one: enough to see the call, and for the user's own code its surroundings.
AROUND_OWN = 8
AROUND_LIBRARY = 2
# A line longer than this is data rather than code.
MAX_LINE = 300
MAX_FILE_BYTES = 4_000_000


def read_sources(
    frames: Iterable[Frame], files: Mapping[str, str], places: Iterable[Place] = ()
) -> tuple[SourceText, ...]:
    """Return excerpts around the frames' lines, and lines of other places, where they can be read.

    `files` says where each file is.
    """
    wanted: dict[str, set[int]] = {}
    for place in places:
        wanted.setdefault(place.file, set()).add(place.line)
    for frame in frames:
        around = AROUND_OWN if frame.owner is None else AROUND_LIBRARY
        wanted.setdefault(frame.file, set()).update(range(frame.line - around, frame.line + around + 1))
    found: list[SourceText] = []
    for file, numbers in sorted(wanted.items()):
        lines = _read(Path(files.get(file, file)))
        found += [
            SourceText(file, run[0], "\n".join(lines[number - 1][:MAX_LINE] for number in run))
            for run in _runs(sorted(n for n in numbers if 1 <= n <= len(lines)))
        ]
    return tuple(found)


def _read(path: Path) -> list[str]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return []
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []


def _runs(numbers: list[int]) -> list[list[int]]:
    """Split sorted numbers where one is missing."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
