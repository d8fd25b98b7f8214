from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from joulediff.measuring.meters import scripted
from joulediff.measuring.meters.scripted import SCHEMA, FakeClock, ScriptedMeter, open_scripted, save_script
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import DeviceState, Domain, Reading

GPU = Domain(
    "gpu0",
    "power",
    "a card",
    "scripted/gpu0",
    period_s=0.02,
    resolution_j=0.01,
    repeat_share=0.01,
    window_s=0.5,
    note="two dies",
)
CPU = Domain(
    "cpu", "counter", "a CPU", "scripted/cpu", 0.001, 1e-6, 0.01, 0.1, settle_s=0.05, whole=True, wrap_j=262_143.3
)
READINGS = [
    Reading("gpu0", "power", 0.0, 100.0),
    Reading("cpu", "counter", 0.0, 5.0, 0.001),
    Reading("gpu0", "power", 0.1, 101.0),
    Reading("cpu", "counter", 0.2, 6.0, 0.001),
]


def script(**changes: Any) -> dict[str, Any]:
    row = {"name": "gpu0", "kind": "power", "device": "a card", "key": "k"}
    numbers = {"period_s": 0.02, "resolution_j": 0.01, "repeat_share": 0.01, "window_s": 0.5}
    return {"schema": SCHEMA, "domains": [row | numbers], "readings": [["gpu0", "power", 0.0, 1.0, 0.0]]} | changes


def write(folder: Path, content: Any) -> Path:
    path = folder / "script.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_time_passes_only_when_it_is_let() -> None:
    clock = FakeClock(7.0)
    clock.sleep(0.5)
    clock.sleep(-3.0)
    clock.advance(0.25)
    assert clock.now() == 7.75


def test_beats_run_in_order_each_at_its_moment() -> None:
    clock = FakeClock()
    seen: list[tuple[str, float]] = []

    def every(name: str, pause_s: float) -> Any:
        return clock.every(lambda: seen.append((name, round(clock.now(), 6))) or pause_s)

    stop_a, stop_b = every("a", 0.25), every("b", 0.5)
    clock.advance(1.125)
    assert seen == list(zip("abaabaab", [0.0, 0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0], strict=True))
    assert clock.now() == 1.125
    seen.clear()
    stop_a()
    stop_a()
    clock.advance(0.5)
    assert seen == [("b", 1.5)]
    stop_b()
    clock.advance(10.0)
    assert seen == [("b", 1.5)]


def test_a_beat_chooses_its_next_pause() -> None:
    clock = FakeClock()
    pauses_s = iter([0.1, 0.5, 9.0])
    seen_s: list[float] = []
    clock.every(lambda: seen_s.append(clock.now()) or next(pauses_s))
    clock.advance(1.0)
    assert seen_s == pytest.approx([0.0, 0.1, 0.6])


def test_a_beat_may_take_time_itself() -> None:
    clock = FakeClock()
    seen_s: list[float] = []

    def slow_beat() -> float:
        seen_s.append(clock.now())
        clock.advance(0.05)
        return 0.1

    clock.every(slow_beat)
    clock.advance(0.3)
    assert seen_s == pytest.approx([0.0, 0.15, 0.3])
    assert clock.now() == pytest.approx(0.35)


def test_a_beat_that_stops_itself_is_over() -> None:
    clock = FakeClock()
    seen_s: list[float] = []

    def beat() -> float:
        seen_s.append(clock.now())
        if len(seen_s) == 2:
            stop()
        return 0.1

    stop = clock.every(beat)
    clock.advance(1.0)
    assert seen_s == pytest.approx([0.0, 0.1])


def test_a_meter_plays_its_script_from_its_opening() -> None:
    clock = FakeClock(10.0)
    meter = ScriptedMeter([GPU, CPU], reversed(READINGS), clock=clock, states=[DeviceState("gpu0", clock_mhz=5.0)])  # type: ignore[arg-type]
    assert [(r.domain, r.time_s) for r in meter.poll()] == [("cpu", 10.0), ("gpu0", 10.0)]
    assert meter.poll() == []
    clock.advance(0.15)
    assert [(r.value, r.time_s) for r in meter.poll()] == [(101.0, pytest.approx(10.1))]
    assert [s.clock_mhz for s in meter.states()] == [5.0]
    assert meter.clocks() == {"gpu0": 5.0}


