"""A damaged or hostile file raises an error in three parts (its tables: `test_damaged_tables`)."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive_mutants import listed
from archive_runs import DAMAGED, exactly, refusal, small_run, to_parquet
from joulediff.archive import check
from joulediff.archive.check import sound
from joulediff.archive.container import MANIFEST, MAX_MANIFEST_BYTES, pack
from joulediff.archive.reader import load
from joulediff.archive.schema import FORMAT, TABLES, Column
from joulediff.archive.snapshot import Snapshot, from_wire, to_wire
from joulediff.archive.writer import to_entries
from joulediff.model.errors import ArchiveError

ENTRIES = to_entries(small_run())
WHOLE = pack(ENTRIES)
NAME_ONE = "name a .jd file that joulediff recorded"

Change = Callable[[Any], Any]


# What is no archive.


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError) as raised:
        load(tmp_path / "none.jd")
    assert str(raised.value) == (
        f"{tmp_path / 'none.jd'} cannot be read: there is no such file\n  check the name and the folder"
    )


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (".", "it is a folder"),
        ("/dev/zero", "it is not a regular file"),
        ("file/run.jd", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", "embedded null"),
    ],
)
def test_a_place_without_a_file(place: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match=told) as raised:
        load(tmp_path / place)
    assert raised.value.fix


def other_zip() -> bytes:
    sink = BytesIO()
    with zipfile.ZipFile(sink, "w") as container:
        container.writestr("word.xml", "<document/>")
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "told", "fix"),
    [
        (b"", "it is empty", "record the program again: the recording ended before it was written"),
        (b"label: run\n", "it is not a joulediff recording", NAME_ONE),
        (ENTRIES["ops.parquet"], "it is not a joulediff recording", NAME_ONE),
        (other_zip(), "it is a ZIP file, but not a joulediff recording", NAME_ONE),
        (WHOLE + b"\n", "its end is missing: it was cut off, or something was added to it", DAMAGED),
        (b"PK", "its end is missing: it was cut off, or something was added to it", DAMAGED),
    ],
)
def test_another_kind_of_file(data: bytes, told: str, fix: str, tmp_path: Path) -> None:
    error = refusal(data, tmp_path)
    assert (error.what, error.fix) == (told, fix)


def test_a_file_cut_off_anywhere(tmp_path: Path) -> None:
    for size in [*range(1, len(WHOLE), 97), len(WHOLE) - 1]:
        assert refusal(WHOLE[:size], tmp_path).what in (
            "its end is missing: it was cut off, or something was added to it",
            "its list of entries is damaged",
        )


# The container.


def with_fields(mark: bytes, offset: int, value: int, width: int = 2) -> bytes:
    """Return the archive with one field of its first such header changed."""
    at = WHOLE.index(mark) + offset
    return WHOLE[:at] + value.to_bytes(width, "little") + WHOLE[at + width :]


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    sink = BytesIO()
    with zipfile.ZipFile(sink, "w", method) as container:
        for name, data in entries:
            container.writestr(name, data)
    return sink.getvalue()


CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (zipped(*ENTRIES.items(), method=zipfile.ZIP_DEFLATED), "manifest.json is compressed or encrypted"),
        (with_fields(CENTRAL, 8, 1), "manifest.json is compressed or encrypted"),
        (with_fields(CENTRAL, 10, 14), "manifest.json is compressed or encrypted"),
        (with_fields(CENTRAL, 24, 2**32 - 2, 4), "manifest.json is compressed or encrypted"),
        (zipped(("../x", b""), *ENTRIES.items()), "an entry is named '../x', which is not the name of a table"),
        (zipped(("/etc/passwd", b""), *ENTRIES.items()), "an entry is named '/etc/passwd'"),
        (zipped(("..", b""), *ENTRIES.items()), "an entry is named '..'"),
        (zipped(("a\\b", b""), *ENTRIES.items()), "is not the name of a table"),
        (zipped(*((f"t{at}", b"") for at in range(65))), "it has 65 entries, and 64 is the most a run has"),
        (with_fields(LOCAL, 26, 3), "its entry manifest.json is not where its list of entries says"),
        (with_fields(LOCAL, 6, 1), "its entry manifest.json is not where its list of entries says"),
        (with_fields(CENTRAL, 42, 2**31, 4), "its entry manifest.json lies outside of the file"),
        (with_fields(END, 12, 2**31, 4), "its list of entries is damaged"),
        (with_fields(END, 16, 0, 4), "its list of entries is damaged"),
        (with_fields(END, 10, 3), "its list of entries is damaged"),
        (WHOLE.replace(b'"label": "caf', b'"label": "kaf'), "the bytes of its entry manifest.json have changed"),
    ],
)
def test_a_container_that_is_not_one_of_ours(data: bytes, told: str, tmp_path: Path) -> None:
    assert data != WHOLE
    assert told in refusal(data, tmp_path).what


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    assert (
        refusal(zipped(*ENTRIES.items(), ("ops.parquet", b"x")), tmp_path).what
        == "two of its entries have the same name"
    )


def test_entries_that_overlap(tmp_path: Path) -> None:
    """The second entry is a whole entry inside of the first one's data."""
    inner = zipped(("b", b"data"))[: 30 + 1 + 4]
    data = bytearray(zipped(("a", inner), ("b", b"data")))
    second = data.index(CENTRAL, data.index(CENTRAL) + 1)
    data[second + 42 : second + 46] = (31).to_bytes(4, "little")
    assert refusal(bytes(data), tmp_path).what == "two of its entries overlap"


