"""Parquet tables taken apart and put together again, to change what no library lets one change."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from joulediff.archive.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    STRUCT,
    TRUE,
    Struct,
    Typed,
    read_struct,
)


@dataclass
class Page:
    header: Struct
    body: bytes


@dataclass
class Parts:
    """A Parquet table taken apart."""

    footer: Struct
    columns: list[list[Page]]

    @property
    def chunks(self) -> list[Struct]:
        groups = self.footer[4].value
        return [chunk.value[3].value for chunk in groups[0].value[1].value] if groups else []


def take_apart(data: bytes) -> Parts:
    size = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(memoryview(data), len(data) - 8 - size)
    parts = Parts(footer, [])
    for chunk in parts.chunks if footer[3].value else []:
        at = chunk[11].value if 11 in chunk else chunk[9].value
        end, pages = at + chunk[7].value, []
        while at < end:
            header, at = read_struct(memoryview(data), at)
            pages.append(Page(header, data[at : at + header[3].value]))
            at += header[3].value
        parts.columns.append(pages)
    return parts


def put_together(parts: Parts) -> bytes:
    """Return a table whose offsets are right, whatever else was changed."""
    data = bytearray(b"PAR1")
    for chunk, pages in zip(parts.chunks, parts.columns, strict=False):
        begin = len(data)
        for at, page in enumerate(pages):
            if at == 0 and 11 in chunk:
                chunk[11] = Typed(I64, begin)
            if at == (1 if 11 in chunk and len(pages) > 1 else 0):
                chunk[9] = Typed(I64, len(data))
            data += write_struct(page.header) + page.body
        chunk[7] = Typed(I64, len(data) - begin)
    footer = write_struct(parts.footer)
    return bytes(data) + footer + struct.pack("<L", len(footer)) + b"PAR1"


def set_body(page: Page, plain: bytes) -> None:
    import pyarrow as pa

    page.body = pa.compress(plain, codec="zstd", asbytes=True)
    page.header[2], page.header[3] = Typed(I32, len(plain)), Typed(I32, len(page.body))


def write_struct(node: Struct) -> bytes:
    data, last = bytearray(), 0
    for number in sorted(node):
        kind, value = node[number]
        data.append((number - last) << 4 | kind)
        data += write_value(kind, value)
        last = number
    return bytes(data) + b"\0"


def write_value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind in (I16, I32, I64):
        bits = {I16: 16, I32: 32, I64: 64}[kind]
        return varint((value << 1 ^ value >> 200) & (2**bits - 1))
    if kind == BINARY:
        return varint(len(value)) + value
    if kind in (BYTE, DOUBLE):
        return bytes(value)
    if kind == STRUCT:
        return write_struct(value)
    item = value[0].type if value else BYTE
    begin = bytes([len(value) << 4 | item]) if len(value) < 15 else bytes([0xF0 | item]) + varint(len(value))
    if item in (TRUE, FALSE):
        return begin + bytes(TRUE if each.value else FALSE for each in value)
    return begin + b"".join(write_value(item, each.value) for each in value)


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])
