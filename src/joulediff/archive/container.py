"""The ZIP around the tables: stored entries side by side, nothing compressed, nothing to extract.

`zipfile` writes it. It is read here instead, because this reader needs less than a ZIP may be: every size is
checked before it is used, and an entry is a view of the file's bytes, never a copy or a path.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from joulediff.archive.codec import shown
from joulediff.model.errors import ArchiveError

BEGIN = b"PK\x03\x04"
# Eleven tables and a manifest, with room for later versions.
MAX_ENTRIES = 64
# Entries of a .jd file have this fixed time, so that equal runs make equal files.
NO_TIME = (1980, 1, 1, 0, 0, 0)

_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_UTF8_FLAG = 0x800
_CUT = "its end is missing: it was cut off, or something was added to it"


class _Entry(NamedTuple):
    name: bytes
    begin: int
    """Offset of its local header, which stands before its data."""
    end: int
    data: memoryview


def is_recording(place: str | Path) -> bool:
    """Return whether a path names a recording, by its name or by its first bytes."""
    path = Path(place)
    if path.suffix == ".jd":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(BEGIN)) == BEGIN
    except OSError:
        return False


def pack(entries: Mapping[str, bytes]) -> bytes:
    """Return a ZIP of stored entries."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=False) as container:
        for name, data in entries.items():
            container.writestr(zipfile.ZipInfo(name, NO_TIME), data)
    return sink.getvalue()


def unpack(data: bytes) -> dict[str, memoryview]:
    """Return the entries of a ZIP that `pack` could have written; raises ArchiveError for any other."""
    view = memoryview(data)
    directory, count = _find_directory(view)
    entries, at = [], directory
    for _ in range(count):
        entry, at = _read_entry(view, at, directory)
        entries.append(entry)
    if at != len(view) - _END.size:
        raise ArchiveError("its list of entries is damaged")
    entries.sort(key=lambda entry: entry.begin)
    if any(a.end > b.begin for a, b in pairwise(entries)):
        raise ArchiveError("two of its entries overlap")
    if len({entry.name for entry in entries}) < len(entries):
        raise ArchiveError("two of its entries have the same name")
    return {entry.name.decode(): entry.data for entry in entries}


def _find_directory(view: memoryview) -> tuple[int, int]:
    if len(view) < _END.size:
        raise ArchiveError(_CUT)
    mark, disk, first_disk, here, count, size, begin, comment = _END.unpack_from(view, len(view) - _END.size)
    if mark != b"PK\x05\x06" or comment:
        raise ArchiveError(_CUT)
    if disk or first_disk or here != count or begin + size != len(view) - _END.size:
        raise ArchiveError("its list of entries is damaged")
    if count > MAX_ENTRIES:
        raise ArchiveError(f"it has {count} entries, and {MAX_ENTRIES} is the most a run has")
    return begin, count


def _read_entry(view: memoryview, at: int, directory: int) -> tuple[_Entry, int]:
    if at + _ENTRY.size > len(view):
        raise ArchiveError("its list of entries is damaged")
    mark, _, _, flags, method, _, _, crc, packed, size, named, extra, comment, disk, _, _, begin = _ENTRY.unpack_from(
        view, at
    )
    name = bytes(view[at + _ENTRY.size : at + _ENTRY.size + named])
    if mark != b"PK\x01\x02" or disk:
        raise ArchiveError("its list of entries is damaged")
    if not _NAME.fullmatch(name):
        raise ArchiveError(f"an entry is named {shown(ascii(name)[1:])}, which is not the name of a table")
    if flags & ~_UTF8_FLAG or method or packed != size:
        raise ArchiveError(f"its entry {name.decode()} is compressed or encrypted, and a run's never are")
    begins = _begin_of_data(view, name, flags, begin, directory)
    if begins + size > directory:
        raise ArchiveError(f"its entry {name.decode()} claims {size} bytes, more than there are")
    data = view[begins : begins + size]
    if zlib.crc32(data) != crc:
        raise ArchiveError(f"the bytes of its entry {name.decode()} have changed since it was written")
    return _Entry(name, begin, begins + size, data), at + _ENTRY.size + named + extra + comment


def _begin_of_data(view: memoryview, name: bytes, flags: int, begin: int, directory: int) -> int:
    if begin + _LOCAL.size > directory:
        raise ArchiveError(f"its entry {name.decode()} lies outside of the file")
    mark, _, own_flags, own_method, _, _, _, _, _, named, extra = _LOCAL.unpack_from(view, begin)
    own_name = view[begin + _LOCAL.size : begin + _LOCAL.size + named]
    if mark != BEGIN or own_flags != flags or own_method or own_name != name:
        raise ArchiveError(f"its entry {name.decode()} is not where its list of entries says")
    return begin + _LOCAL.size + int(named) + int(extra)


MANIFEST = "manifest.json"
PADDING = "padding"
# Well below where ZIP needs its 64-bit form; a run of 50,000 operators takes a thirtieth.
MAX_FILE_BYTES = 2**30
# A usual manifest takes 4 kB. A byte of it may become 32 in memory (`[[],[],[]]`).
MAX_MANIFEST_BYTES = 2**20
JSON_FACTOR = 32
# Enough for about 10,000 operators, however well they are packed.
FREE_BYTES = 64 * 2**20
MEMORY_FACTOR = 10


def table_entry(table: str) -> str:
    """Return the name of a table's entry in the container."""
    return f"{table}.parquet"


def missing_bytes(size_bytes: int, memory_bytes: int) -> int:
    """Return the bytes that a file lacks to be allowed the memory that reading it takes."""
    needed = -(-(memory_bytes - FREE_BYTES) // (MEMORY_FACTOR - 1))
    return max(0, needed - size_bytes)