def test_an_entry_larger_than_the_file(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    at = WHOLE.index(CENTRAL)
    data[at + 20 : at + 28] = struct.pack("<2L", 2**31, 2**31)
    assert refusal(bytes(data), tmp_path).what == "its entry manifest.json claims 2147483648 bytes, more than there are"


# The manifest.


def with_manifest(change: Change) -> bytes:
    manifest = json.loads(ENTRIES[MANIFEST])
    changed = change(manifest)
    text = changed if isinstance(changed, bytes) else json.dumps(manifest).encode()
    return pack(ENTRIES | {MANIFEST: text})


def put(path: str, value: Any) -> Change:
    """Return what sets a place in a manifest, such as `tables.ops.rows`."""

    def change(manifest: Any) -> None:
        *way, last = path.split(".")
        for key in way:
            manifest = manifest[int(key) if isinstance(manifest, list) else key]
        manifest[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.pop("label"), "label is missing in its manifest"),
        (lambda m: m.pop("tables"), "its manifest lists no tables"),
        (lambda m: m["tables"].pop("ops"), "its manifest does not list its table ops"),
        (put("schema", "other"), "it holds no recorded run"),
        (lambda _: b"[]", "it holds no recorded run"),
        (put("format", "2"), "its format 2 for readers from 5 makes no sense"),
        (put("format", 1), "its format 1 for readers from 5 makes no sense"),
        (put("min_reader", True), "its format 5 for readers from True makes no sense"),
        (put("label", 3), "label in its manifest may not be the int 3"),
        (put("label", "\ud800"), "label in its manifest may not be the str ?"),
        (put("notes", "one"), "notes in its manifest may not be the str one"),
        (put("passes.0.name", "guessed"), "passes[0].name in its manifest may not be the str guessed"),
        (put("settings.threads", [8]), "settings.threads in its manifest may not be the list"),
        (put("measurement.energy.source", None), "measurement.energy.source in its manifest may not be the null"),
        (put("measurement.energy.low", 11), "measurement.energy is impossible: energy 10.0 J outside its interval"),
        (put("measurement.energy.joules", float("nan")), "measurement.energy is impossible"),
        (put("measurement.domains.gpu0.idle.power_w", "75"), "measurement.domains.gpu0.idle.power_w in its manifest"),
        (
            put("measurement.domains", {"a\n\x1b[2J": {}}),
            "measurement.domains.a ?[2J.energy is missing in its manifest",
        ),
        (put("measurement.steps", 1.5), "measurement.steps in its manifest may not be the float 1.5"),
        (lambda m: m["measurement"].pop("step_s"), "measurement.step_s is missing in its manifest"),
        (put("tables.ops.rows", 2), "its table ops has 3 rows, not 2"),
        (put("tables.ops.rows", 10**15), "its table ops has 3 rows, not 1000000000000000"),
        (put("tables.ops.size_bytes", 10**15), "its table ops was changed after it was written"),
        (put("tables.ops.sha256", "0" * 64), "its table ops was changed after it was written"),
        (lambda _: b"[" * 500_000, "its JSON is nested too deeply"),
        (lambda _: b'{"a":' * 150_000, "its JSON is nested too deeply"),
        (lambda _: b"", "its JSON cannot be parsed"),
        (lambda _: b"9" * 900_000, "its JSON cannot be parsed (a number of 900000 digits)"),
        (lambda _: b" " * (MAX_MANIFEST_BYTES + 1), "its manifest has 1048577 bytes; 1048576 are allowed"),
    ],
)
def test_a_manifest_that_cannot_be(change: Change, told: str, tmp_path: Path) -> None:
    assert refusal(with_manifest(change), tmp_path).what.startswith(told)