def test_a_script_that_has_ended_is_a_meter_that_died() -> None:
    clock = FakeClock()
    meter = ScriptedMeter([GPU, CPU], READINGS, clock=clock)
    clock.advance(1.0)
    assert len(meter.poll()) == 4
    with pytest.raises(MeterFailed, match=r"ended before 1\.000 s"):
        meter.poll()


def test_a_meter_dies_when_its_script_says() -> None:
    clock = FakeClock(5.0)
    meter = ScriptedMeter([GPU, CPU], READINGS, clock=clock, dies_at_s=0.125)
    assert len(meter.poll()) == 2
    clock.advance(0.125)
    with pytest.raises(MeterFailed, match=r"died at 0\.125 s"):
        meter.poll()


def test_saved_readings_are_played(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    save_script(path, [GPU, CPU], READINGS)
    clock = FakeClock(3.0)
    with open_scripted(path, clock=clock) as meter:
        assert meter.domains == (GPU, CPU)
        clock.advance(1.0)
        played = meter.poll()
    assert [(r.domain, r.kind, r.value, r.within_s) for r in played] == [
        (r.domain, r.kind, r.value, r.within_s) for r in READINGS
    ]
    assert [r.time_s for r in played] == pytest.approx([3.0 + r.time_s for r in READINGS])


def test_a_script_of_a_later_version_may_say_more(tmp_path: Path) -> None:
    content = script()
    content["domains"][0]["colour"] = "green"
    assert open_scripted(write(tmp_path, content), clock=FakeClock()).poll()[0].value == 1.0


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(MeterUnavailable, match="cannot read the script") as caught:
            open_scripted(path)
        assert str(path) in str(caught.value)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "MAX_FILE_BYTES", 10)
    path = write(tmp_path, script())
    with pytest.raises(MeterUnavailable, match="larger than 10 bytes") as caught:
        open_scripted(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"time,watts\n0,1\n", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(MeterUnavailable, match="not JSON") as caught:
        open_scripted(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [[], None, {}, script(schema="joulediff.script/9"), script(schema=None)])
def test_a_file_of_another_kind(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path, content)
    with pytest.raises(MeterUnavailable, match="not a script of readings") as caught:
        open_scripted(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"domains": None},
        {"domains": [7]},
        {"domains": [{}]},
        {"domains": [script()["domains"][0] | {"kind": "heat"}]},
        {"domains": [script()["domains"][0] | {"name": ["gpu0"]}]},
        {"domains": [script()["domains"][0] | {"period_s": "fast"}]},
        {"domains": [script()["domains"][0] | {"resolution_j": float("nan")}]},
        {"readings": None},
        {"readings": [7]},
        {"readings": [[]]},
        {"readings": [["gpu0", "power", 0.0, 1.0]]},
        {"readings": [["gpu0", "power", 0.0, "much", 0.0]]},
        {"readings": [["gpu0", "power", None, 1.0, 0.0]]},
        {"readings": [["gpu0", "power", float("inf"), 1.0, 0.0]]},
        {"readings": [["gpu0", "power", 0.0, 10**400, 0.0]]},
        {"readings": [["gpu0", "counter", 0.0, 1.0, 0.0]]},
        {"readings": [["gpu1", "power", 0.0, 1.0, 0.0]]},
        {"readings": [[["gpu0"], "power", 0.0, 1.0, 0.0]]},
    ],
    ids=lambda changes: repr(changes)[:60],
)
def test_a_broken_row(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path, script(**changes))
    with pytest.raises(MeterUnavailable, match="a row of the script is broken") as caught:
        open_scripted(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("lost", ["domains", "readings"])
def test_a_script_without_its_rows(tmp_path: Path, lost: str) -> None:
    content = script()
    del content[lost]
    with pytest.raises(MeterUnavailable, match=lost):
        open_scripted(write(tmp_path, content))
