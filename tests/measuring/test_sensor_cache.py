from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from joulediff.measuring.sensor_cache import MAX_FILE_BYTES, SCHEMA, SensorCache, cache_folder
from joulediff.model.energy import Source
from joulediff.model.measurement import Domain, Learned

HOST = "host-a"


def domain(key: str = "nvml/GPU-1/power", source: Source = "metered") -> Domain:
    return Domain(
        "gpu0",
        "power",
        "a card",
        key,
        period_s=0.1,
        resolution_j=0.5,
        repeat_share=0.01,
        window_s=0.5,
        source=source,
    )


def learned(key: str = "nvml/GPU-1/power", period_s: float = 0.02, resolution_j: float = 0.01) -> Learned:
    return Learned(key, period_s, resolution_j, call_s=0.001, overhead_share=0.002)


def write(folder: Path, content: Any) -> Path:
    path = folder / "sensors.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def with_row(row: object) -> dict[str, Any]:
    return {"schema": SCHEMA, "sensors": {f"{HOST}/nvml/GPU-1/power": row}}


def test_stored_properties_are_read_back(tmp_path: Path) -> None:
    cache = SensorCache(tmp_path / "new" / "folder", machine=HOST)
    assert cache.apply(domain()) == domain()
    cache.store([learned()])
    assert cache.problem is None
    for again in (cache, SensorCache(tmp_path / "new" / "folder", machine=HOST)):
        found = again.apply(domain())
        assert (found.period_s, found.resolution_j) == (0.02, 0.01)
        assert (found.name, found.window_s, found.device) == ("gpu0", 0.5, "a card")
        assert again.apply(domain("rapl/other")) == domain("rapl/other")
    assert [path.name for path in cache.path.parent.iterdir()] == ["sensors.json"]


def test_a_sensor_is_learned_anew(tmp_path: Path) -> None:
    cache = SensorCache(tmp_path, machine=HOST)
    cache.store([learned(), learned("rapl/x", period_s=0.001)])
    cache.store([learned(period_s=0.03)])
    again = SensorCache(tmp_path, machine=HOST)
    assert again.apply(domain()).period_s == 0.03
    assert again.apply(domain("rapl/x")).period_s == 0.001


def test_other_machines_keep_their_own(tmp_path: Path) -> None:
    SensorCache(tmp_path, machine=HOST).store([learned(period_s=0.02)])
    other = SensorCache(tmp_path, machine="host-b")
    assert other.apply(domain()) == domain()
    other.store([learned(period_s=0.05)])
    assert SensorCache(tmp_path, machine=HOST).apply(domain()).period_s == 0.02
    assert SensorCache(tmp_path, machine="host-b").apply(domain()).period_s == 0.05


def test_an_estimate_has_no_sensor_to_learn_about(tmp_path: Path) -> None:
    cache = SensorCache(tmp_path, machine=HOST)
    cache.store([learned()])
    assert cache.apply(domain(source="estimated")) == domain(source="estimated")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"9" * 10_000,
        [],
        "text",
        None,
        {},
        {"schema": "joulediff.sensors/2", "sensors": {}},
        {"schema": SCHEMA},
        {"schema": SCHEMA, "sensors": []},
        b" " * (MAX_FILE_BYTES + 1),
    ],
    ids=lambda content: repr(content)[:20],
)
def test_a_file_that_is_not_ours_is_ignored_and_said_so(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path, content)
    cache = SensorCache(tmp_path, machine=HOST)
    assert cache.problem is not None
    assert str(path) in cache.problem
    assert "\n" not in cache.problem
    assert cache.apply(domain()) == domain()
    cache.store([learned()])
    again = SensorCache(tmp_path, machine=HOST)
    assert (again.problem, again.apply(domain()).period_s) == (None, 0.02)


@pytest.mark.parametrize(
    "row",
    [
        None,
        7,
        "text",
        [],
        {},
        {"period_s": 0.02},
        {"period_s": "0.02", "resolution_j": 0.01},
        {"period_s": None, "resolution_j": 0.01},
        {"period_s": [0.02], "resolution_j": {"j": [[[]]]}},
        {"period_s": float("nan"), "resolution_j": 0.01},
        {"period_s": 0.02, "resolution_j": float("inf")},
        {"period_s": -0.02, "resolution_j": 0.01},
        {"period_s": 0.02, "resolution_j": 0},
        {"period_s": 61.0, "resolution_j": 0.01},
        {"period_s": 0.02, "resolution_j": 1e9},
        {"period_s": 10**400, "resolution_j": 0.01},
    ],
    ids=lambda row: repr(row)[:50],
)
def test_a_row_that_makes_no_sense_is_ignored(tmp_path: Path, row: object) -> None:
    write(tmp_path, with_row(row))
    assert SensorCache(tmp_path, machine=HOST).apply(domain()) == domain()


def test_a_sound_row_beside_a_broken_one(tmp_path: Path) -> None:
    rows = with_row({"period_s": 1, "resolution_j": 2, "from a later version": True})
    rows["sensors"]["broken"] = None
    write(tmp_path, rows)
    cache = SensorCache(tmp_path, machine=HOST)
    assert cache.problem is None
    assert (cache.apply(domain()).period_s, cache.apply(domain()).resolution_j) == (1.0, 2.0)


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "sensors.json").mkdir()
    cache = SensorCache(tmp_path, machine=HOST)
    assert cache.problem is not None
    cache.problem = None
    cache.store([learned()])
    assert str(tmp_path) in str(cache.problem)
    assert cache.apply(domain()).period_s == 0.02
    assert [path.name for path in tmp_path.iterdir()] == ["sensors.json"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    cache = SensorCache(tmp_path / "cache" / "joulediff", machine=HOST)
    cache.store([learned()])
    assert f"cannot be written to {tmp_path / 'cache' / 'joulediff'}" in str(cache.problem)
    assert cache.apply(domain()).period_s == 0.02


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    cache = SensorCache(tmp_path, machine=HOST)
    monkeypatch.setattr("joulediff.measuring.sensor_cache.write_whole", refuse)
    cache.store([learned()])
    assert cache.problem == f"the sensor cache cannot be written to {tmp_path} (Permission denied)"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder({"JOULEDIFF_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"JOULEDIFF_CACHE": "", "XDG_CACHE_HOME": "/b"}) == Path("/b/joulediff")
    assert cache_folder({"XDG_CACHE_HOME": ""}) == tmp_path / ".cache" / "joulediff"
    assert cache_folder({}) == tmp_path / ".cache" / "joulediff"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder({}) == tmp_path / "Library" / "Caches" / "joulediff"


def test_the_cache_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULEDIFF_CACHE", str(tmp_path))
    SensorCache(machine=HOST).store([learned()])
    assert (tmp_path / "sensors.json").is_file()
