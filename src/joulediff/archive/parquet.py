"""One table as Parquet: numbers as they are, texts by dictionary, packed with zstd.

The library is given only what `footer` has found sound, and no schema or statistics are written that it
would have to interpret. A text stays in its dictionary until it is a Python object, so a long one that many
rows refer to exists once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from joulediff.archive import footer
from joulediff.archive.codec import shown
from joulediff.archive.footer import Footer, read_footer
from joulediff.archive.schema import TABLES, Column
from joulediff.archive.thrift import Malformed
from joulediff.model.errors import ArchiveError

if TYPE_CHECKING:
    import pyarrow as pa

# Memory of a cell in 64-bit CPython: a pointer in a list, a pointer in a record, and an object for a number that is
# not shared. A row adds a record's header, a pointer in the run, and its share of memory that is used only while
# reading. Measured with tables of large numbers only (CPython 3.11, Arrow 26), rounded up.
_PLACES_BYTES = 16
_OBJECT_BYTES = {"int": 32, "float": 24}
_ROW_BYTES = {"ops": 240, "op_values": 112, "value_writers": 80, "kernel_members": 80}
_RECORD_BYTES = 176
# A text takes up to four bytes a character in Python, two copies and a check of its UTF-8, an object, and entries in
# hash tables.
_TEXT_FACTOR, _ENTRY_BYTES = 8, 190
# Two characters of a text of sizes become one number in a tuple.
_SIZES_FACTOR = 25
_PHYSICAL = {
    "id": footer.INT64,
    "int": footer.INT64,
    "float": footer.DOUBLE,
    "bool": footer.BOOLEAN,
    "text": footer.BYTE_ARRAY,
    "sizes": footer.BYTE_ARRAY,
}
# Longer than any list in a footer of `MAX_COLUMNS`.
MAX_THRIFT_ITEMS = 1024


def encode(name: str, cells: dict[str, list[Any]]) -> bytes:
    """Return the bytes of a Parquet table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = TABLES[name]
    kinds = {"float": pa.float64(), "bool": pa.bool_(), "text": pa.string(), "sizes": pa.string()}
    schema = pa.schema([pa.field(c.name, kinds.get(c.kind, pa.int64()), nullable=c.optional) for c in columns])
    table = pa.table({c.name: pa.array(cells[c.name], schema.field(c.name).type) for c in columns}, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(table.num_rows, 1),
        compression="zstd",
        use_dictionary=[c.name for c in columns if _is_text(c)],
        write_statistics=False,
        store_schema=False,
    )
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def inspect(name: str, data: memoryview) -> Footer:
    """Return the declarations of a table; raises ArchiveError if they are inconsistent or of other types."""
    try:
        found = read_footer(data, [column.name for column in TABLES[name]])
    except (Malformed, UnicodeDecodeError) as error:
        raise ArchiveError(f"its table {name} is damaged ({shown(error)})") from None
    for column in TABLES[name]:
        if found.types.get(column.name, _PHYSICAL[column.kind]) != _PHYSICAL[column.kind]:
            raise ArchiveError(f"its table {name}, column {column.name} is not of type {column.kind}")
    return found


def memory_bytes(name: str, table: Footer) -> int:
    """Return the most memory that reading a table can take, by its declarations."""
    # Columns are read one after the other, so only the largest is unpacked at a time.
    total = max((chunk.size_bytes for chunk in table.chunks.values()), default=0)
    total += table.rows * _ROW_BYTES.get(name, _RECORD_BYTES)
    for column in TABLES[name]:
        shared = column.refers is not None
        total += table.rows * (_PLACES_BYTES + (0 if shared else _OBJECT_BYTES.get(column.kind, 0)))
        if _is_text(column) and (chunk := table.chunks.get(column.name)) is not None:
            factor = _SIZES_FACTOR if column.kind == "sizes" else _TEXT_FACTOR
            total += factor * chunk.size_bytes + _ENTRY_BYTES * chunk.entries
    return total


def open_table(name: str, data: memoryview, table: Footer) -> Callable[[str], list[Any]]:
    """Return a function that reads the cells of one column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {column.name: column for column in TABLES[name] if column.name in table.types}
    with _named(name):
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data)),
            read_dictionary=[column.name for column in columns.values() if _is_text(column)],
            pre_buffer=False,
            thrift_string_size_limit=footer.MAX_FOOTER_BYTES,
            thrift_container_size_limit=MAX_THRIFT_ITEMS,
        )

    def read(column: str) -> list[Any]:
        with _named(name):
            return _cells(file.read([column], use_threads=False).column(0), columns[column])

    return read


@contextmanager
def _named(table: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise ArchiveError(f"its table {table} is damaged ({shown(error)})") from None


def _is_text(column: Column) -> bool:
    return column.kind in ("text", "sizes")


def _cells(found: pa.ChunkedArray, column: Column) -> list[Any]:
    import pyarrow as pa

    take = _texts if _is_text(column) else _numbers
    expected = {"float": pa.float64(), "bool": pa.bool_()}.get(column.kind, pa.int64())
    if found.type != (pa.dictionary(pa.int32(), pa.string()) if take is _texts else expected):
        raise ValueError(f"the column {column.name} is read as {found.type}")
    return [cell for chunk in found.chunks for cell in take(chunk)]


def _texts(chunk: pa.DictionaryArray) -> list[str | None]:
    chunk.validate(full=True)  # Arrow does not check by itself that an index is in the dictionary
    word: Callable[[int], str] = chunk.dictionary.to_pylist().__getitem__
    return [at if at is None else word(at) for at in _numbers(chunk.indices)]


# Arrow's own `to_pandas_dtype` needs pandas in some versions (25).
_DTYPES = {"double": "<f8", "int64": "<i8", "int32": "<i4"}


def _numbers(chunk: pa.Array) -> list[Any]:
    """Return the cells of a chunk; as fast as NumPy, and exact where a cell is missing."""
    import numpy as np
    import pyarrow as pa

    chunk.validate(full=True)
    if len(chunk) == 0:
        return []
    valid, values = chunk.buffers()
    part = slice(chunk.offset, chunk.offset + len(chunk))
    if pa.types.is_boolean(chunk.type):
        cells: list[Any] = _bits(values)[part].astype(bool).tolist()
    else:
        cells = np.frombuffer(values, _DTYPES[str(chunk.type)])[part].tolist()
    if chunk.null_count:
        for at in np.flatnonzero(_bits(valid)[part] == 0).tolist():
            cells[at] = None
    return cells


def _bits(buffer: pa.Buffer) -> Any:
    import numpy as np

    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
