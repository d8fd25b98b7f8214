"""Writes a recording to a file, completely or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joulediff.archive import apis
from joulediff.archive.container import (
    JSON_FACTOR,
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    PADDING,
    missing_bytes,
    pack,
    table_entry,
)
from joulediff.archive.parquet import encode, inspect, memory_bytes
from joulediff.archive.scratch import open_scratch_folder, write_whole
from joulediff.archive.snapshot import PackedTable, Snapshot
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import ArchiveError, JoulediffError
from joulediff.model.run import Run

_ELSEWHERE = "name a file in a folder that exists, is writable and has room"
_REPORT = "the recorder contradicts itself: please report it, with this message"


def save(run: Run | ApiRun | Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a recording to `path`; a file that is there is replaced.

    A process that is killed meanwhile leaves the previous file or none.
    """
    try:
        data = pack(to_entries(run))
        _write(Path(os.path.realpath(path)), data)
    except ArchiveError as error:
        raise ArchiveError(f"{path} was not written: {error.what}", fix=error.fix or _REPORT) from error
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ArchiveError(f"{path} was not written: {reason}", fix=_ELSEWHERE) from error


def why_unwritable(path: str | os.PathLike[str]) -> str | None:
    """Return why a run cannot be saved at `path`, to ask before a recording; None if nothing is known against it.

    The file is written beside its place and moved there, which only its folder must allow.
    """
    place = Path(os.path.realpath(path))
    if place.is_dir():
        return "it is a folder"
    if not place.parent.is_dir():
        return "its folder does not exist"
    if place.exists() and not place.is_file():
        return "it is not an ordinary file"
    return None if os.access(place.parent, os.W_OK | os.X_OK) else "no permission"


@contextmanager
def open_folder(keep: str | os.PathLike[str] | None, what: str) -> Iterator[Path]:
    """Give a folder for recordings: `keep`, made if it is missing, or a temporary one. `what` names the contents."""
    if keep is None:
        with open_scratch_folder() as folder:
            yield folder
        return
    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JoulediffError(
            f"cannot keep {what} in {keep} ({error.strerror})", fix="choose another folder for --keep"
        ) from error
    yield Path(keep)


def to_entries(run: Run | ApiRun | Snapshot) -> dict[str, bytes]:
    """Return the entries of a recording's file, by name."""
    if isinstance(run, ApiRun):
        entries = apis.to_entries(run)
        return _padded(entries, JSON_FACTOR * len(entries[apis.ENTRY]))
    snapshot = run if isinstance(run, Snapshot) else Snapshot.of(run)
    for name, cells in snapshot.tables.columns.items():
        if name not in snapshot.packed:
            snapshot.packed[name] = _pack_table(name, cells)
    packed = {name: snapshot.packed[name] for name in snapshot.tables.columns}
    listed = {
        name: {"rows": each.footer.rows, "size_bytes": len(each.data), "sha256": each.sha256}
        for name, each in packed.items()
    }
    manifest = json.dumps({**snapshot.tables.manifest, "tables": listed}, indent=1).encode()
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise ArchiveError(
            f"the label, notes and settings of the run take {len(manifest)} bytes",
            fix=f"shorten them to {MAX_MANIFEST_BYTES} bytes",
        )
    entries = {MANIFEST: manifest, **{table_entry(name): each.data for name, each in packed.items()}}
    return _padded(entries, sum(memory_bytes(name, each.footer) for name, each in packed.items()))


def _pack_table(name: str, cells: dict[str, list[Any]]) -> PackedTable:
    data = encode(name, cells)
    return PackedTable(data, inspect(name, memoryview(data)), hashlib.sha256(data).hexdigest())


def _padded(entries: dict[str, bytes], memory: int) -> dict[str, bytes]:
    size = sum(map(len, entries.values()))
    padding = missing_bytes(size, memory + JSON_FACTOR * len(entries[MANIFEST]))
    if size + padding > MAX_FILE_BYTES:
        raise ArchiveError(
            f"the run takes {size + padding} bytes, and {MAX_FILE_BYTES} is the most a file has",
            fix="record fewer steps, or a smaller program",
        )
    return entries | ({PADDING: bytes(padding)} if padding else {})


def _write(target: Path, data: bytes) -> None:
    # Renaming over a device or a pipe would replace it by a file.
    if target.exists() and not target.is_file():
        raise ArchiveError("it is not a regular file", fix="name a file, such as run.jd")
    write_whole(target, data)
