"""A run comes back from its file and from the wire as it was, and its file is whole or not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import paths
from archive_runs import exactly, flat, large_run, small_run, small_value
from archive_strategies import runs
from golden_files import find_golden
from joulediff.archive import container as limits
from joulediff.archive.container import pack
from joulediff.archive.reader import load
from joulediff.archive.schema import FORMAT, TABLES
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.archive.tables import HEAD, RECORDS, ROLES
from joulediff.archive.writer import save, to_entries
from joulediff.model.errors import ArchiveError, JoulediffError, WrongType
from joulediff.model.run import Run, Setting, SourceText

GOLDEN = paths.GOLDEN
EMPTY_VALUE = small_value(0, ())
EMPTY = Run("empty", None, "2025-01-31T12:00:00+00:00", "0.1.0")


def through_file(run: Run, folder: Path) -> Run:
    save(run, folder / "run.jd")
    return load(folder / "run.jd")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("run", [small_run(), EMPTY, replace(small_run(), measurement=None), large_run(30)])
def test_a_run_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    assert exactly(through_file(run, tmp_path)) == exactly(run)
    assert exactly(from_wire(to_wire(run))) == exactly(run)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(run=runs())
def test_any_run_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    assert exactly(through_file(run, tmp_path)) == exactly(run)
    assert exactly(from_wire(to_wire(run))) == exactly(run)


def test_every_field_has_its_column() -> None:
    """A field that is added to a record and not to the format would be lost."""
    apart = {"ops": set(ROLES.values()), "values": {"writers"}, "kernels": {"members"}}
    for table, record in RECORDS.items():
        names = {field.name for field in fields(record)} - apart.get(table, set())
        assert names == {column.name for column in TABLES[table]}
    assert {*HEAD, *RECORDS} == {field.name for field in fields(Run)}


def test_equal_runs_make_equal_files(tmp_path: Path) -> None:
    save(small_run(), tmp_path / "a.jd")
    save(small_run(), tmp_path / "b.jd")
    assert (tmp_path / "a.jd").read_bytes() == (tmp_path / "b.jd").read_bytes()


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    """Python names a file of undecodable bytes with them."""
    odd = "f\udcff.py"
    run = replace(
        small_run(), label=odd, notes=(odd,), settings={odd: odd}, sources=(SourceText(odd, 1, "ok"),), program=odd
    )
    found = through_file(run, tmp_path)
    assert (found.label, found.notes, found.settings, found.sources[0].file) == (
        "f?.py",
        ("f?.py",),
        {"f?.py": "f?.py"},
        "f?.py",
    )
    assert exactly(from_wire(to_wire(run))) == exactly(found)


def test_scalars_of_numpy_are_stored_as_plain_numbers(tmp_path: Path) -> None:
    run = small_run()
    odd = replace(
        run,
        traced_s=np.float64(0.25),  # type: ignore[arg-type]
        settings={"a": np.int64(3), "b": np.bool_(True), "c": np.float32(0.5)},
        values=(replace(run.values[0], offset=np.int64(7), shape=(np.int64(8), 16)), *run.values[1:]),  # type: ignore[arg-type]
        waits=(replace(run.waits[0], duration_s=1, start_s=np.float32(0.5)),),  # type: ignore[arg-type]
    )
    for found in (through_file(odd, tmp_path), from_wire(to_wire(odd))):
        assert exactly(found.settings) == exactly({"a": 3, "b": True, "c": 0.5})
        assert exactly(found.values[0].offset) == exactly(7)
        assert exactly(found.waits[0].duration_s) == exactly(1.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ops": (), "values": (replace(EMPTY_VALUE, id=4),)}, "column id does not count"),
        ({"frames": ()}, "column frame, row 0 refers to row 1 of 0 in frames"),
        ({"waits": (replace(small_run().waits[0], thread=2**63),)}, "out of range"),
        ({"waits": (replace(small_run().waits[0], thread=0.5),)}, "holds float, not int"),
        (
            {"replays": (replace(small_run().replays[0], low_j=0.02), *small_run().replays[1:])},
            "energy 0.01 J outside its interval 0.02",
        ),
        ({"settings": {"a": [1]}}, "settings.a in its manifest may not be the list"),
        ({"settings": {"a": 10**20}}, "settings.a in its manifest may not be the int"),
        ({"notes": ("x" * 2**20,)}, "notes and settings of the run take"),
    ],
)
def test_a_run_that_could_not_be_read_again_is_not_written(
    change: dict[str, object], told: str, tmp_path: Path
) -> None:
    save(EMPTY, tmp_path / "run.jd")
    with pytest.raises(ArchiveError, match=told) as raised:
        save(replace(small_run(), **change), tmp_path / "run.jd")  # type: ignore[arg-type]
    assert str(raised.value).startswith(f"{tmp_path / 'run.jd'} was not written: ")
    assert raised.value.fix
    assert load(tmp_path / "run.jd") == EMPTY


def test_the_container_is_an_ordinary_zip_of_ordinary_tables(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    save(small_run(), tmp_path / "run.jd")
    with zipfile.ZipFile(tmp_path / "run.jd") as container:
        assert container.testzip() is None
        assert sorted(container.namelist()) == sorted(["manifest.json", *(f"{name}.parquet" for name in TABLES)])
        manifest = json.loads(container.read("manifest.json"))
        for name, columns in TABLES.items():
            with container.open(f"{name}.parquet") as entry:
                table = pq.read_table(entry)
            assert table.column_names == [column.name for column in columns]
            assert manifest["tables"][name]["rows"] == table.num_rows
    assert (manifest["schema"], manifest["format"], manifest["min_reader"]) == ("joulediff.run", 5, 5)


def test_a_repetitive_run_is_padded_to_what_a_reader_may_spend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal lines compress to a few bytes; the writer pads the file, because the reader refuses one so small."""
    monkeypatch.setattr(limits, "FREE_BYTES", 0)
    run = replace(EMPTY, frames=(small_run().frames[0],) * 20_000)
    assert through_file(run, tmp_path) == run
    entries = to_entries(run)
    assert limits.MEMORY_FACTOR * len(entries.pop(limits.PADDING)) > 20_000 * 100
    (tmp_path / "small.jd").write_bytes(pack(entries))
    with pytest.raises(ArchiveError, match="it claims to hold"):
        load(tmp_path / "small.jd")


