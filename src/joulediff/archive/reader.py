"""Reads a recording from a file of unknown origin: a run, or one of a script's API calls.

Nothing is unpacked to disk, unpickled or run. Before any table is read, the memory that reading would take is summed up
from the declared sizes, and compared with the limit for a file of this size.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from joulediff.archive import apis
from joulediff.archive.check import check_version, sound
from joulediff.archive.codec import read_json, shown
from joulediff.archive.container import (
    BEGIN,
    JSON_FACTOR,
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    missing_bytes,
    table_entry,
    unpack,
)
from joulediff.archive.footer import Footer
from joulediff.archive.parquet import inspect, memory_bytes, open_table
from joulediff.archive.schema import TABLES, Tables
from joulediff.archive.tables import from_tables
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import ArchiveError, WrongType
from joulediff.model.run import Run

_NAME_ONE = "name a .jd file that joulediff recorded"
_DAMAGED = "copy it again from where it was recorded, or record the program again"


def load(path: str | os.PathLike[str]) -> Run | ApiRun:
    """Return the recording in a file; raises ArchiveError for any other file."""
    if not isinstance(path, str | os.PathLike):
        raise WrongType(
            f"joulediff.load needs the path of a recording, and got an object of the type {type(path).__name__}",
            fix="give a path; a Run is already loaded",
        )
    try:
        return from_bytes(_read(Path(path)))
    except ArchiveError as error:
        raise ArchiveError(f"{path} cannot be read: {error.what}", fix=error.fix or _DAMAGED) from error
    except (MemoryError, RecursionError) as error:
        raise ArchiveError(f"{path} cannot be read: it needs more memory than there is", fix=_DAMAGED) from error


def load_run(path: str | os.PathLike[str]) -> Run:
    """Return the run of a program's step in a file, for what is there for such runs alone."""
    return require_run(load(path), path)


def require_run(found: Run | ApiRun, path: str | os.PathLike[str]) -> Run:
    """Return the recording of `path` if it is the run of a program's step; raises ArchiveError for the other kind."""
    if isinstance(found, Run):
        return found
    raise ArchiveError(
        f"{path} has the API calls of a script, and no step of a program",
        fix="`joulediff show` reads it, and `joulediff diff` compares two such files; record a step: joulediff record",
    )


def from_bytes(data: bytes) -> Run | ApiRun:
    """Return the recording in the bytes of a file."""
    if not data:
        raise ArchiveError("it is empty", fix="record the program again: the recording ended before it was written")
    if not data.startswith(BEGIN[: len(data)]):
        raise ArchiveError("it is not a joulediff recording", fix=_NAME_ONE)
    entries = unpack(data)
    manifest = _read_manifest(entries)
    if apis.is_manifest(manifest):
        return apis.from_entries(manifest, entries, len(data))
    return from_tables(_read_tables(manifest, entries, len(data)))


def _read(path: Path) -> bytes:
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise ArchiveError("it is a folder", fix=_NAME_ONE)
        if not stat.S_ISREG(found.st_mode):
            raise ArchiveError("it is not a regular file", fix=_NAME_ONE)
        with path.open("rb") as file:
            data = file.read(min(found.st_size, MAX_FILE_BYTES) + 1)
    except FileNotFoundError:
        raise ArchiveError("there is no such file", fix="check the name and the folder") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else shown(error)
        raise ArchiveError(reason, fix="check that it is a file you may read") from None
    if len(data) > MAX_FILE_BYTES:
        raise ArchiveError(f"it is larger than {MAX_FILE_BYTES} bytes, the most a file has", fix=_NAME_ONE)
    return data


def _read_tables(manifest: Any, entries: dict[str, memoryview], size_bytes: int) -> Tables:
    check_version(manifest)
    listed = manifest.get("tables")
    if not isinstance(listed, dict):
        raise ArchiveError("its manifest lists no tables")
    present = {name: entries[table_entry(name)] for name in TABLES if table_entry(name) in entries}
    footers = {name: _inspect(name, data, listed.get(name)) for name, data in present.items()}
    memory = JSON_FACTOR * len(entries[MANIFEST])
    memory += sum(memory_bytes(name, footer) for name, footer in footers.items())
    if missing_bytes(size_bytes, memory):
        raise ArchiveError(f"it claims to hold {memory} bytes in a file of {size_bytes}")
    readers = {name: open_table(name, data, footers[name]) for name, data in present.items() if footers[name].rows}

    def read(table: str, column: str) -> list[Any] | None:
        if column not in footers[table].types:
            return None
        return readers[table](column) if table in readers else []

    return sound(manifest, {name: footer.rows for name, footer in footers.items()}, read)


def _read_manifest(entries: dict[str, memoryview]) -> Any:
    data = entries.get(MANIFEST)
    if data is None:
        raise ArchiveError("it is a ZIP file, but not a joulediff recording", fix=_NAME_ONE)
    if len(data) > MAX_MANIFEST_BYTES:
        raise ArchiveError(f"its manifest has {len(data)} bytes; {MAX_MANIFEST_BYTES} are allowed")
    return read_json(bytes(data))


def _inspect(name: str, data: memoryview, listed: Any) -> Footer:
    if not isinstance(listed, dict):
        raise ArchiveError(f"its manifest does not list its table {name}")
    if listed.get("size_bytes") != len(data) or listed.get("sha256") != hashlib.sha256(data).hexdigest():
        raise ArchiveError(f"its table {name} was changed after it was written")
    found = inspect(name, data)
    if listed.get("rows") != found.rows:
        raise ArchiveError(f"its table {name} has {found.rows} rows, not {shown(listed.get('rows'))}")
    return found
