"""A recording that grows: only what changed is converted, sent and packed, and every part that arrives is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from archive_runs import exactly, small_run
from archive_strategies import runs
from joulediff.archive.reader import load
from joulediff.archive.schema import TABLES
from joulediff.archive.snapshot import Snapshot
from joulediff.archive.tables import REFERENCES
from joulediff.archive.writer import save
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Pass, Run

CAPTURED = small_run()
EMPTY: dict[str, Any] = {name: () for name in TABLES if name not in REFERENCES}
METERED = replace(CAPTURED, spans=(), **EMPTY)
BARE = replace(CAPTURED, ops=tuple(replace(op, replay=None) for op in CAPTURED.ops), replays=())
ENDED = replace(CAPTURED, passes=(*CAPTURED.passes, Pass("replayed", "done", 1.0)))
USES = sum(len(op.inputs + op.outputs + op.writes) for op in CAPTURED.ops)
GROWING = (METERED, BARE, CAPTURED, ENDED)


def sent(growing: tuple[Run, ...]) -> list[tuple[bytes, Snapshot]]:
    """Return the bytes of each checkpoint, and the snapshot that arrives."""
    found: list[tuple[bytes, Snapshot]] = []
    before = None
    for run in growing:
        made = Snapshot.of(run, since=before)
        wire = made.to_wire(since=before)
        found.append((wire, Snapshot.from_wire(wire, since=found[-1][1] if found else None)))
        before = made
    return found


def columns_in(wire: bytes) -> dict[str, set[str]]:
    return {name: set(columns) for name, columns in json.loads(wire)["tables"].items()}


def test_each_checkpoint_arrives_whole() -> None:
    for run, (_, arrived) in zip(GROWING, sent(GROWING), strict=True):
        assert exactly(arrived.run) == exactly(run)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(runs(), runs())
def test_any_run_can_follow_any_other(first: Run, second: Run) -> None:
    growing = (first, second)
    for run, (_, arrived) in zip(growing, sent(growing), strict=True):
        assert exactly(arrived.run) == exactly(run)


def test_only_columns_that_changed_are_sent() -> None:
    _, bare, captured, ended = (columns_in(wire) for wire, _ in sent(GROWING))
    assert {"ops", "values", "op_values", "kernels"} <= bare.keys()
    assert captured["ops"] == {"replay"} and captured.keys() == {"ops", "replays"}
    assert ended == {}


def test_a_zero_of_the_other_sign_is_sent() -> None:
    (kernel, *_), growing = CAPTURED.kernels, []
    for start_s in (0.0, -0.0):
        growing.append(replace(CAPTURED, kernels=(replace(kernel, start_s=start_s),)))
    *_, (wire, arrived) = sent(tuple(growing))
    assert columns_in(wire) == {"kernels": {"start_s"}}
    assert str(arrived.run.kernels[0].start_s) == "-0.0"


def test_only_tables_that_changed_are_converted_and_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from joulediff.archive import snapshot, writer

    done: list[str] = []

    def note(module: Any, function: str) -> None:
        real = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda name, cells: (done.append(f"{function} {name}"), real(name, cells))[1]
        )

    note(snapshot, "to_columns")
    note(writer, "encode")
    before = None
    for run in GROWING:
        done.clear()
        before = Snapshot.of(run, since=before)
        save(before, tmp_path / "growing.jd")
        save(run, tmp_path / "whole.jd")
        assert (tmp_path / "growing.jd").read_bytes() == (tmp_path / "whole.jd").read_bytes()
        if run is ENDED:
            assert len(done) == len(EMPTY) + len(TABLES), "those of the whole run alone"
    assert exactly(load(tmp_path / "growing.jd")) == exactly(ENDED)


def test_a_snapshot_becomes_a_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = Snapshot.from_wire(Snapshot.of(CAPTURED).to_wire())
    assert arrived.label == CAPTURED.label and arrived.passes == CAPTURED.passes
    first = arrived.run
    monkeypatch.delattr("joulediff.archive.snapshot.from_tables")
    assert arrived.run is first


def test_fields_beside_the_tables_can_be_changed(tmp_path: Path) -> None:
    arrived = Snapshot.from_wire(Snapshot.of(CAPTURED).to_wire())
    save(arrived, tmp_path / "before.jd")
    changed = arrived.changed(program="cases/p.py", passes=ENDED.passes)
    save(changed, tmp_path / "after.jd")
    assert exactly(load(tmp_path / "before.jd")) == exactly(CAPTURED)
    assert exactly(load(tmp_path / "after.jd")) == exactly(replace(ENDED, program="cases/p.py"))
    assert exactly(changed.run) == exactly(replace(ENDED, program="cases/p.py"))


def change_table(table: str, **columns: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["tables"].setdefault(table, {}).update(columns)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_table("ops", name=["aten::mm"]), "ops, column name has 1 rows"),
        (change_table("op_values", value=[10**6] * USES), "refers to row"),
        (change_table("op_values", position=[1] * USES), "positions in its table op_values"),
        (change_table("frames", file=[], line=[], function=[], owner=[], parent=[]), "refers to row"),
        (lambda found: found["tables"].update(ops=[]), "its table ops has no columns"),
        (lambda found: found.update(tables=[]), "it holds no recorded run"),
        (lambda found: found["manifest"].pop("label"), "label is missing"),
        (lambda found: found["manifest"].update(format=99, min_reader=99), "format 99"),
        (lambda found: found["manifest"].update(passes=[{"name": "danced"}]), "passes"),
        (lambda found: found["manifest"].update(spans=[{"first": 5, "last": 1, "settings": {}}]), "spans"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(change: Callable[[dict[str, Any]], object], told: str) -> None:
    before = Snapshot.of(CAPTURED)
    found = json.loads(Snapshot.of(ENDED, since=before).to_wire(since=before))
    change(found)
    with pytest.raises(ArchiveError, match=told):
        Snapshot.from_wire(json.dumps(found).encode(), since=before)


def test_unknown_keys_do_not_reach_a_file(tmp_path: Path) -> None:
    found = json.loads(Snapshot.of(CAPTURED).to_wire())
    found["manifest"] |= {"surprise": "x" * 100, "tables": 3}
    found["tables"] |= {"more": {"id": [1]}}
    save(Snapshot.from_wire(json.dumps(found).encode()), tmp_path / "run.jd")
    save(CAPTURED, tmp_path / "expected.jd")
    assert (tmp_path / "run.jd").read_bytes() == (tmp_path / "expected.jd").read_bytes()


def test_the_first_one_must_be_whole() -> None:
    before = Snapshot.of(CAPTURED)
    with pytest.raises(ArchiveError, match="is missing"):
        Snapshot.from_wire(Snapshot.of(ENDED, since=before).to_wire(since=before))