def test_speed_and_size(tmp_path: Path) -> None:
    """The goal is half a second for both on a quiet machine; a busy one gets four times as long."""
    run = large_run(500)
    through_file(EMPTY, tmp_path)
    begin_s = time.perf_counter()
    assert through_file(run, tmp_path) == run
    assert time.perf_counter() - begin_s < 2.0
    assert (tmp_path / "run.jd").stat().st_size < 250_000


def test_the_wire_needs_the_standard_library_only() -> None:
    code = (
        "import sys; from joulediff.archive.snapshot import to_wire, from_wire; from joulediff.model.run import Run\n"
        "assert from_wire(to_wire(Run('a', None, 'b', 'c'))).label == 'a'\n"
        "assert not {'numpy', 'pyarrow'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Whole or not there.


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.jd"
    save(EMPTY, path)
    path.chmod(0o644)
    with path.open("rb") as before:
        save(small_run(), path)
        assert exactly(load(path)) == exactly(small_run())
        assert before.read(4) == b"PK\x03\x04"
        assert os.fstat(before.fileno()).st_ino != path.stat().st_ino
    assert names_in(tmp_path) == ["run.jd"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    save(EMPTY, tmp_path / "run.jd")
    assert (tmp_path / "run.jd").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.jd").symlink_to(tmp_path / "real" / "run.jd")
    save(EMPTY, tmp_path / "link.jd")
    assert (tmp_path / "link.jd").is_symlink()
    assert load(tmp_path / "real" / "run.jd") == EMPTY


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_previous_file(
    failing: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jd"
    save(EMPTY, path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(*((os, "fsync") if failing == "fsync" else (Path, "replace")), fail)
    with pytest.raises((ArchiveError, KeyboardInterrupt)) as raised:
        save(small_run(), path)
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert str(raised.value) == (
            f"{path} was not written: No space left on device\n"
            "  name a file in a folder that exists, is writable and has room"
        )
    assert load(path) == EMPTY
    assert names_in(tmp_path) == ["run.jd"]


@pytest.mark.parametrize("place", ["missing/run.jd", "folder", "file/run.jd", "x" * 300 + ".jd", "nul\0.jd"])
def test_the_reason_why_a_path_cannot_be_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(JoulediffError, match="was not written: ") as raised:
        save(EMPTY, tmp_path / place)
    assert raised.value.fix
    assert names_in(tmp_path) == ["file", "folder"]


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="it is not a regular file"):
        save(EMPTY, tmp_path / "pipe")
    assert names_in(tmp_path) == ["pipe"]


SAVE_AND_DIE = """
import os, resource, signal, sys
from pathlib import Path
from joulediff.archive.reader import load
from joulediff.archive.writer import save
old, new, moment = sys.argv[1:]
run = load(new)
if moment.isdigit():
    # The kernel ends a process that writes beyond its limit, in the middle of the write.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(moment), int(moment)))
else:
    place = os if moment == "fsync" else Path
    setattr(place, moment, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
save(run, old)
"""


@pytest.mark.parametrize("moment", ["0", "1", "5000", "fsync", "replace"])
def test_a_killed_process_leaves_the_previous_file(moment: str, tmp_path: Path) -> None:
    save(EMPTY, tmp_path / "old.jd")
    save(small_run(), tmp_path / "new.jd")
    words = [str(tmp_path / "old.jd"), str(tmp_path / "new.jd"), moment]
    done = subprocess.run([sys.executable, "-c", SAVE_AND_DIE, *words], check=False, timeout=60)
    assert done.returncode in (-signal.SIGKILL, -signal.SIGXFSZ)
    assert load(tmp_path / "old.jd") == EMPTY


def test_a_disk_that_is_full_leaves_the_previous_file(tmp_path: Path) -> None:
    save(EMPTY, tmp_path / "old.jd")
    save(small_run(), tmp_path / "new.jd")
    code = SAVE_AND_DIE.replace("SIG_DFL", "SIG_IGN")
    words = [str(tmp_path / "old.jd"), str(tmp_path / "new.jd"), "5000"]
    done = subprocess.run([sys.executable, "-c", code, *words], check=False, timeout=60, capture_output=True, text=True)
    assert "old.jd was not written: File too large" in done.stderr
    assert load(tmp_path / "old.jd") == EMPTY
    assert names_in(tmp_path) == ["new.jd", "old.jd"]


# The history of the format. Each archive stays as its version wrote it; `pytest tests/test_archive.py --golden`
# writes that of the present format anew, which is right only while no release has written it.


def test_the_present_format_has_an_archive(pytestconfig: pytest.Config) -> None:
    path = GOLDEN / f"format{FORMAT}.jd"
    if pytestconfig.getoption("golden"):
        save(small_run(), path)
        path.with_suffix(".json").write_text(json.dumps(flat(small_run()), indent=0) + "\n")
    assert path.exists()


@pytest.mark.parametrize("path", find_golden("format*.jd"), ids=lambda path: path.stem)
def test_archives_of_every_format_are_read(path: Path) -> None:
    """Field by field, so that fields which came later do not count."""
    kept = json.loads(path.with_suffix(".json").read_text())
    found = flat(load(path))
    assert {place: found.get(place) for place in kept} == kept


def test_settings_keep_their_types(tmp_path: Path) -> None:
    kept: dict[str, Setting] = {"a": True, "b": 1, "c": 1.0, "d": "1", "e": None, "f": 2**64 - 1}
    assert exactly(through_file(replace(EMPTY, settings=kept), tmp_path).settings) == exactly(kept)


@pytest.mark.parametrize("wrong", [None, 3, Run("x", None, "", "")])
def test_what_is_no_path_is_refused_in_words(wrong: object) -> None:
    with pytest.raises(WrongType, match="needs the path of a recording"):
        load(wrong)  # type: ignore[arg-type]
