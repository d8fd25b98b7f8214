"""Runs of scripts in a file: they come back equal, and no other bytes do more than raise an error."""

from __future__ import annotations

import hashlib
import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_run_builders import Between, Program, make_api_run
from archive_mutants import change_somewhere, cut, flip, insert, splice, zip_entries, zip_field
from archive_runs import exactly, small_run
from joulediff.archive.apis import ENTRY, FORMAT, MAX_RECORD_BYTES
from joulediff.archive.container import FREE_BYTES, JSON_FACTOR, MANIFEST, MEMORY_FACTOR, missing_bytes, pack, unpack
from joulediff.archive.reader import from_bytes, load, load_run
from joulediff.archive.writer import save, to_entries
from joulediff.model.apis.api_run import ApiRun, CallNode
from joulediff.model.energy import Energy
from joulediff.model.errors import ArchiveError
from joulediff.model.run import SourceText

SEEDS = 400


def stored(run: ApiRun) -> bytes:
    return pack(to_entries(run))


def with_record(base: bytes, record: bytes, **listed: object) -> bytes:
    """Return a file with another record, whose manifest is right unless `listed` says otherwise."""
    entries = {name: bytes(data) for name, data in unpack(base).items()}
    manifest = json.loads(entries[MANIFEST])
    manifest["record"] = {"size_bytes": len(record), "sha256": hashlib.sha256(record).hexdigest(), **listed}
    return pack({**entries, MANIFEST: json.dumps(manifest).encode(), ENTRY: record})


def changed(change: Callable[[Any], object]) -> bytes:
    """Return a file whose record was changed, and whose checksums are right."""
    base = stored(make_api_run())
    plain = json.loads(bytes(unpack(base)[ENTRY]))
    change(plain)
    return with_record(base, json.dumps(plain).encode())


@pytest.mark.parametrize(
    "run",
    [
        make_api_run(),
        make_api_run(domains=("cpu",), source="estimated", idle=False),
        make_api_run(not_counted=("cpu",)),
        make_api_run(Program(calls=(), between=(Between(None, None, 1, 2.0, {"cpu": 1.0}),), source="")),
        replace(make_api_run(), energy=None, net_energy=None, domains={}, ledger={}, apis=(), gaps=(), tree=()),
        replace(make_api_run(), ending="exception", exit_code=1, error="ValueError: \u202e\x1b[2J", label=""),
    ],
)
def test_a_run_comes_back_equal(run: ApiRun, tmp_path: Path) -> None:
    file = tmp_path / "run.jd"
    save(run, file)
    assert load(file) == run


def test_a_file_is_the_same_for_the_same_run() -> None:
    assert stored(make_api_run()) == stored(make_api_run())


def test_text_that_is_no_unicode_is_stored_as_what_can_be(tmp_path: Path) -> None:
    save(replace(make_api_run(), label="a\udc80b"), tmp_path / "run.jd")
    assert load(tmp_path / "run.jd") == replace(make_api_run(), label="a?b")


def test_a_file_of_calls_is_no_run_of_a_step(tmp_path: Path) -> None:
    save(make_api_run(), tmp_path / "calls.jd")
    with pytest.raises(ArchiveError, match="has the API calls of a script, and no step") as caught:
        load_run(tmp_path / "calls.jd")
    assert caught.value.fix
    assert "joulediff record" in caught.value.fix
    save(small_run(), tmp_path / "step.jd")
    assert exactly(load_run(tmp_path / "step.jd")) == exactly(small_run())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (replace(make_api_run(), seconds=float("nan")), "its seconds holds a number that is not finite"),
        (replace(make_api_run(), seconds=-1.0), "its seconds holds -1.0, which is negative"),
        (replace(make_api_run(), exit_code=2**63), "out of range"),
        (replace(make_api_run(), domains={}), "energy of the domain gpu0, which is not among its domains"),
        (replace(make_api_run(), tree=(CallNode(0, 0, 0, 1, 0.0, None),)), "refers to node 0, which is not above it"),
        (replace(make_api_run(), tree=(CallNode(None, 7, 0, 1, 0.0, None),)), "refers to API 7 of 7"),
        (replace(make_api_run(), tree=(CallNode(None, 0, 1, 1, 0.0, None),)), "refers to site 1 of 1"),
        (replace(make_api_run(), energy=Energy(1.0, 0.5, float("inf"), "metered")), "not finite"),
    ],
)
def test_a_run_that_contradicts_itself_is_not_written(run: ApiRun, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        save(run, tmp_path / "run.jd")
    assert caught.value.fix
    assert not (tmp_path / "run.jd").exists()


def set_at(*path: str | int, value: object) -> Callable[[Any], object]:
    def change(plain: Any) -> None:
        for key in path[:-1]:
            plain = plain[key]
        plain[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("schema", value="joulediff.apis/9"), "too new to be read"),
        (set_at("schema", value="joulediff.diff/2"), "no joulediff.apis/1"),
        (set_at("schema", value=None), "holds no record of API calls"),
        (set_at("apis", 0, "calls", value="many"), r"apis\.apis\[0\]\.calls in its record may not be the str many"),
        (set_at("apis", 0, "calls", value=-1), "its calls holds -1, which is negative"),
        (set_at("apis", 0, "share", value=float("inf")), "its share holds a number that is not finite"),
        (set_at("energy", "low", value=1e9), "outside its interval"),
        (set_at("energy", "source", value="guessed"), "may not be the str guessed"),
        (set_at("ending", value="fire"), "may not be the str fire"),
        (set_at("tree", 0, "parent", value=0), "refers to node 0, which is not above it"),
        (set_at("tree", 0, "api", value=-1), "refers to API -1 of 7"),
        (set_at("apis", 0, "domains", value={"tpu": None}), "may not be the null"),
        (set_at("ledger", value={"tpu": {}}), "metered is missing"),
        (set_at("gaps", value={}), "may not be the dict"),
    ],
)
def test_a_wrong_value_is_named(change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        from_bytes(changed(change))


def test_unknown_keys_and_missing_new_ones_are_read() -> None:
    def change(plain: Any) -> None:
        plain["later"] = [1]
        del plain["sources"], plain["conditions"]

    assert from_bytes(changed(change)) == replace(make_api_run(), sources=())


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"sha256": "0" * 64}, "was changed after it was written"),
        ({"size_bytes": 1}, "was changed after it was written"),
    ],
)
def test_a_record_that_was_changed_is_refused(listed: dict[str, object], message: str) -> None:
    base = stored(make_api_run())
    with pytest.raises(ArchiveError, match=message):
        from_bytes(with_record(base, bytes(unpack(base)[ENTRY]), **listed))


