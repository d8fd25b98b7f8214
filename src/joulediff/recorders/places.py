"""Where a program's own code sets its settings, from the text of its files alone.

Nothing is run, so what is found is a line that can set a setting, not proof that it did. Of several lines, one whose
plain value is the recorded one is preferred, and then the last.
"""

from __future__ import annotations

import ast
import os
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from joulediff.findings import Place
from joulediff.own import is_ours, name_case_file
from joulediff.recorders.callpath import name_file
from joulediff.recorders.setters import UNKNOWN
from joulediff.recorders.writes import Write, find_writes
from joulediff.runs import Frame, Setting

MAX_FILES = 200
MAX_FILE_BYTES = 1_000_000
# Parsing and looking through a megabyte takes a second.
MAX_TOTAL_BYTES = 2_000_000
MAX_TEXT_CHARS = 300
# Words that stand for a configuration entry of another name.
_WORDS = {
    "attn_implementation": "_attn_implementation",
    "experts_implementation": "_experts_implementation",
    "torch_dtype": "dtype",
}


class _Found(NamedTuple):
    rank: int
    order: tuple[int, int, int]
    place: Place


def find_places(settings: Mapping[str, Setting], files: Mapping[str, Path]) -> dict[str, Place]:
    """Return where each setting is set, for those that are; `files` says by which name each file is shown.

    Of two files the later one counts as the later line.
    """
    entries = _entries(settings)
    best: dict[str, _Found] = {}
    for number, (shown, path) in enumerate(files.items()):
        lines = _read(path)
        for write in find_writes(_parse("\n".join(lines))):
            place = Place(shown, write.line, write.function, _line(lines, write.line))
            for name in _settings_of(write, settings, entries):
                rank = _rank(write, settings[name], is_entry=name.startswith("model."))
                found = _Found(rank, (number, write.line, write.column), place)
                if rank >= 0 and (name not in best or best[name][:2] < found[:2]):
                    best[name] = found
    return {name: best[name].place for name in settings if name in best}


def own_files(frames: Iterable[Frame], files: Mapping[str, str], root: Path) -> dict[str, Path]:
    """Return the program's own source files by the names they are shown by: of its frames, and modules below `root`
    or of a case.

    `files` says where each frame's file really is. The step's own file comes last, as what imports the others.
    """
    base = str(root) + os.sep
    found = {frame.file: files.get(frame.file, frame.file) for frame in frames if frame.owner is None}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_ours(file):
            continue
        if file.startswith(base) or name_case_file(file) is not None:
            shown, owner = name_file(file, base)
            if owner is None:
                found.setdefault(shown, file)
    return dict(reversed(_affordable(found).items()))


def _affordable(files: Mapping[str, str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    left = MAX_TOTAL_BYTES
    for shown, file in list(files.items())[:MAX_FILES]:
        path = Path(file)
        try:
            size = path.stat().st_size if path.is_file() else MAX_FILE_BYTES + 1
        except (OSError, ValueError):
            continue
        if size <= min(MAX_FILE_BYTES, left):
            found[shown] = path
            left -= size
    return found


def _read(path: Path) -> list[str]:
    try:
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _line(lines: list[str], number: int) -> str | None:
    return lines[number - 1].strip()[:MAX_TEXT_CHARS] if 1 <= number <= len(lines) else None


def _entries(settings: Iterable[str]) -> dict[str, list[str]]:
    """Return the settings of models by the last word of their names: `activation_function`."""
    found: dict[str, list[str]] = {}
    for name in settings:
        if name.startswith("model."):
            found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


def _settings_of(write: Write, settings: Mapping[str, Setting], entries: Mapping[str, list[str]]) -> Iterator[str]:
    if write.kind == "setting":
        yield from [write.name] if write.name in settings else ()
    elif write.kind == "tail":
        yield from (name for name in settings if name.startswith("torch.") and name.endswith(f".{write.name}"))
    else:
        word = _WORDS.get(write.name, write.name)
        yield from entries.get(word, ())
        yield from entries.get(write.name, ()) if word != write.name else ()


def _rank(write: Write, value: Setting, *, is_entry: bool) -> int:
    """Return how likely a line is the one: 2 says the value, 1 says none, 0 says another, -1 is out of the question."""
    if write.value is UNKNOWN:
        return -1 if is_entry and write.kind == "word" else 1
    if write.value == value or str(write.value) == str(value):
        return 2
    return -1 if is_entry else 0
