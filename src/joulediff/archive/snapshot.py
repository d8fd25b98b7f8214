"""A run as checked tables: the one form that is sent to another process and written to a file.

A recording is sent and saved after each of its passes, and a pass adds to few tables. A `Snapshot` made `since` an
earlier one converts, sends, and packs for the file only the parts that changed. It becomes a `Run` at most once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from joulediff.archive.codec import read_json, to_plain
from joulediff.archive.footer import Footer
from joulediff.archive.schema import FORMAT, MIN_READER, SCHEMA, TABLES, Column, Tables
from joulediff.archive.tables import (
    HEAD,
    RECORDS,
    check_tables,
    from_tables,
    gather_references,
    read_head,
    to_columns,
)
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Pass, Run

_FIX = "record again, with the same version of joulediff on both sides"


@dataclass(frozen=True, slots=True)
class PackedTable:
    """A table in the encoding of the file."""

    data: bytes
    footer: Footer
    sha256: str


@dataclass(slots=True, eq=False)
class Snapshot:
    """A run after one of its passes. Its tables have passed every check and are never changed."""

    tables: Tables
    packed: dict[str, PackedTable] = field(default_factory=dict)
    """Tables that are packed for a file already."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the run outside its tables."""
    converted: Run | None = None
    """The run that the tables were made of, or that was made of them."""

    @classmethod
    def of(cls, run: Run, since: Snapshot | None = None) -> Snapshot:
        """Return a run as tables; raises ArchiveError if it contradicts itself."""
        manifest = _to_manifest({name: getattr(run, name) for name in HEAD})
        columns = dict(since.tables.columns) if since is not None else {}
        before = since.converted if since is not None else None
        for name in RECORDS:
            if before is None or getattr(run, name) is not getattr(before, name):
                columns.update(to_columns(name, getattr(run, name)))
        found = cls(check_tables(manifest, columns), converted=run)
        found.head = read_head(found.tables)
        found.packed = _still_packed(since, found)
        return found

    @classmethod
    def from_wire(cls, data: bytes, since: Snapshot | None = None) -> Snapshot:
        """Return the snapshot that `to_wire` made since an earlier one; raises ArchiveError for any other bytes."""
        try:
            found = read_json(data)
            if not isinstance(found, dict) or not isinstance(found.get("tables"), dict):
                raise ArchiveError("it holds no recorded run")
            columns = found["tables"] if since is None else _merge(since.tables.columns, found["tables"])
            made = cls(check_tables(found.get("manifest"), columns))
            made.head = read_head(made.tables)
            made.tables.manifest = _to_manifest(made.head)  # unknown keys must not reach a file
            gather_references(made.tables.columns)
            made.packed = _still_packed(since, made)
            return made
        except ArchiveError as error:
            raise ArchiveError(f"the run that was sent cannot be read: {error.what}", fix=error.fix or _FIX) from error
        except MemoryError as error:
            raise ArchiveError("the run that was sent needs more memory than there is", fix=_FIX) from error

    def to_wire(self, since: Snapshot | None = None) -> bytes:
        """Return JSON text of plain ASCII: the manifest, and the columns that differ from those of `since`."""
        tables = self.tables.columns
        if since is not None:
            tables = {name: _changed_columns(name, since, self) for name in tables}
        content = {"manifest": self.tables.manifest, "tables": {name: each for name, each in tables.items() if each}}
        return json.dumps(content, separators=(",", ":")).encode("ascii")

    @property
    def run(self) -> Run:
        """The run in the tables."""
        if self.converted is None:
            columns = {name: dict(cells) for name, cells in self.tables.columns.items()}
            self.converted = from_tables(Tables(self.tables.manifest, columns), self.head)
        return self.converted

    @property
    def label(self) -> str:
        """The label of the run."""
        return str(self.tables.manifest["label"])

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes that have ended."""
        found: tuple[Pass, ...] = self.head.get("passes", ())
        return found

    def changed(self, **fields: Any) -> Snapshot:
        """Return the snapshot with other values in fields of the run outside its tables."""
        manifest = {**self.tables.manifest, **{name: to_plain(value) for name, value in fields.items()}}
        tables = Tables(manifest, self.tables.columns)
        return Snapshot(tables, self.packed, read_head(tables))


def _to_manifest(head: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: to_plain(head[name]) for name in HEAD if name in head}
    return {"schema": SCHEMA, "format": FORMAT, "min_reader": MIN_READER, **fields}


def to_wire(run: Run) -> bytes:
    """Return a run as bytes for another process."""
    return Snapshot.of(run).to_wire()


def from_wire(data: bytes) -> Run:
    """Return the run in bytes that `to_wire` made; raises ArchiveError for any others."""
    return Snapshot.from_wire(data).run


def _merge(before: Mapping[str, Mapping[str, Any]], arrived: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {**before}
    for name, columns in arrived.items():
        if not isinstance(columns, dict):
            raise ArchiveError(f"its table {name[:40]} has no columns")
        merged[name] = {**before.get(name, {}), **columns}
    return merged


def _still_packed(before: Snapshot | None, after: Snapshot) -> dict[str, PackedTable]:
    """Return the packed tables of an earlier snapshot that are the same in a later one."""
    if before is None:
        return {}
    return {name: each for name, each in before.packed.items() if not _changed_columns(name, before, after)}


def _changed_columns(name: str, before: Snapshot, after: Snapshot) -> dict[str, list[Any]]:
    old, new = before.tables.columns[name], after.tables.columns[name]
    return {column.name: new[column.name] for column in TABLES[name] if _differ(column, old, new)}


def _differ(column: Column, old: Mapping[str, list[Any]], new: Mapping[str, list[Any]]) -> bool:
    a, b = old[column.name], new[column.name]
    # 0.0 equals -0.0, and is another number in a file.
    return a != b or (column.kind == "float" and list(map(str, a)) != list(map(str, b)))