def test_the_error_for_a_newer_format_names_the_update(tmp_path: Path) -> None:
    error = refusal(with_manifest(lambda m: m.update(format=9, min_reader=7, tool="3.2.1")), tmp_path)
    assert error.what == "it has format 9 for readers of format 7 or later, and this joulediff reads up to 5"
    assert error.fix == "update this joulediff (it was recorded by 3.2.1): pip install -U joulediff"


def test_a_later_format_for_this_reader_is_read(tmp_path: Path) -> None:
    """The reader ignores unknown keys, tables and columns."""
    frames = pq.read_table(BytesIO(ENTRIES["frames.parquet"]))
    later = to_parquet(frames.append_column("later", pa.array([1] * len(frames))))
    entries = listed(ENTRIES | {"frames.parquet": later, "later.parquet": b"anything", "later.json": b"{}"})
    manifest = json.loads(entries[MANIFEST]) | {"format": 9, "min_reader": 1, "later": [1]}
    manifest["measurement"]["later"] = 1
    (tmp_path / "later.jd").write_bytes(pack(entries | {MANIFEST: json.dumps(manifest).encode()}))
    assert exactly(load(tmp_path / "later.jd")) == exactly(small_run())


def test_a_column_that_came_later_has_its_default_in_older_files(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Snapshot.of(small_run()).tables
    monkeypatch.setitem(
        check.TABLES, "frames", (*TABLES["frames"], Column("later", "int", since=FORMAT + 1, default=7))
    )
    monkeypatch.setitem(check.TABLES, "laters", (Column("id", "id", since=FORMAT + 1),))
    monkeypatch.setattr(check, "FORMAT", FORMAT + 1)
    rows = {name: len(next(iter(columns.values()))) for name, columns in tables.columns.items()}
    found = sound(tables.manifest, rows, lambda table, column: tables.columns[table].get(column))
    assert found.columns["frames"]["later"] == [7, 7]
    assert found.columns["laters"] == {"id": []}
    with pytest.raises(ArchiveError, match="its table laters is missing"):
        sound(tables.manifest | {"format": FORMAT + 1}, rows, lambda table, column: tables.columns[table].get(column))


def test_a_table_that_an_older_format_did_not_have_is_ignored() -> None:
    sent = json.loads(to_wire(small_run()))
    sent["manifest"] |= {"format": 1, "min_reader": 1, "passes": []}
    found = from_wire(json.dumps(sent).encode())
    assert found.replays == ()
    assert {op.replay for op in found.ops} == {None}


# The wire.


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"tables": {}}',
        b'{"manifest": 1, "tables": {}}',
        b"[" * 10**6,
        b"\xff",
        b"9" * 10**6,
    ],
)
def test_bytes_that_are_no_run_on_the_wire(data: bytes) -> None:
    with pytest.raises(ArchiveError, match="the run that was sent cannot be read: ") as raised:
        from_wire(data)
    assert raised.value.fix


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda sent: sent["tables"].pop("ops"), "its table ops is missing"),
        (lambda sent: sent["tables"]["ops"].pop("id"), "its table ops has no column id"),
        (lambda sent: sent["tables"]["ops"].pop("cpp"), "its table ops has no column cpp"),
        (lambda sent: sent["tables"].update(ops=[1]), "its table ops has no column id"),
        (lambda sent: sent["tables"]["ops"]["name"].pop(), "its table ops, column name has 2 rows, and its table 3"),
        (put("tables.waits.thread", [True, 0]), "column thread holds bool, not int"),
        (
            put("tables.waits.thread", [2**63, 0]),
            "column thread, row 0 holds 9223372036854775808, which is out of range",
        ),
        (put("tables.waits.name", ["\ud800", "b"]), "column name holds text that is not Unicode"),
        (put("tables.waits.start_s", [[0.5], 1.0]), "column start_s holds list, not float"),
        (put("manifest.schema", "other"), "it holds no recorded run"),
        (put("manifest.label", None), "label in its manifest may not be the null"),
    ],
)
def test_a_run_on_the_wire_that_cannot_be(change: Change, told: str) -> None:
    sent = json.loads(to_wire(small_run()))
    change(sent)
    with pytest.raises(ArchiveError) as raised:
        from_wire(json.dumps(sent).encode())
    assert told in raised.value.what
