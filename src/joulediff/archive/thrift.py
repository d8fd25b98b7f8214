"""Reads structures in Thrift's compact protocol, the encoding of Parquet's metadata.

Each field keeps its type beside its value: a field of another type than expected must be refused, because
the Parquet library skips such a field and would go on with another number than the one checked here.
Source: github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
MAX_DEPTH = 8
_BITS = {I16: 16, I32: 32, I64: 64}


class Typed(NamedTuple):
    """A value, and the type it was written with."""

    type: int
    value: Any


Struct: TypeAlias = dict[int, Typed]


class Malformed(ValueError):
    """The bytes are not a structure that Parquet uses."""


def read_struct(data: memoryview, at: int, depth: int = 0) -> tuple[Struct, int]:
    """Return the structure that begins at `at`, and where it ends."""
    if depth > MAX_DEPTH:
        raise Malformed("nested too deeply")
    found: Struct = {}
    last = 0
    while header := _byte(data, at):
        at, step, kind = at + 1, header >> 4, header & 15
        if not step:
            raise Malformed("a field out of order")
        last += step
        value, at = _read(data, at, kind, depth)
        found[last] = Typed(kind, value)
    return found, at + 1


def _read(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in _BITS:
        return _integer(data, at, _BITS[kind])
    if kind == BINARY:
        size, at = _varint(data, at, 32)
        return _bytes(data, at, size), at + size
    if kind == LIST:
        return _read_list(data, at, depth)
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (BYTE, DOUBLE):
        size = 1 if kind == BYTE else 8
        return _bytes(data, at, size), at + size
    raise Malformed(f"a field of type {kind}")


def _read_list(data: memoryview, at: int, depth: int) -> tuple[list[Typed], int]:
    header = _byte(data, at)
    count, kind, at = header >> 4, header & 15, at + 1
    if count == 15:
        count, at = _varint(data, at, 32)
    if kind in (TRUE, FALSE):
        return [Typed(TRUE, each == TRUE) for each in _bytes(data, at, count)], at + count
    items = []
    for _ in range(count):
        value, at = _read(data, at, kind, depth + 1)
        items.append(Typed(kind, value))
    return items, at


def _integer(data: memoryview, at: int, bits: int) -> tuple[int, int]:
    value, at = _varint(data, at, bits)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: memoryview, at: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = _byte(data, at)
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
        if shift >= bits:
            raise Malformed("a number that is too long")
    if value >> bits:
        raise Malformed("a number that is too large")
    return value, at


def _byte(data: memoryview, at: int) -> int:
    if at >= len(data):
        raise Malformed("cut off")
    return data[at]


def _bytes(data: memoryview, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise Malformed("cut off")
    return bytes(data[at : at + size])
