"""Converts the records of a run to the columns of tables, and back.

The fields of a record are the columns of its table. The tuples of references in `Op` and `Value` are the tables
`op_values` and `value_writers`, whose rows are in the order of the records that own them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate, compress, pairwise
from types import NoneType
from typing import Any, get_type_hints

from joulediff.archive.check import TYPES, parse_sizes, sound
from joulediff.archive.codec import from_plain, to_scalar
from joulediff.archive.schema import TABLES, Column, Tables
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Frame, HostSample, Kernel, Op, Replay, Run, SettingSpan, SourceText, Value, Wait
from joulediff.model.signature import Signature

RECORDS: dict[str, type] = {
    "ops": Op,
    "values": Value,
    "signatures": Signature,
    "frames": Frame,
    "kernels": Kernel,
    "waits": Wait,
    "sources": SourceText,
    "replays": Replay,
    "host_samples": HostSample,
}
HEAD = tuple(field.name for field in fields(Run) if field.name not in RECORDS)
# Tables of references, whose rows belong to records of another table.
REFERENCES = ("op_values", "value_writers", "kernel_members")
ROLES = {"in": "inputs", "out": "outputs", "write": "writes"}


def to_columns(name: str, records: Sequence[Any]) -> dict[str, dict[str, list[Any]]]:
    """Return the table of some records of a run, with the table of their references to others."""
    found = {
        name: {
            column.name: _to_cells(column, [getattr(record, column.name) for record in records])
            for column in TABLES[name]
        }
    }
    if name == "ops":
        found["op_values"] = _uses(records)
    if name == "kernels":
        found["kernel_members"] = {
            "kernel": [at for at, kernel in enumerate(records) for _ in kernel.members],
            "op": [op for kernel in records for op in kernel.members],
        }
    if name == "values":
        found["value_writers"] = {
            "value": [value.id for value in records for _ in value.writers],
            "op": [op for value in records for op in value.writers],
        }
    return found


def check_tables(manifest: Any, columns: Mapping[str, Any]) -> Tables:
    """Return the known tables and columns of a run in memory; raises ArchiveError at the first that is wrong."""
    rows = {}
    for name in TABLES.keys() & columns.keys():
        first = columns[name].get(TABLES[name][0].name) if isinstance(columns[name], Mapping) else None
        if not isinstance(first, list):
            raise ArchiveError(f"its table {name} has no column {TABLES[name][0].name}")
        rows[name] = len(first)
    return sound(manifest, rows, lambda table, column: columns[table].get(column))


def from_tables(tables: Tables, head: Mapping[str, Any] | None = None) -> Run:
    """Return the run in tables whose cells are checked, and take the tables apart; raises ArchiveError without one.

    `head` has the fields of the run beside its tables, where they were read before.
    """
    found, columns = dict(head or read_head(tables)), tables.columns
    for (name, field), references in gather_references(columns).items():
        columns[name][field] = references
    for name in REFERENCES:
        del columns[name]
    found.update({name: _from_columns(name, columns.pop(name)) for name in RECORDS})
    return Run(**found)


def read_head(tables: Tables) -> dict[str, Any]:
    """Return the fields of a run outside its tables; raises ArchiveError if they do not fit the tables."""
    found = read_manifest(tables.manifest)
    check_spans(found.get("spans", ()), len(tables.columns["ops"]["id"]))
    return found


def gather_references(columns: Mapping[str, Mapping[str, list[Any]]]) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    """Return, by table and field, the references of each row that are stored in a separate table."""
    uses, writers, found = columns["op_values"], columns["value_writers"], {}
    for role, field in ROLES.items():
        chosen = [each == role for each in uses["role"]]
        owners, values, places = (list(compress(uses[name], chosen)) for name in ("op", "value", "position"))
        found["ops", field] = gather(len(columns["ops"]["id"]), owners, values, "op_values", places)
    count = len(columns["values"]["id"])
    found["values", "writers"] = gather(count, writers["value"], writers["op"], "value_writers")
    members = columns["kernel_members"]
    count = len(columns["kernels"]["op"])
    found["kernels", "members"] = gather(count, members["kernel"], members["op"], "kernel_members")
    return found


def read_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a run that are in its manifest."""
    hints = get_type_hints(Run)
    missing = [name for name in ("label", "created", "tool") if name not in manifest]
    if missing:
        raise ArchiveError(f"{missing[0]} is missing in its manifest")
    head = {"program": None} | {name: manifest[name] for name in HEAD if name in manifest}
    return {name: from_plain(hints[name], value, name) for name, value in head.items()}


def gather(
    count: int, owners: Sequence[int], items: Sequence[int], table: str, places: Sequence[int] | None = None
) -> list[tuple[int, ...]]:
    """Return the items of each of `count` owners; `places`, if given, must number the items of an owner from 0."""
    if any(a > b for a, b in pairwise(owners)):
        raise ArchiveError(f"the rows of its table {table} are out of order")
    sizes = [0] * count
    for owner in owners:
        sizes[owner] += 1
    if places is not None and any(a != b for a, b in zip(places, _numbered(sizes), strict=True)):
        raise ArchiveError(f"the positions in its table {table} are not 0, 1, 2 and so on")
    return [tuple(items[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))]


def _numbered(sizes: Iterable[int]) -> Iterable[int]:
    return (place for size in sizes for place in range(size))


def _uses(ops: Sequence[Op]) -> dict[str, list[Any]]:
    rows = [
        (op.id, role, place, value)
        for op in ops
        for role, field in ROLES.items()
        for place, value in enumerate(getattr(op, field))
    ]
    names = [column.name for column in TABLES["op_values"]]
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _to_cells(column: Column, cells: list[Any]) -> list[Any]:
    if column.kind == "sizes":
        texts = {cell: None if cell is None else ",".join(map(str, cell)) for cell in set(cells)}
        return [texts[cell] for cell in cells]
    if column.kind == "text":
        texts = {cell: to_scalar(cell) for cell in set(cells)}
        return [texts[cell] for cell in cells]
    if set(map(type, cells)) <= {TYPES[column.kind], NoneType}:
        return cells
    plain = [to_scalar(cell) for cell in cells]
    return [float(cell) if type(cell) is int else cell for cell in plain] if column.kind == "float" else plain


def _from_columns(name: str, columns: dict[str, list[Any]]) -> tuple[Any, ...]:
    for column in TABLES[name]:
        if column.kind == "sizes":
            cells = columns[column.name]
            sizes = {text: None if text is None else parse_sizes(text) for text in set(cells)}
            columns[column.name] = [sizes[text] for text in cells]
    return tuple(map(RECORDS[name], *(columns[field.name] for field in fields(RECORDS[name]))))


def check_spans(spans: Sequence[SettingSpan], ops: int) -> None:
    """Raise ArchiveError for a span that is reversed, overlaps the one before, or exceeds the number of operators."""
    free = 0
    for row, span in enumerate(spans):
        if not 0 <= span.first <= span.last < ops:
            raise ArchiveError(f"spans[{row}] in its manifest is from {span.first} to {span.last} of {ops} operators")
        if span.first < free:
            raise ArchiveError(f"spans[{row}] in its manifest begins before the one above it ends")
        free = span.last + 1
