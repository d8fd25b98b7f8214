"""Read a notebook: its code cells, and the place of each cell's source in the file.

A notebook is not trusted: sizes and types are checked. It is read twice, by `json` and by a scanner that knows places,
and both must agree. What lies outside of the sources of code cells is never written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulediff.model.errors import ProgramError

SUFFIX = ".ipynb"
# A notebook holds its outputs, such as pictures; more than this is no notebook that somebody edits.
_MOST_BYTES = 256 << 20
_OLDEST_FORMAT = 4
_FORMAT_WITH_IDS = (4, 5)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A string of the file: its characters, from offset `start` to `end`, with the quotes around it."""

    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell. `number` counts code cells from 1: it is `In [number]` after all cells were run once."""

    number: int
    source: str
    tokens: tuple[Token, ...]
    """The strings that make up the source."""
    is_list: bool
    """Whether the file has the source as a list of lines."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook's file as text, and its code cells."""

    path: str
    text: str
    cells: tuple[Cell, ...]
    cell_spans: tuple[tuple[int, int], ...]
    """The offsets of all cells, from the brace that opens each to behind the one that closes it."""
    has_ids: bool
    """Whether its format gives each cell an `id`."""

    def name_cell(self, cell: Cell) -> str:
        """Return the name of a cell in tracebacks and reports: `train.ipynb#cell-3`."""
        return f"{self.path}#cell-{cell.number}"


def read_notebook(path: str) -> Notebook:
    """Return a notebook of Python code. Raises ProgramError for any other file."""
    place = Path(path)
    try:
        if place.is_file() and place.stat().st_size > _MOST_BYTES:
            raise ProgramError(
                f"{path} is larger than {_MOST_BYTES >> 20} MiB", fix="clear its outputs, then try again"
            )
        text = place.read_bytes().decode("utf-8")
    except OSError as error:
        raise ProgramError(f"cannot read {path}: {error.strerror}", fix="give the file of a notebook") from error
    except UnicodeDecodeError as error:
        raise _no_notebook(path, "it is not UTF-8") from error
    return parse_notebook(text, path)


def parse_notebook(text: str, path: str) -> Notebook:
    """Return the notebook that a file's text holds."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise _no_notebook(path, "it is nested too deeply") from error
    except ValueError as error:
        raise _no_notebook(path, f"it is not JSON: {error}") from error
    _check_format(content, path)
    cells = tuple(_find_cells(text, path))
    stated = [_source_of(each, path) for each in content["cells"] if each.get("cell_type") == "code"]
    if [each.source for each in cells] != stated:
        raise _no_notebook(path, "a name in it occurs twice")
    if not cells:
        raise ProgramError(f"{path} has no code cells", fix="give a notebook with code")
    for cell in cells:
        if any("\ud800" <= each <= "\udfff" for each in cell.source):
            raise _no_notebook(path, f"cell {cell.number} holds half a character")
    minor = content.get("nbformat_minor")
    has_ids = (content["nbformat"], minor if isinstance(minor, int) else 0) >= _FORMAT_WITH_IDS
    return Notebook(path, text, cells, tuple(_cell_spans(text)), has_ids)


def _check_format(content: Any, path: str) -> None:
    if not isinstance(content, dict):
        raise _no_notebook(path, "its outermost value is no object")
    version = content.get("nbformat")
    if isinstance(version, bool) or not isinstance(version, int):
        raise _no_notebook(path, "it has no nbformat")
    if version < _OLDEST_FORMAT:
        raise ProgramError(
            f"{path} has the old notebook format {version}",
            fix="save it anew: jupyter nbconvert --to notebook --nbformat 4 --inplace FILE",
        )
    cells = content.get("cells")
    if not isinstance(cells, list) or not all(isinstance(each, dict) for each in cells):
        raise _no_notebook(path, "its cells are no list of objects")
    language = _language_of(content.get("metadata"))
    if language is not None and language.lower() not in ("python", "ipython", "python3"):
        raise ProgramError(f"{path} is a notebook of {language[:40]}", fix="give a notebook of Python")


def _language_of(metadata: Any) -> str | None:
    for group, name in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(group) if isinstance(metadata, dict) else None
        language = found.get(name) if isinstance(found, dict) else None
        if isinstance(language, str):
            return language
    return None


def _source_of(cell: dict[str, Any], path: str) -> str:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    if isinstance(source, str):
        return source
    raise _no_notebook(path, "the source of a code cell is no text")


def _find_cells(text: str, path: str) -> Iterator[Cell]:
    """Yield the code cells with their places. The text is valid JSON."""
    number = 0
    for begin, _ in _cell_spans(text):
        places = dict(_members(text, begin))
        if _value(text, places.get("cell_type")) != "code":
            continue
        number += 1
        at = places.get("source")
        is_list = at is not None and text[at] == "["
        starts = [] if at is None else list(_elements(text, at)) if is_list else [at]
        if at is None or any(text[each] != '"' for each in starts):
            raise _no_notebook(path, "the source of a code cell is no text")
        tokens = tuple(_token(text, each) for each in starts)
        yield Cell(number, "".join(each.value for each in tokens), tokens, is_list)


def _cell_spans(text: str) -> Iterator[tuple[int, int]]:
    for name, start in _members(text, _skip(text, 0)):
        if name == "cells":
            yield from ((begin, _decode(text, begin)[1]) for begin in _elements(text, start))


_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _value(text: str, at: int | None) -> Any:
    return None if at is None else _decode(text, at)[0]


def _token(text: str, at: int) -> Token:
    value, end = _decode(text, at)
    return Token(at, end, value)


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the name and the offset of the value of each member of the object at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # behind the colon
        yield name, start
        at = _behind(text, start)


def _elements(text: str, at: int) -> Iterator[int]:
    """Yield the offset of each element of the list at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _behind(text, at)


def _behind(text: str, at: int) -> int:
    """Return the offset of what follows the value at `at`: the next member, or the end of the list or object."""
    at = _skip(text, _decode(text, at)[1])
    return _skip(text, at + 1) if text[at] == "," else at


def raw_offsets(text: str, token: Token) -> list[int]:
    """Return the offset in the file of each character of a string, and of its closing quote."""
    offsets = []
    at, last = token.start + 1, token.end - 1
    while at < last:
        offsets.append(at)
        escape = _ESCAPE.match(text, at) if text[at] == "\\" else None
        at = escape.end() if escape is not None else at + 1
    return [*offsets, last]


def _no_notebook(path: str, why: str) -> ProgramError:
    return ProgramError(f"{path} is no notebook: {why}", fix="open it in Jupyter and save it, or give another file")
