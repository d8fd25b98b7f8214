"""Files that are nearly archives, made from a real one by a seed.

The cheap kinds break bytes. The others break one thing and mend everything around it (checksums, sizes, offsets,
CRCs), so that what is broken reaches the layer that has to notice it.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Collection
from copy import deepcopy
from io import BytesIO
from typing import Any

from archive_parquet import Page, Parts, put_together, set_body, take_apart, varint
from joulediff.archive.container import MANIFEST, NO_TIME, pack, table_entry, unpack
from joulediff.archive.schema import TABLES
from joulediff.archive.thrift import BINARY, I16, I32, I64, LIST, STRUCT, Struct, Typed

_LARGE = tuple(2**bits - less for bits in (16, 20, 24, 28, 31, 32, 40, 63) for less in (0, 1))
ODD_INTS = (0, 1, 2, 3, 7, 255, 256, 1000, *_LARGE)
ODD_NUMBERS = (-1, 0, 1, 5, 10**6, 2**31, 2**63 - 1, -(2**63), 0.5, 1e308, float("nan"))
ODD_VALUES = (None, True, *ODD_NUMBERS, 10**19, 10**30, "", "x", "\ud800", [], {}, [[]], {"a": {}})
ODD_CELLS = (None, True, *ODD_NUMBERS, "", "forward", "8,8", "-1", "x" * 300)

Mutator = Callable[[random.Random, bytes], bytes]


def mutate(seed: int, bases: list[bytes], *, without: Collection[str] = ()) -> tuple[str, bytes]:
    """Return the kind of mutant that a seed makes, and its bytes."""
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if kind not in without]
    kind = rng.choices(kinds, [KINDS[kind][1] for kind in kinds])[0]
    return kind, KINDS[kind][0](rng, rng.choice(bases))


# Broken bytes.


def flip(rng: random.Random, base: bytes) -> bytes:
    data = bytearray(base)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng: random.Random, base: bytes) -> bytes:
    return base[: rng.randrange(len(base))] if rng.random() < 0.7 else base[rng.randrange(1, len(base)) :]


def insert(rng: random.Random, base: bytes) -> bytes:
    at = rng.choice([0, len(base), rng.randrange(len(base))])
    return base[:at] + rng.randbytes(rng.choice([1, 4, 22, 100])) + base[at:]


def splice(rng: random.Random, base: bytes) -> bytes:
    a, b, size = rng.randrange(len(base)), rng.randrange(len(base)), rng.randrange(1, 200)
    return base[:a] + base[b : b + size] + base[a + (size if rng.random() < 0.5 else 0) :]


# The container.


def zip_field(rng: random.Random, base: bytes) -> bytes:
    data = bytearray(base)
    mark, size = rng.choice([(b"PK\x03\x04", 30), (b"PK\x01\x02", 46), (b"PK\x05\x06", 22)])
    places, at = [], base.find(mark)
    while at >= 0:
        places.append(at)
        at = base.find(mark, at + 1)
    begin, width = rng.choice(places), rng.choice([2, 4])
    at = begin + rng.randrange(4, size - width + 1, 2)
    value = rng.choice(ODD_INTS) & (2 ** (8 * width) - 1)
    data[at : at + width] = value.to_bytes(width, "little")
    return bytes(data)


def zip_entries(rng: random.Random, base: bytes) -> bytes:
    entries = [(name, bytes(data)) for name, data in unpack(base).items()]
    at = rng.randrange(len(entries))
    name, data = entries[at]
    names = ["../x", "/etc/passwd", "a/b", ".", "..", "x\0y", "CON", "é", "x" * 300, name, MANIFEST, "padding"]
    change = rng.choice(["drop", "rename", "add", "twice", "swap", "many", "deflate"])
    if change == "drop":
        entries.pop(at)
    elif change == "rename":
        entries[at] = (rng.choice(names), data)
    elif change == "add":
        entries.insert(at, (rng.choice(names), rng.randbytes(20)))
    elif change == "twice":
        entries.append((name, data))
    elif change == "swap":
        entries[at] = (name, rng.choice(entries)[1])
    elif change == "many":
        entries += [(f"t{n}", b"") for n in range(rng.choice([10, 100, 3000]))]
    sink = BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(sink, "w") as container:
        warnings.simplefilter("ignore")
        for each, content in entries:
            method = zipfile.ZIP_DEFLATED if change == "deflate" and each == name else zipfile.ZIP_STORED
            container.writestr(zipfile.ZipInfo(each, NO_TIME), content, method)
    return sink.getvalue()


# The manifest.


def manifest_value(rng: random.Random, base: bytes) -> bytes:
    entries = entries_of(base)
    manifest = json.loads(entries[MANIFEST])
    for _ in range(rng.choice([1, 1, 3])):
        change_somewhere(rng, manifest)
    entries[MANIFEST] = json.dumps(manifest).encode()
    return pack(entries)


def change_somewhere(rng: random.Random, node: Any) -> None:
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(node[key], dict | list) or rng.random() < 0.2:
            break
        node = node[key]
    if rng.random() < 0.2:
        del node[key]
    elif isinstance(node[key], int) and rng.random() < 0.5:
        node[key] += rng.choice([-1, 1, 2**31])
    else:
        node[key] = rng.choice(ODD_VALUES)


def manifest_text(rng: random.Random, base: bytes) -> bytes:
    """Texts that are costly or odd to parse."""
    entries = entries_of(base)
    old, depth = entries[MANIFEST], rng.choice([100, 990, 1010, 20_000, 300_000])
    deep = rng.choice([b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])
    entries[MANIFEST] = rng.choice(
        [
            deep,
            old[:1] + b'"x":' + deep + b"," + old[1:],
            old[:1] + b'"tool":' + deep + b"," + old[1:],
            old[:1] + b'"x":' + b"9" * depth + b"," + old[1:],
            old[:1] + b'"x":1e' + b"9" * depth + b"," + old[1:],
            old[:1] + b'"notes":[' + b",".join([b"[]"] * depth) + b"]," + old[1:],
            old + b" " * rng.choice([10, 2**20, 2**21]),
            b"\xff\xfe" + old,
            old.decode().encode("utf-16"),
            b"null",
            b"",
            flip(rng, old),
        ]
    )
    return pack(entries)


# The tables: bytes.


def table_bytes(rng: random.Random, base: bytes) -> bytes:
    entries, name = entries_of(base), any_table(rng)
    change = rng.choice([flip, cut, insert, splice])
    entries[table_entry(name)] = change(rng, entries[table_entry(name)])
    return pack(listed(entries))


def footer_bytes(rng: random.Random, base: bytes) -> bytes:
    entries, name = entries_of(base), any_table(rng)
    data = bytearray(entries[table_entry(name)])
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(rng.choice([1, 1, 2, 4])):
        data[rng.randrange(begin, len(data))] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
    entries[table_entry(name)] = bytes(data)
    return pack(listed(entries))


# The tables: structures.


def footer_field(rng: random.Random, base: bytes) -> bytes:
    def change(parts: Parts) -> None:
        change_struct(rng, parts.footer)

    return with_parts(rng, base, change)


def page_field(rng: random.Random, base: bytes) -> bytes:
    def change(parts: Parts) -> None:
        change_struct(rng, rng.choice(rng.choice(parts.columns)).header)

    return with_parts(rng, base, change)


def page_body(rng: random.Random, base: bytes) -> bytes:
    """Change what a page holds once it is unpacked: levels, indices, lengths of texts, texts."""
    import pyarrow as pa

    def change(parts: Parts) -> None:
        page = rng.choice(rng.choice(parts.columns))
        plain = bytearray(pa.decompress(page.body, page.header[2].value, codec="zstd", asbytes=True))
        for _ in range(rng.choice([1, 1, 2, 5]) if plain else 0):
            plain[rng.randrange(min(len(plain), rng.choice([8, 40, 10**6])))] = rng.choice(
                [0, 255, 128, rng.randrange(256)]
            )
        if rng.random() < 0.2:
            plain = plain[: rng.randrange(len(plain) + 1)] + rng.randbytes(rng.randrange(9))
        set_body(page, bytes(plain))

    return with_parts(rng, base, change)


def page_order(rng: random.Random, base: bytes) -> bytes:
    def change(parts: Parts) -> None:
        a, b = rng.choice(parts.columns), rng.choice(parts.columns)
        kind = rng.randrange(4)
        if kind == 0:
            a.append(deepcopy(rng.choice(b)))
        elif kind == 1:
            a.pop()
        elif kind == 2:
            a.insert(0, deepcopy(rng.choice(b)))
        else:
            a[:], b[:] = b[:], a[:]

    return with_parts(rng, base, change)


def with_parts(rng: random.Random, base: bytes, change: Callable[[Parts], None]) -> bytes:
    entries = entries_of(base)
    name = rng.choice([name for name in TABLES if take_apart(entries[table_entry(name)]).columns])
    parts = take_apart(entries[table_entry(name)])
    try:
        for _ in range(rng.choice([1, 1, 1, 2])):
            change(parts)
        entries[table_entry(name)] = put_together(parts)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return base  # nothing is left that could be put together
    rows = parts.footer.get(3)
    return pack(listed(entries, {name: rows.value} if rows and rng.random() < 0.7 else {}))


def change_struct(rng: random.Random, node: Struct) -> None:
    """Change one field, somewhere down the structure."""
    while True:
        number = rng.choice(list(node))
        found = node[number]
        if found.type == STRUCT and rng.random() < 0.9:
            node = found.value
            if not node:
                return
        elif found.type == LIST and found.value and found.value[0].type == STRUCT and rng.random() < 0.9:
            node = rng.choice(found.value).value
        else:
            break
    if rng.random() < 0.1:
        del node[number]
    elif found.type in (I16, I32, I64):
        odd = rng.choice([*ODD_INTS, found.value + 1, found.value - 1, -found.value, rng.randrange(20)])
        node[number] = Typed(rng.choice([found.type, found.type, I32, I64]), rng.choice([odd, odd, -odd]))
    elif found.type == BINARY:
        odd = rng.choice([b"", b"\xff", b"x" * 5000, flip(rng, found.value) if found.value else b"y"])
        node[number] = Typed(BINARY, odd)
    elif found.type == LIST:
        items = list(found.value)
        rng.choice([items.reverse, items.clear, lambda: items.extend(items * rng.choice([1, 3, 2000]))])()
        node[number] = Typed(LIST, items[:4000])
    else:
        node[number] = Typed(I32, rng.choice(ODD_INTS))


# The tables: cells and columns.


def cells(rng: random.Random, base: bytes) -> bytes:
    """Change some cells, and the types of their columns with them where Arrow asks for it."""
    import pyarrow as pa

    def change(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        at = rng.randrange(table.num_columns)
        column = table.column(at).to_pylist()
        for _ in range(rng.choice([1, 1, 3])):
            column[rng.randrange(len(column))] = rng.choice([*ODD_CELLS, rng.choice(column)])
        rng.choice([lambda: None, lambda: None, lambda: rng.shuffle(column)])()
        field = table.schema.field(at)
        try:
            array = pa.array(column, field.type)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            array = pa.array(
                [None if each is None else str(each).encode("utf-8", "replace").decode() for each in column]
            )
        return table.set_column(at, pa.field(field.name, array.type), array)

    return with_table(rng, base, change)


def columns(rng: random.Random, base: bytes) -> bytes:
    """Drop, rename, repeat, nest or retype a column, or add and drop rows."""
    import pyarrow as pa

    def change(table: pa.Table) -> pa.Table:
        at = rng.randrange(table.num_columns)
        name, column = table.schema.names[at], table.column(at).to_pylist()
        others = [
            pa.int32(),
            pa.float32(),
            pa.binary(),
            pa.large_string(),
            pa.timestamp("us"),
            pa.int64(),
            pa.float64(),
            pa.bool_(),
        ]
        nested = pa.array([[each] * 3 for each in column], pa.list_(table.schema.field(at).type))
        kind = rng.randrange(7)
        if kind == 0:
            return table.drop_columns([name])
        if kind == 1:
            return table.rename_columns([f"{n}x" if n == name else n for n in table.schema.names])
        if kind == 2:
            return table.append_column(name, table.column(at))
        if kind == 3:
            return table.set_column(at, name, nested)
        if kind == 4:
            return table.append_column("later", pa.array([1] * table.num_rows))
        if kind == 5:
            return pa.concat_tables([table] * rng.choice([2, 3])) if rng.random() < 0.5 else table.slice(1)
        other = rng.choice(others)
        return table.set_column(at, name, pa.nulls(table.num_rows, other))

    return with_table(rng, base, change)


def with_table(rng: random.Random, base: bytes, change: Callable[[Any], Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries, name = entries_of(base), any_table(rng)
    table = change(pq.read_table(BytesIO(entries[table_entry(name)])))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=rng.choice([10**6] * 30 + [2]),
        compression=rng.choice(["zstd"] * 20 + ["none"] * 5 + ["snappy", "gzip"]),
        use_dictionary=rng.random() < 0.7,
        write_statistics=rng.random() < 0.2,
        store_schema=rng.random() < 0.05,
        data_page_version=rng.choice(["1.0"] * 20 + ["2.0"]),
    )
    entries[table_entry(name)] = sink.getvalue().to_pybytes()
    return pack(listed(entries, {name: table.num_rows}))


# Bombs: files that are sound, or nearly, and say very much in a few bytes.


def rows_bomb(rng: random.Random, base: bytes, *, rows: int | None = None) -> bytes:
    """Many equal rows in one run of a run-length encoding."""
    rows = rows or int(10 ** rng.uniform(3, 9.3))
    entries = entries_of(base)
    parts = take_apart(entries[table_entry("frames")])
    for chunk, pages in zip(parts.chunks, parts.columns, strict=True):
        is_text = chunk[1].value == 6
        first = struct.pack("<L", 1) + b"f" if is_text else struct.pack("<q", rng.choice([0, 2**40]))
        head = Page(
            {
                1: Typed(I32, 2),
                2: Typed(I32, 0),
                3: Typed(I32, 0),
                7: Typed(STRUCT, {1: Typed(I32, 1), 2: Typed(I32, 0)}),
            },
            b"",
        )
        body = Page(
            {
                1: Typed(I32, 0),
                2: Typed(I32, 0),
                3: Typed(I32, 0),
                5: Typed(STRUCT, {1: Typed(I32, rows), 2: Typed(I32, 8), 3: Typed(I32, 3), 4: Typed(I32, 3)}),
            },
            b"",
        )
        name = chunk[3].value[0].value
        present = 0 if name == b"parent" else 1
        levels = varint(rows << 1) + bytes([present])
        levels = struct.pack("<L", len(levels)) + levels if name in (b"owner", b"parent") else b""
        set_body(head, first)
        set_body(body, levels + bytes([1]) + varint(rows << 1) + b"\0")
        pages[:] = [head, body]
        chunk[5], chunk[11] = Typed(I64, rows), Typed(I64, 0)
    parts.footer[3] = Typed(I64, rows)
    parts.footer[4].value[0].value[3] = Typed(I64, rows)
    entries[table_entry("frames")] = put_together(parts)
    return pack(listed(entries, {"frames": rows}))


def text_bomb(rng: random.Random, base: bytes) -> bytes:
    """One text, or very many short ones, that pack well."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = int(10 ** rng.uniform(3, 7.5))
    wide = rng.choice(["", "é", "漢", "🙂"])
    if rng.random() < 0.6:
        texts = [wide + rng.choice(["x", "\0"]) * size] * (1 if size > 10**5 else rng.choice([1, 1000]))
    else:
        texts = [f"{wide}{at}" for at in range(size // 100)]
    table = pa.table({"file": texts, "first": pa.array([1] * len(texts), pa.int64()), "text": ["t"] * len(texts)})
    sink, entries = pa.BufferOutputStream(), entries_of(base)
    pq.write_table(
        table, sink, compression="zstd", use_dictionary=rng.random() < 0.5, store_schema=False, write_statistics=False
    )
    entries[table_entry("sources")] = sink.getvalue().to_pybytes()
    return pack(listed(entries, {"sources": len(texts)}))


def sizes_bomb(rng: random.Random, base: bytes) -> bytes:
    """Many shapes of many dimensions, all different."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries = entries_of(base)
    table = pq.read_table(BytesIO(entries[table_entry("kernels")])).slice(0, 1)
    rows, dims = int(10 ** rng.uniform(2, 5)), rng.choice([3, 3, 3, 64, 65])
    table = pa.concat_tables([table] * rows).combine_chunks()
    grids = pa.array([",".join([str(257 + row)] * dims) for row in range(rows)])
    table = table.set_column(table.schema.get_field_index("grid"), "grid", grids)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=True, store_schema=False, write_statistics=False)
    entries[table_entry("kernels")] = sink.getvalue().to_pybytes()
    return pack(listed(entries, {"kernels": rows}))


def page_size_bomb(rng: random.Random, base: bytes) -> bytes:
    """A page that unpacks to very many bytes, in a table whose footer declares few."""

    def change(parts: Parts) -> None:
        page = rng.choice(rng.choice(parts.columns))
        set_body(page, bytes(int(10 ** rng.uniform(5, 8.3))))

    return with_parts(rng, base, change)


# Mending.


def entries_of(base: bytes) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in unpack(base).items()}


def listed(entries: dict[str, bytes], rows: dict[str, int] | None = None) -> dict[str, bytes]:
    """Update the sizes and hashes of the tables in the manifest."""
    manifest = json.loads(entries[MANIFEST])
    for name, about in manifest["tables"].items():
        data = entries[table_entry(name)]
        about |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        about["rows"] = (rows or {}).get(name, about["rows"])
    return entries | {MANIFEST: json.dumps(manifest).encode()}


def any_table(rng: random.Random) -> str:
    return rng.choice(list(TABLES))


KINDS: dict[str, tuple[Mutator, int]] = {
    "bits flipped": (flip, 6),
    "cut off": (cut, 4),
    "bytes inserted": (insert, 3),
    "pieces spliced": (splice, 4),
    "ZIP field": (zip_field, 8),
    "ZIP entries": (zip_entries, 6),
    "manifest value": (manifest_value, 10),
    "manifest text": (manifest_text, 4),
    "table bytes": (table_bytes, 10),
    "footer bytes": (footer_bytes, 8),
    "footer field": (footer_field, 10),
    "page field": (page_field, 10),
    "page body": (page_body, 12),
    "page order": (page_order, 5),
    "cells": (cells, 10),
    "columns": (columns, 6),
    "bomb of rows": (rows_bomb, 2),
    "bomb of text": (text_bomb, 1),
    "bomb of sizes": (sizes_bomb, 1),
    "bomb of a page": (page_size_bomb, 1),
}
BOMBS = tuple(kind for kind in KINDS if kind.startswith("bomb"))
