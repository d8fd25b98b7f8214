"""The tables of a file are never trusted either: their cells, their columns, and what Parquet says of itself."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive_mutants import BOMBS, listed, mutate, rows_bomb
from archive_parquet import Parts, put_together, set_body, take_apart
from archive_runs import DAMAGED, INF, NAN, exactly, large_run, refusal, small_op, small_run, small_value, to_parquet
from joulediff.archive.container import pack
from joulediff.archive.parquet import inspect, memory_bytes
from joulediff.archive.reader import from_bytes, load
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.archive.thrift import BINARY, I32, I64, STRUCT, Malformed, Typed, read_struct
from joulediff.archive.writer import to_entries
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Replay, Run, SourceText
from joulediff.model.signature import SKETCH, Signature

ENTRIES = to_entries(small_run())
WHOLE = pack(ENTRIES)

Change = Callable[[Any], Any]


# Cells and columns. The same cells over the wire give the same answer.


def with_table(name: str, change: Change, **options: Any) -> bytes:
    table = change(pq.read_table(BytesIO(ENTRIES[f"{name}.parquet"])))
    entries = ENTRIES | {f"{name}.parquet": to_parquet(table, **options)}
    return pack(listed(entries, {name: table.num_rows}))


def with_cells(name: str, column: str, cells: list[Any]) -> bytes:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        return table.set_column(at, column, pa.array(cells, table.schema.field(at).type))

    return with_table(name, change)


CELLS = [
    ("ops", "id", [0, 2, 1], "its table ops, column id does not count 0, 1, 2 and so on"),
    ("ops", "frame", [2, None, None], "its table ops, column frame, row 0 refers to row 2 of 2 in frames"),
    ("ops", "forward", [None, None, -1], "its table ops, column forward, row 2 refers to row -1 of 3 in ops"),
    ("ops", "phase", ["forward", "forward", "sideways"], "column phase holds sideways, which is none of forward"),
    ("ops", "name", ["a", None, "b"], "its table ops, column name holds NoneType, not str"),
    ("ops", "thread", [0, None, 0], "its table ops, column thread holds NoneType, not int"),
    ("op_values", "value", [0, 1, 2, 2, 3, 5, 3], "column value, row 5 refers to row 5 of 5 in values"),
    ("op_values", "op", [0, 0, 0, 3, 1, 1, 2], "column op, row 3 refers to row 3 of 3 in ops"),
    ("op_values", "op", [0, 0, 0, 1, 1, 1, 0], "the rows of its table op_values are out of order"),
    ("op_values", "position", [0, 2, 0, 0, 0, 0, 0], "the positions in its table op_values are not 0, 1, 2"),
    ("op_values", "role", ["in", "in", "out", "in", "out", "write", "inout"], "column role holds inout"),
    ("values", "signature", [2, None, None, None, None], "column signature, row 0 refers to row 2 of 2 in signatures"),
    ("values", "previous", [None, None, None, 3, None], "row 3 refers to row 3, which is not above it"),
    ("values", "shape", ["8,16", "16,4", "8,4", "8,-4", ""], "column shape holds the negative size -4"),
    ("values", "shape", ["8,16", "16,4", "8,4", "8;4", ""], "column shape: '8;4' is not a list of up to 64 sizes"),
    ("values", "shape", ["8,16", "16,4", "8,4", ",".join("1" * 65), ""], "is not a list of up to 64 sizes"),
    ("values", "shape", ["8,16", "16,4", "8,4", "9" * 19, ""], "holds a size beyond 64 bits"),
    ("values", "offset", [0, 0, -1, 0, 0], "column offset, row 2 holds -1, which is out of range"),
    ("values", "repeats", [1, 1, 1, 1, -1], "column repeats, row 4 holds -1, which is out of range"),
    ("values", "kind", ["input", "parameter", "", "produced", "produced"], "column kind holds , which is none of"),
    ("value_writers", "value", [3, 3, 2], "the rows of its table value_writers are out of order"),
    ("value_writers", "op", [0, 0, 9], "its table value_writers, column op, row 2 refers to row 9 of 3 in ops"),
    ("kernel_members", "kernel", [3], "its table kernel_members, column kernel, row 0 refers to row 3 of 3 in kernels"),
    ("kernel_members", "op", [9], "its table kernel_members, column op, row 0 refers to row 9 of 3 in ops"),
    ("signatures", "count", [-1, 0], "column count, row 0 holds -1, which is out of range"),
    ("signatures", "sketch", ["1,2,3", None], "its table signatures, column sketch holds 3 sizes, not 16"),
    ("signatures", "sketch", ["0," * 15 + "2147483648", None], "column sketch holds 2147483648, which is out of range"),
    (
        "signatures",
        "sketch",
        ["-2147483648" + ",0" * 15, None],
        "column sketch holds -2147483648, which is out of range",
    ),
    ("signatures", "sketch", ["0," * 15 + "nan", None], "is not a list of up to 64 sizes"),
    ("frames", "parent", [None, 1], "its table frames, column parent, row 1 refers to row 1, which is not above it"),
    ("frames", "parent", [1, None], "its table frames, column parent, row 0 refers to row 1, which is not above it"),
    ("kernels", "op", [3, None, None], "its table kernels, column op, row 0 refers to row 3 of 3 in ops"),
    ("kernels", "grid", ["8,1", None, None], "its table kernels, column grid holds 2 sizes, not 3"),
    ("kernels", "join", ["op", "guess", "op"], "column join holds guess, which is none of op, fused, module, none"),
    ("kernels", "size_bytes", [None, -4096, None], "column size_bytes, row 1 holds -4096, which is out of range"),
    ("waits", "op", [1, 3], "its table waits, column op, row 1 refers to row 3 of 3 in ops"),
    ("ops", "replay", [0, 3, None], "its table ops, column replay, row 1 refers to row 3 of 3 in replays"),
    ("ops", "replay", [1, 2, None], "its operator 0 refers to row 1 in replays, which is not its first row"),
    ("replays", "op", [0, 0, 3], "its table replays, column op, row 2 refers to row 3 of 3 in ops"),
    ("replays", "op", [0, 1, 0], "its table replays, row 2 is apart from the others of operator 0"),
    ("replays", "domain", ["gpu0"] * 3, "its table replays, row 1 is a second one of operator 0 for gpu0"),
    ("replays", "domain", ["gpu0", "cpu", None], "its table replays, column domain holds NoneType, not str"),
    ("replays", "source", ["replayed", "guessed", "metered"], "column source holds guessed, which is none of metered"),
    ("replays", "how", ["graph", None, "magic"], "column how holds magic, which is none of graph, launches, calls"),
    ("replays", "inputs", ["real", "none", None], "column inputs holds none, which is none of real, drawn"),
    ("replays", "calls", [-1, 0, 0], "column calls, row 0 holds -1, which is out of range"),
    ("replays", "copies", [1, 0, 1], "column copies, row 1 holds 0, which is out of range"),
    ("replays", "energy_j", [None, 0.0, None], "its table replays, row 0 has an energy without an interval, or an"),
    ("replays", "low_j", [0.009, None, None], "its table replays, row 1 has an energy without an interval, or an"),
    ("replays", "high_j", [0.012, 0.001, 1.0], "its table replays, row 2 has an energy without an interval, or an"),
    ("replays", "high_j", [INF, 0.001, None], "its table replays, row 0 has an energy or an interval that is not fin"),
    ("replays", "low_j", [0.009, -INF, None], "its table replays, row 1 has an energy or an interval that is not fin"),
    ("replays", "energy_j", [NAN, 0.0, None], "its table replays, row 0 has an energy or an interval that is not fin"),
    ("replays", "low_j", [0.011, -0.001, None], "row 0 is impossible: energy 0.01 J outside its interval 0.011..0.012"),
    ("replays", "high_j", [0.012, -0.0005, None], "row 1 is impossible: energy 0.0 J outside its interval -0.001..-0"),
]


@pytest.mark.parametrize(("table", "column", "cells", "told"), CELLS)
def test_cells_that_cannot_be(table: str, column: str, cells: list[Any], told: str, tmp_path: Path) -> None:
    error = refusal(with_cells(table, column, cells), tmp_path)
    assert told in error.what
    assert error.fix == DAMAGED
    sent = json.loads(to_wire(small_run()))
    sent["tables"][table][column] = cells
    with pytest.raises(ArchiveError) as raised:
        from_wire(json.dumps(sent).encode())
    assert told in raised.value.what


def retyped(column: str, kind: pa.DataType) -> Change:
    return lambda table: table.set_column(table.schema.get_field_index(column), column, pa.nulls(table.num_rows, kind))


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        ("ops", retyped("thread", pa.int32()), "its table ops, column thread is not of type int"),
        ("ops", retyped("thread", pa.timestamp("us")), "its table ops, column thread is not of type int"),
        ("ops", retyped("thread", pa.float64()), "its table ops, column thread is not of type int"),
        ("ops", retyped("name", pa.binary()), "its table ops, column name is not of type text"),
        ("ops", retyped("name", pa.int64()), "its table ops, column name is not of type text"),
        ("ops", retyped("grad", pa.int64()), "its table ops, column grad is not of type bool"),
        ("values", retyped("shape", pa.list_(pa.int64())), "its table values is damaged (columns that are not flat)"),
        ("values", retyped("shape", pa.struct([("a", pa.int64())])), "is damaged (columns that are not flat)"),
        ("ops", lambda t: t.drop_columns(["cpp"]), "its table ops has no column cpp"),
        ("ops", lambda t: t.append_column("name", t.column("name")), "is damaged (two columns of one name)"),
    ],
)
def test_columns_that_cannot_be(table: str, change: Change, told: str, tmp_path: Path) -> None:
    assert told in refusal(with_table(table, change), tmp_path).what


def test_a_missing_table(tmp_path: Path) -> None:
    entries = {name: data for name, data in ENTRIES.items() if name != "waits.parquet"}
    assert refusal(pack(entries), tmp_path).what == "its table waits is missing"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"compression": "snappy"}, "packed in another way"),
        ({"data_page_version": "2.0"}, "a page of type 3"),
        ({"store_schema": True}, "a second schema"),
        ({"row_group_size": 1}, "3 rows in 3 groups"),
        ({"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}}, "a page in another encoding"),
    ],
)
def test_parquet_that_joulediff_does_not_write(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    assert told in refusal(with_table("ops", lambda table: table, **options), tmp_path).what


def test_parquet_without_compression_or_dictionary_is_read() -> None:
    data = with_table("ops", lambda table: table, compression="none", use_dictionary=False)
    assert exactly(from_bytes(data)) == exactly(small_run())


# What Parquet says of itself.


def with_parts(change: Callable[[Parts], None], table: str = "frames", rows: int | None = None) -> bytes:
    parts = take_apart(ENTRIES[f"{table}.parquet"])
    change(parts)
    entries = ENTRIES | {f"{table}.parquet": put_together(parts)}
    return pack(listed(entries, {} if rows is None else {table: rows}))


def in_page(column: int, page: int, *fields: int, value: int) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        node = parts.columns[column][page].header
        for field in fields[:-1]:
            node = node[field].value
        node[fields[-1]] = Typed(I32, value)

    return change


def in_chunk(column: int, field: int, value: Any, kind: int = I64) -> Callable[[Parts], None]:
    return lambda parts: parts.chunks[column].update({field: Typed(kind, value)})


def in_footer(field: int, value: Any, kind: int = I64) -> Callable[[Parts], None]:
    return lambda parts: parts.footer.update({field: Typed(kind, value)})


@pytest.mark.parametrize(
    ("change", "rows", "told"),
    [
        (in_footer(3, 10**12), 10**12, "a group of other columns or rows"),
        (in_footer(3, -1), -1, "-1 rows in 1 groups"),
        (in_footer(8, {}, STRUCT), None, "a footer of another kind"),
        (in_footer(3, 2, I32), None, "field 3 is missing or of another type"),
        (in_chunk(0, 5, 10**9), None, "the column file of another type or size"),
        (in_chunk(0, 1, 2, I32), None, "the column file of another type or size"),
        (in_chunk(0, 4, 1, I32), None, "packed in another way"),
        (
            lambda parts: parts.footer[4].value[0].value[1].value[0].value.update({1: Typed(BINARY, b"/etc/passwd")}),
            None,
            "the column file in another file, or encrypted",
        ),
        (in_page(0, 0, 2, value=2**31 - 1), None, "it claims to hold"),
        (in_page(0, 0, 2, value=-1), None, "a page of an impossible size"),
        (in_page(0, 0, 3, value=-5), None, "pages of no size, or too many"),
        (in_page(0, 0, 3, value=2**31 - 1), None, "cells where there are 2 rows"),
        (in_page(0, 0, 7, 1, value=2**31 - 1), None, "a dictionary of 2147483647 in"),
        (in_page(0, 1, 5, 1, value=2**31 - 1), None, "2147483647 cells where there are 2 rows"),
        (in_page(0, 1, 5, 1, value=-2), None, "a page in another encoding"),
        (in_page(0, 1, 5, 2, value=5), None, "a page in another encoding"),
        (in_page(0, 1, 1, value=1), None, "a page of type 1"),
        (lambda parts: parts.columns[0].extend(parts.columns[0][1:] * 40), None, "pages of no size, or too many"),
        (lambda parts: set_body(parts.columns[1][0], bytes(3)), None, "its table frames is damaged"),
        (lambda parts: set_body(parts.columns[1][0], bytes(2**27)), None, "it claims to hold"),
        (lambda parts: set_body(parts.columns[0][1], b"\x08\x03\xff\xff"), None, "its table frames is damaged"),
        (lambda parts: set_body(parts.columns[0][0], b"\x02\0\0\0\xff\xff" * 2), None, "its table frames is damaged"),
    ],
)
def test_parquet_with_wrong_declarations(
    change: Callable[[Parts], None], rows: int | None, told: str, tmp_path: Path
) -> None:
    assert told in refusal(with_parts(change, rows=rows), tmp_path).what


def test_a_footer_that_is_too_large(tmp_path: Path) -> None:
    data = with_parts(in_footer(6, b"x" * 40_000, BINARY))
    assert "is damaged (a footer of 40" in refusal(data, tmp_path).what


@pytest.mark.parametrize("depth", [9, 10_000])
def test_a_footer_that_is_nested(depth: int, tmp_path: Path) -> None:
    footer = b"\x1c" * depth + bytes(depth)
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    assert "is damaged (nested too deeply)" in refusal(pack(listed(ENTRIES | {"ops.parquet": data})), tmp_path).what


def test_a_few_bytes_that_declare_a_thousand_million_rows(tmp_path: Path) -> None:
    data = rows_bomb(random.Random(1), WHOLE, rows=10**9)
    assert len(data) < 20_000
    assert refusal(data, tmp_path).what.startswith("it claims to hold ")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "cut off"),
        (b"\x15\xff\xff\xff\xff\x0f\0", None),
        (b"\x15\xff\xff\xff\xff\x1f\0", "a number that is too large"),
        (b"\x15\xff\xff\xff\xff\xff\x01\0", "a number that is too long"),
        (b"\x05\x02\x02\0", "a field out of order"),
        (b"\x18\xff\xff\xff\xff\x0fabc", "cut off"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f\x02\x02", "cut off"),
        (b"\x19\xf1\xff\xff\xff\xff\x0f\x02\x02", "cut off"),
        (b"\x1b\x01\x55\x02\x02\0", "a field of type 11"),
    ],
)
def test_structures_that_the_library_would_read_otherwise(data: bytes, told: str | None) -> None:
    if told is None:
        assert read_struct(memoryview(data), 0) == ({1: Typed(I32, -(2**31))}, len(data))
        return
    with pytest.raises(Malformed, match=told):
        read_struct(memoryview(data), 0)


def large_numbers(rows: int) -> dict[str, Run]:
    """Return runs in which no number is shared and every row is as costly as it can be."""
    empty, many = Run("many", None, "", ""), range(rows)
    large = {"offset": 2**40, "storage": 2**41, "repeats": 2**42}
    return {
        "ops": replace(
            empty, ops=tuple(small_op(at, "a", (), (), thread=2**40 + at, stream=2**41 + at) for at in many)
        ),
        "values": replace(
            empty, values=tuple(small_value(at, (at,), **{k: v + at for k, v in large.items()}) for at in many)
        ),
        "signatures": replace(
            empty,
            signatures=tuple(Signature(*[2**40 + at] * 5, True, *[at / 3] * 7, large_sketch(at)) for at in many),
        ),
        "replays": replace(
            empty,
            ops=tuple(small_op(at, "a", (), ()) for at in many),
            replays=tuple(
                Replay(
                    at,
                    f"漢{at}",
                    *[at / 3] * 3,
                    rest_w=at / 5,
                    call_s=at / 7,
                    cpu_s=at / 9,
                    calls=2**40 + at,
                    clock_mhz=at / 11,
                    copies=2**41 + at,
                    note=f"🙂{at}",
                )
                for at in many
            ),
        ),
        "sources": replace(empty, sources=tuple(SourceText(f"{at}🙂", 2**40 + at, f"漢{at}") for at in many)),
    }


def large_sketch(seed: int) -> tuple[int, ...]:
    return tuple(257 + (seed * 16 + at) % 700 for at in range(SKETCH))


@pytest.mark.parametrize("table", ["ops", "values", "signatures", "sources", "replays"])
def test_what_a_table_takes_is_foreseen(table: str) -> None:
    """The limit holds only if the estimate does. Arrow's own memory is not seen here; the benchmark sees all."""
    run = large_numbers(3000)[table]
    entries = to_entries(run)
    data = pack(entries)
    foreseen = memory_bytes(table, inspect(table, memoryview(entries[f"{table}.parquet"])))
    from_bytes(data)
    tracemalloc.start()
    try:
        from_bytes(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.3 * foreseen < peak < foreseen + 200_000


# Anything else: `benchmarks/fuzz_archive.py` loads many more of these, and measures.


@pytest.mark.parametrize("block", range(3))
def test_mutants_give_a_run_or_an_archive_error(block: int, tmp_path: Path) -> None:
    bases = [WHOLE, pack(to_entries(large_run(5)))]
    for seed in range(100 * block, 100 * block + 100):
        kind, data = mutate(seed, bases, without=BOMBS)
        path = tmp_path / "mutant.jd"
        path.write_bytes(data)
        try:
            found = load(path)
        except ArchiveError as error:
            assert error.fix, f"seed {seed}, {kind}"
        else:
            assert exactly(from_wire(to_wire(found))) == exactly(found), f"seed {seed}, {kind}"
            walk_replays(found)


def walk_replays(run: Run) -> None:
    for op in run.ops:
        energies = [(replay.domain, replay.energy) for replay in run.replays_of(op.id)]
        assert len(dict(energies)) == len(energies)


JOULES = st.none() | st.floats() | st.sampled_from([-1.0, 0.0, 1.0, NAN, INF])
PLACES = st.lists(st.integers(0, 2), min_size=3, max_size=3)


@settings(max_examples=150, deadline=None)
@given(joules=st.lists(JOULES, min_size=3, max_size=3), ops=PLACES, firsts=PLACES)
def test_any_replays_can_be_read_or_are_refused(joules: list[float | None], ops: list[int], firsts: list[int]) -> None:
    sent = json.loads(to_wire(small_run()))
    for column, value in zip(("energy_j", "low_j", "high_j"), joules, strict=True):
        sent["tables"]["replays"][column][0] = value
    sent["tables"]["replays"]["op"], sent["tables"]["ops"]["replay"] = ops, firsts
    with suppress(ArchiveError):
        walk_replays(from_wire(json.dumps(sent).encode()))
