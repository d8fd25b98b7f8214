"""The checks that every run passes before it is written and after it is read.

They work on plain cells, so that a file and a message from another process pass the same checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, cast

from joulediff.archive.codec import is_unicode, shown
from joulediff.archive.schema import FORMAT, SCHEMA, TABLES, Column, Tables
from joulediff.model.errors import ArchiveError

# Longer than any source file, and than the arguments of an operator with a long list.
MAX_TEXT_CHARS = 2**24
INT64 = (-(2**63), 2**63 - 1)
TYPES: dict[str, type] = {"id": int, "int": int, "float": float, "bool": bool, "text": str, "sizes": str}


def check_version(manifest: Any, *, schema: str = SCHEMA, newest: int = FORMAT) -> int:
    """Return the format of a run; raises ArchiveError if this version, which reads up to `newest`, cannot read it."""
    if not isinstance(manifest, dict) or manifest.get("schema") != schema:
        raise ArchiveError("it holds no recorded run", fix="name a .jd file that joulediff recorded")
    found, least = manifest.get("format"), manifest.get("min_reader")
    if type(found) is not int or type(least) is not int or not 1 <= least <= found:
        raise ArchiveError(f"its format {shown(found)} for readers from {shown(least)} makes no sense")
    if least > newest:
        raise ArchiveError(
            f"it has format {found} for readers of format {least} or later, and this joulediff reads up to {newest}",
            fix=f"update this joulediff (it was recorded by {shown(manifest.get('tool'))}): pip install -U joulediff",
        )
    return found


def sound(manifest: Any, rows: Mapping[str, int], read: Callable[[str, str], Any]) -> Tables:
    """Return the tables and columns this version knows; raises ArchiveError at the first that is wrong.

    `rows` has the number of rows of each table; `read` returns the cells of a column, or None without one.
    One column is read at a time, and equal references become one object, to bound the memory of a reader.
    """
    version = check_version(manifest)
    counts = dict.fromkeys(TABLES, 0)
    for name, columns in TABLES.items():
        if all(column.since > version for column in columns):
            continue  # a table of another version, by the same name
        if name not in rows:
            raise ArchiveError(f"its table {name} is missing")
        counts[name] = rows[name]
    numbers = list(range(max(counts.values())))

    def cells_of(name: str, column: Column) -> list[Any]:
        if column.since > version:
            return [column.default] * counts[name]
        cells = read(name, column.name)
        _check_column(name, column, cells, counts)
        if column.kind == "id" or column.refers is not None:
            return [None if cell is None else numbers[cell] for cell in cells]
        return cast("list[Any]", cells)

    found = {n: {c.name: cells_of(n, c) for c in columns} for n, columns in TABLES.items()}
    check_replays(found["replays"], found["ops"]["replay"])
    for column in ("time_s", "cpu_s"):
        _check_times("host_samples", found["host_samples"][column])
    return Tables(manifest, found)


def _check_column(table: str, column: Column, cells: Any, rows: Mapping[str, int]) -> None:
    place = f"its table {table}, column {column.name}"
    if not isinstance(cells, list):
        raise ArchiveError(f"its table {table} has no column {column.name}")
    if len(cells) != rows[table]:
        raise ArchiveError(f"{place} has {len(cells)} rows, and its table {rows[table]}")
    kinds = set(map(type, cells)) - ({NoneType} if column.optional else set())
    if wrong := kinds - {TYPES[column.kind]}:
        raise ArchiveError(f"{place} holds {min(each.__name__ for each in wrong)}, not {TYPES[column.kind].__name__}")
    present = [cell for cell in cells if cell is not None] if column.optional else cells
    if not present:
        return
    if column.kind in ("text", "sizes"):
        _check_texts(place, column, set(present))
    elif column.kind == "id" and any(cell != at for at, cell in enumerate(cells)):
        raise ArchiveError(f"{place} does not count 0, 1, 2 and so on")
    elif column.kind == "int":
        _check_numbers(place, column, cells, min(present), max(present), rows)


def _check_texts(place: str, column: Column, texts: set[str]) -> None:
    if column.among and (odd := texts.difference(column.among)):
        raise ArchiveError(f"{place} holds {shown(min(odd))}, which is none of {', '.join(column.among)}")
    for text in texts:
        if len(text) > MAX_TEXT_CHARS:
            raise ArchiveError(f"{place} holds a text of {len(text)} characters; {MAX_TEXT_CHARS} are allowed")
        if column.kind == "sizes":
            _check_sizes(place, column, text)
        elif not is_unicode(text):
            raise ArchiveError(f"{place} holds text that is not Unicode")


def _check_sizes(place: str, column: Column, text: str) -> None:
    try:
        sizes = parse_sizes(text)
    except ValueError as error:
        raise ArchiveError(f"{place}: {error}") from None
    if column.length is not None and len(sizes) != column.length:
        raise ArchiveError(f"{place} holds {len(sizes)} sizes, not {column.length}")
    for size in sizes:
        if column.least is not None and size < column.least:
            note = f"the negative size {size}" if column.least == 0 else f"{size}, which is out of range"
            raise ArchiveError(f"{place} holds {note}")
        if column.most is not None and size > column.most:
            raise ArchiveError(f"{place} holds {size}, which is out of range")


def _check_numbers(
    place: str, column: Column, cells: list[Any], lowest: int, highest: int, rows: Mapping[str, int]
) -> None:
    low, high = (INT64[0] if column.least is None else column.least), INT64[1]
    if column.refers is not None:
        low, high = 0, rows[column.refers] - 1
    if lowest < low or highest > high:
        odd = lowest if lowest < low else highest
        note = f"refers to row {odd} of {rows[column.refers]} in {column.refers}" if column.refers else ""
        raise ArchiveError(f"{place}, row {cells.index(odd)} {note or f'holds {odd}, which is out of range'}")
    if column.earlier:
        for at, cell in enumerate(cells):
            if cell is not None and cell >= at:
                raise ArchiveError(f"{place}, row {at} refers to row {cell}, which is not above it")


_ENERGY = ("energy_j", "low_j", "high_j")


def check_replays(columns: Mapping[str, Sequence[Any]], referred: Sequence[int | None]) -> None:
    """Raise ArchiveError if replays contradict themselves, each other, or the references of operators, `referred`."""
    for row, cells in enumerate(zip(*(columns[name] for name in _ENERGY), strict=True)):
        _check_energy(row, *cells)
    ops = columns["op"]
    _check_order(ops, columns["domain"])
    for op, first in enumerate(referred):
        if first is not None and not _is_first(ops, first):
            raise ArchiveError(f"its operator {op} refers to row {first} in replays, which is not its first row")


def _check_times(table: str, times_s: Sequence[float]) -> None:
    for row, time_s in enumerate(times_s):
        if not 0.0 <= time_s < math.inf:
            raise ArchiveError(f"its table {table}, row {row} has the impossible time {time_s} s")


def _check_energy(row: int, energy_j: float | None, low_j: float | None, high_j: float | None) -> None:
    place = f"its table replays, row {row}"
    if energy_j is low_j is high_j is None:
        return
    if energy_j is None or low_j is None or high_j is None:
        raise ArchiveError(f"{place} has an energy without an interval, or an interval without an energy")
    if not all(map(math.isfinite, (energy_j, low_j, high_j))):
        raise ArchiveError(f"{place} has an energy or an interval that is not finite")
    if not low_j <= energy_j <= high_j:
        raise ArchiveError(f"{place} is impossible: energy {energy_j} J outside its interval {low_j}..{high_j} J")


def _check_order(ops: Sequence[int], domains: Sequence[str]) -> None:
    begun: set[int] = set()
    of_one: set[str] = set()
    for row, (op, domain) in enumerate(zip(ops, domains, strict=True)):
        if _is_first(ops, row):
            if op in begun:
                raise ArchiveError(f"its table replays, row {row} is apart from the others of operator {op}")
            begun.add(op)
            of_one = set()
        if domain in of_one:
            raise ArchiveError(f"its table replays, row {row} is a second one of operator {op} for {shown(domain)}")
        of_one.add(domain)


def _is_first(ops: Sequence[int], row: int) -> bool:
    return row == 0 or ops[row] != ops[row - 1]


# PyTorch allows 64 dimensions (TensorIterator, `at::kMaxDims`), NumPy 64, XLA and TensorFlow fewer.
MAX_SIZES = 64
_SIZES = re.compile(rf"-?[0-9]{{1,19}}(?:,-?[0-9]{{1,19}}){{0,{MAX_SIZES - 1}}}")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the numbers in a text of sizes; raises ValueError for any other text."""
    if not text:
        return ()
    if not _SIZES.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a list of up to {MAX_SIZES} sizes")
    sizes = tuple(map(int, text.split(",")))
    if not -(2**63) <= min(sizes) <= max(sizes) < 2**63:
        raise ValueError(f"{text[:40]!r} holds a size beyond 64 bits")
    return sizes
