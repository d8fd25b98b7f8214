"""Checks the footer and the page headers of a Parquet table, before the Parquet library reads any of it.

The library allocates what page headers declare, and a page of a few bytes may declare gigabytes: the footer's
own sizes are no defence, because nothing holds pages to them. So the footer and every page header of the
columns a run needs are read here, and anything that this package's writer would not write is refused.
Field numbers: github.com/apache/parquet-format, src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from joulediff.archive.thrift import BINARY, I32, I64, LIST, STRUCT, Malformed, Struct, Typed, read_struct

MAGIC = b"PAR1"
# Twenty columns take three kilobytes. A footer becomes some hundred times its size in the library's memory.
MAX_FOOTER_BYTES = 32 * 1024
MAX_COLUMNS = 128
# The library begins a page after 20,000 rows or a megabyte.
ROWS_PER_PAGE = BYTES_PER_PAGE = 1000

BOOLEAN, INT64, DOUBLE, BYTE_ARRAY = 0, 2, 5, 6
_REQUIRED, _OPTIONAL = 0, 1
_UTF8 = 0
_STRING = {1: Typed(STRUCT, {})}
_UNCOMPRESSED, _ZSTD = 0, 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_ENCODINGS = {
    BOOLEAN: (_PLAIN, _RLE),
    INT64: (_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY),
    DOUBLE: (_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY),
    BYTE_ARRAY: (_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY),
}
# A text in a dictionary takes its length (4 bytes) at least.
_ENTRY_BYTES = {INT64: 8, DOUBLE: 8, BYTE_ARRAY: 4}


@dataclass(slots=True)
class Chunk:
    """The cells of one column, and their size when they are unpacked."""

    type: int
    size_bytes: int = 0
    entries: int = 0
    """Number of cells that are stored; the others refer to one of them."""


@dataclass(slots=True)
class Footer:
    """The declarations of a table, found consistent."""

    rows: int
    types: dict[str, int]
    """The physical type of every column, also of those a run does not need."""
    chunks: dict[str, Chunk] = field(default_factory=dict)


def read_footer(data: memoryview, needed: Collection[str]) -> Footer:
    """Return the declarations of a table, with the pages of its `needed` columns; raises Malformed."""
    size = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC or size > len(data) - 12:
        raise Malformed("it is not a Parquet table, or it is cut off")
    if size > MAX_FOOTER_BYTES:
        raise Malformed(f"a footer of {size} bytes")
    begin = len(data) - 8 - size
    meta, end = read_struct(data[: len(data) - 8], begin)
    if end != len(data) - 8 or 8 in meta or 9 in meta:
        raise Malformed("a footer of another kind")
    _refuse_other_schema(meta)
    columns = _columns(_list(meta, 2, STRUCT))
    footer = Footer(_int(meta, 3, I64), dict(columns))
    groups = _list(meta, 4, STRUCT)
    if footer.rows < 0 or len(groups) > 1 or (footer.rows and not groups):
        raise Malformed(f"{footer.rows} rows in {len(groups)} groups")
    for group in groups if footer.rows else ():
        _read_group(data[:begin], group, columns, footer, needed)
    return footer


def _refuse_other_schema(meta: Struct) -> None:
    """Refuse an embedded Arrow schema: it would replace the types that are checked here."""
    for pair in _list(meta, 5, STRUCT) if 5 in meta else ():
        if _get(pair, 1, BINARY).startswith(b"ARROW:"):
            raise Malformed("a second schema")


def _columns(elements: list[Struct]) -> list[tuple[str, int]]:
    if not elements or len(elements) > MAX_COLUMNS or _int(elements[0], 5, I32) != len(elements) - 1:
        raise Malformed("columns that are not flat")
    columns = [_column(element) for element in elements[1:]]
    if len({name for name, _ in columns}) < len(columns):
        raise Malformed("two columns of one name")
    return columns


def _column(element: Struct) -> tuple[str, int]:
    """Return a column's name and type; -1 for a type that no run of this version has."""
    if 5 in element or _int(element, 3, I32) not in (_REQUIRED, _OPTIONAL):
        raise Malformed("columns that are not flat")
    kind, name = _int(element, 1, I32), _get(element, 4, BINARY).decode("utf-8")
    converted = _int(element, 6, I32) if 6 in element else None
    logical = _get(element, 10, STRUCT) if 10 in element else None
    is_text = converted in (None, _UTF8) and logical in (None, _STRING) and (converted, logical) != (None, None)
    is_plain = converted is None and logical is None
    known = is_text if kind == BYTE_ARRAY else is_plain and kind in (BOOLEAN, INT64, DOUBLE)
    return name, kind if known else -1


