from __future__ import annotations

from pathlib import Path

import pytest

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters.rapl import open_rapl
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed, MeterUnavailable

RANGE_UJ = 262_143_328_850


def add_zone(root: Path, entry: str, name: str, energy_uj: int = 1_000_000, range_uj: int = RANGE_UJ) -> Path:
    zone = root / entry
    zone.mkdir(parents=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "energy_uj").write_text(f"{energy_uj}\n")
    (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return zone


def laptop(root: Path) -> Path:
    (root / "intel-rapl").mkdir(parents=True)
    add_zone(root, "intel-rapl:0", "package-0", 5_000_000)
    add_zone(root, "intel-rapl:0:0", "core")
    add_zone(root, "intel-rapl:0:1", "uncore")
    add_zone(root, "intel-rapl:0:2", "dram", 2_000_000)
    add_zone(root, "intel-rapl:1", "psys", 9_000_000)
    add_zone(root, "intel-rapl-mmio:0", "package-0")
    return root


def test_one_package_with_memory_and_platform(tmp_path: Path) -> None:
    meter = open_rapl(root=laptop(tmp_path), clock=FakeClock(3.0))
    assert [d.name for d in meter.domains] == ["cpu", "dram", "psys"]
    assert [d.whole for d in meter.domains] == [False, False, True]
    assert {d.kind for d in meter.domains} == {"counter"}
    assert meter.domains[0].wrap_j == pytest.approx(RANGE_UJ * 1e-6)
    assert meter.domains[0].key == f"rapl/{tmp_path}/intel-rapl:0"
    readings = meter.poll()
    assert [(r.domain, r.value) for r in readings] == [("cpu", 5.0), ("dram", 2.0), ("psys", 9.0)]
    assert {r.time_s for r in readings} == {3.0}


def test_several_sockets_are_numbered_and_keep_their_own_memory(tmp_path: Path) -> None:
    for socket in (10, 2, 0):
        add_zone(tmp_path, f"intel-rapl:{socket}", f"package-{socket}", socket * 1_000_000)
        add_zone(tmp_path, f"intel-rapl:{socket}:0", "dram", socket * 1_000_000 + 500_000)
    readings = open_rapl(root=tmp_path, clock=FakeClock()).poll()
    assert [(r.domain, r.value) for r in readings] == [
        ("cpu0", 0.0),
        ("cpu1", 2.0),
        ("cpu2", 10.0),
        ("dram0", 0.5),
        ("dram1", 2.5),
        ("dram2", 10.5),
    ]


def test_dies_of_one_socket_count_as_packages(tmp_path: Path) -> None:
    add_zone(tmp_path, "intel-rapl:0", "package-0-die-0")
    add_zone(tmp_path, "intel-rapl:1", "package-0-die-1")
    assert [d.name for d in open_rapl(root=tmp_path).domains] == ["cpu0", "cpu1"]


def test_amd_has_a_package_and_cores(tmp_path: Path) -> None:
    add_zone(tmp_path, "intel-rapl:0", "package-0", range_uj=65_532_610_987)
    add_zone(tmp_path, "intel-rapl:0:0", "core")
    assert [d.name for d in open_rapl(root=tmp_path).domains] == ["cpu"]


def test_the_read_takes_time(tmp_path: Path) -> None:
    class SlowClock(FakeClock):
        def now(self) -> float:
            self.advance(0.001)
            return super().now()

    (reading,) = open_rapl(root=add_zone(tmp_path, "intel-rapl:0", "package-0").parent, clock=SlowClock()).poll()
    assert reading.time_s == pytest.approx(0.002)
    assert reading.within_s == pytest.approx(0.001)


def test_the_counter_wraps(tmp_path: Path) -> None:
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, range_uj=10_000_000)
    clock = FakeClock()
    meter = open_rapl(root=tmp_path, clock=clock)
    readings = []
    for energy_uj in (9_000_000, 9_600_000, 200_000, 800_000):
        (zone / "energy_uj").write_text(f"{energy_uj}\n")
        readings += meter.poll()
        clock.advance(0.02)
    curve = Curve.from_readings(meter.domains[0], readings)
    assert curve.energy_j.tolist() == pytest.approx([0.6, 1.2, 1.8])


@pytest.mark.parametrize("entries", [None, [], ["intel-rapl"], ["dtpm"], ["intel-rapl-mmio:0"]])
def test_a_machine_without_counters(tmp_path: Path, entries: list[str] | None) -> None:
    root = tmp_path / "powercap"
    for entry in entries or ():
        add_zone(root, entry, "package-0")
    with pytest.raises(MeterUnavailable, match="virtual machines and containers have none") as caught:
        open_rapl(root=root)
    assert "sudo modprobe intel_rapl_msr" in str(caught.value)


def test_no_permission_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop(tmp_path)
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(MeterUnavailable, match="root only") as caught:
        open_rapl(root=tmp_path)
    assert f"sudo chmod a+r {tmp_path}/intel-rapl*/energy_uj" in str(caught.value)


@pytest.mark.parametrize("broken", ["name", "energy_uj", "max_energy_range_uj"])
def test_a_broken_entry_at_opening_is_named(tmp_path: Path, broken: str) -> None:
    path = add_zone(tmp_path, "intel-rapl:0", "package-0") / broken
    path.unlink()
    with pytest.raises(MeterUnavailable, match=str(path)):
        open_rapl(root=tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it is empty"),
        ("\n", "it is empty"),
        ("busy\n", "'busy' is not a number"),
        ("-5\n", "'-5' is not a number"),
    ],
)
def test_nonsense_while_polling_fails(tmp_path: Path, content: str, reason: str) -> None:
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0")
    meter = open_rapl(root=tmp_path)
    (zone / "energy_uj").write_text(content)
    with pytest.raises(MeterFailed, match=reason) as caught:
        meter.poll()
    assert str(zone / "energy_uj") in str(caught.value)


def test_bytes_that_are_no_text_fail(tmp_path: Path) -> None:
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0")
    meter = open_rapl(root=tmp_path)
    (zone / "energy_uj").write_bytes(b"\xff\xfe")
    with pytest.raises(MeterFailed, match="energy_uj"):
        meter.poll()


def test_a_file_that_vanishes_fails(tmp_path: Path) -> None:
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0")
    meter = open_rapl(root=tmp_path)
    (zone / "energy_uj").unlink()
    with pytest.raises(MeterFailed, match="No such file"):
        meter.poll()


@pytest.mark.parametrize(("code", "text"), [(5, "Input/output error"), (61, "No data available")])
def test_a_driver_error_while_polling_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    add_zone(tmp_path, "intel-rapl:0", "package-0")
    meter = open_rapl(root=tmp_path)

    def fail(path: Path) -> bytes:
        raise OSError(code, text)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(MeterFailed, match=text):
        meter.poll()