def test_manifests_of_other_versions() -> None:
    base = stored(make_api_run())
    entries = {name: bytes(data) for name, data in unpack(base).items()}
    manifest = json.loads(entries[MANIFEST])
    later = {**manifest, "format": FORMAT + 1}
    assert from_bytes(pack({**entries, MANIFEST: json.dumps(later).encode()})) == make_api_run()
    with pytest.raises(ArchiveError, match=f"this joulediff reads up to {FORMAT}"):
        from_bytes(pack({**entries, MANIFEST: json.dumps({**later, "min_reader": FORMAT + 1}).encode()}))
    with pytest.raises(ArchiveError, match="does not list its entry"):
        from_bytes(pack({**entries, MANIFEST: json.dumps({**manifest, "record": 3}).encode()}))
    with pytest.raises(ArchiveError, match=f"its entry {ENTRY} is missing"):
        from_bytes(pack({MANIFEST: entries[MANIFEST]}))


def test_a_file_may_not_need_more_memory_than_its_size_allows() -> None:
    base = stored(make_api_run())
    record = b'{"warnings":[' + b",".join([b"[]"] * 10**6) + b"]}"
    assert missing_bytes(len(base) + len(record), JSON_FACTOR * len(record))
    with pytest.raises(ArchiveError, match="claims to hold"):
        from_bytes(with_record(base, record))


@pytest.mark.parametrize(
    "record",
    [
        b'{"schema":"joulediff.apis/1","warnings":[' + b",".join([b"[]"] * 400_000) + b"]}",
        b'{"schema":"joulediff.apis/1","tree":[' + b",".join([b"{}"] * 400_000) + b"]}",
        b'{"schema":"joulediff.apis/1","x":[' + b",".join([b"[0]"] * 300_000) + b"]}",
    ],
)
def test_a_wide_record_takes_the_memory_that_is_allowed(record: bytes) -> None:
    data = with_record(stored(make_api_run()), record)
    assert not missing_bytes(len(data), JSON_FACTOR * len(record))
    tracemalloc.start()
    with pytest.raises(ArchiveError):
        from_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= FREE_BYTES + MEMORY_FACTOR * len(data)


def test_a_large_run_is_padded_so_that_it_can_be_read() -> None:
    text = "x = 1  # " + "long " * 600_000
    run = replace(make_api_run(), sources=(SourceText("train.py", 1, text),))
    data = stored(run)
    assert "padding" in unpack(data)
    assert from_bytes(data) == run


def test_more_than_a_record_may_have_is_refused() -> None:
    run = replace(make_api_run(), sources=(SourceText("train.py", 1, "x" * (MAX_RECORD_BYTES + 1)),))
    with pytest.raises(ArchiveError, match="64,000,000 are allowed") as caught:
        to_entries(run)
    assert "measure fewer" in (caught.value.fix or "")


@pytest.mark.parametrize("depth", [500, 2000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    base = stored(make_api_run())
    with pytest.raises(ArchiveError):
        from_bytes(with_record(base, b'{"schema":"joulediff.apis/1","x":' + b"[" * depth + b"}"))


def test_mutants_raise_an_archive_error_or_are_read() -> None:
    base = stored(make_api_run())
    read = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        kind = rng.choice([flip, cut, insert, splice, zip_field, zip_entries, change_record, change_record_bytes])
        try:
            found = from_bytes(kind(rng, base))
        except ArchiveError as error:
            assert str(error).isprintable() or "\n" in str(error)
        else:
            assert isinstance(found, ApiRun)
            to_entries(found)  # what is read can be written again
            read += 1
    assert 0 < read < SEEDS


def change_record(rng: random.Random, base: bytes) -> bytes:
    plain = json.loads(bytes(unpack(base)[ENTRY]))
    for _ in range(rng.choice([1, 1, 3])):
        change_somewhere(rng, plain)
    return with_record(base, json.dumps(plain).encode())


def change_record_bytes(rng: random.Random, base: bytes) -> bytes:
    change = rng.choice([flip, cut, insert, splice])
    return with_record(base, change(rng, bytes(unpack(base)[ENTRY])))