def _read_group(
    data: memoryview, group: Struct, columns: list[tuple[str, int]], footer: Footer, needed: Collection[str]
) -> None:
    chunks = _list(group, 1, STRUCT)
    if len(chunks) != len(columns) or _int(group, 3, I64) != footer.rows:
        raise Malformed("a group of other columns or rows")
    left_bytes = len(data)
    for (name, kind), chunk in zip(columns, chunks, strict=True):
        if 1 in chunk or 8 in chunk or 9 in chunk:
            raise Malformed(f"the column {name} in another file, or encrypted")
        if name in needed and kind >= 0:
            meta = _get(chunk, 3, STRUCT)
            left_bytes -= _int(meta, 7, I64)
            if _int(meta, 1, I32) != kind or _int(meta, 5, I64) != footer.rows or left_bytes < 0:
                raise Malformed(f"the column {name} of another type or size")
            footer.chunks[name] = _read_chunk(data, meta, kind, footer.rows)


def _read_chunk(data: memoryview, meta: Struct, kind: int, rows: int) -> Chunk:
    at = first = _int(meta, 9, I64)
    if 11 in meta:
        at = _int(meta, 11, I64)
    end, codec = at + _int(meta, 7, I64), _int(meta, 4, I32)
    if not len(MAGIC) <= at <= first <= end <= len(data) or codec not in (_UNCOMPRESSED, _ZSTD):
        raise Malformed("a column outside of the table, or packed in another way")
    found, seen, pages = Chunk(kind), 0, 0
    while at < end:
        header, at = read_struct(data[:end], at)
        packed, seen, pages = _int(header, 3, I32), seen + _read_page(header, found, codec, first=not pages), pages + 1
        at += packed
        if packed < 0 or pages > 16 + rows // ROWS_PER_PAGE + (end - first) // BYTES_PER_PAGE:
            raise Malformed("pages of no size, or too many")
    if at != end or seen != rows:
        raise Malformed(f"{seen} cells where there are {rows} rows")
    return found


def _read_page(header: Struct, chunk: Chunk, codec: int, *, first: bool) -> int:
    """Add a page to the size of its column, and return its number of cells."""
    page, size = _int(header, 1, I32), _int(header, 2, I32)
    if size < 0 or (codec == _UNCOMPRESSED and size != _int(header, 3, I32)):
        raise Malformed("a page of an impossible size")
    chunk.size_bytes += size
    if page == _DICTIONARY_PAGE and first and chunk.type in _ENTRY_BYTES:
        about = _get(header, 7, STRUCT)
        entries = _int(about, 1, I32)
        if not 0 <= entries <= size // _ENTRY_BYTES[chunk.type]:
            raise Malformed(f"a dictionary of {entries} in {size} bytes")
        if _int(about, 2, I32) not in (_PLAIN, _PLAIN_DICTIONARY):
            raise Malformed("a dictionary in another encoding")
        chunk.entries += entries
        return 0
    if page != _DATA_PAGE:
        raise Malformed(f"a page of type {page}")
    about = _get(header, 5, STRUCT)
    cells, encoding = _int(about, 1, I32), _int(about, 2, I32)
    if cells < 0 or encoding not in _ENCODINGS[chunk.type] or _int(about, 3, I32) != _RLE:
        raise Malformed("a page in another encoding")
    chunk.entries += cells if encoding == _PLAIN else 0
    return cells


def _get(struct: Struct, number: int, kind: int) -> Any:
    found = struct.get(number)
    if found is None or found.type != kind:
        raise Malformed(f"field {number} is missing or of another type")
    return found.value


def _int(struct: Struct, number: int, kind: int) -> int:
    value: int = _get(struct, number, kind)
    return value


def _list(struct: Struct, number: int, kind: int) -> list[Any]:
    items = _get(struct, number, LIST)
    if any(item.type != kind for item in items):
        raise Malformed(f"field {number} is a list of another type")
    return [item.value for item in items]
