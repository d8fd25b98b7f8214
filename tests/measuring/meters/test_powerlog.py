from __future__ import annotations

import os
from pathlib import Path

import pytest

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters import powerlog
from joulediff.measuring.meters.powerlog import MAX_LINE_BYTES, PowerLogMeter, open_powerlog
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed, MeterUnavailable, NotCovered

WALL_S = 1_700_000_000.0
HEADER = "time,watts\n"


def rows(*powers_w: float, start_s: float = WALL_S - 1.0, step_s: float = 0.1) -> str:
    return "".join(f"{start_s + i * step_s:.3f},{power_w}\n" for i, power_w in enumerate(powers_w))


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "meter.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def append(path: Path, content: str | bytes) -> None:
    with path.open("ab") as log:
        log.write(content if isinstance(content, bytes) else content.encode())


def follow(path: Path, *, offset_s: float = 0.0, clock_s: float = 50.0) -> PowerLogMeter:
    return open_powerlog(path, offset_s=offset_s, clock=FakeClock(clock_s), wall_s=lambda: WALL_S)


def test_learns_the_pace_and_the_step(tmp_path: Path) -> None:
    with follow(write(tmp_path, HEADER + rows(100, 100, 100.5, 102))) as meter:
        (domain,) = meter.domains
    assert (domain.name, domain.kind, domain.whole) == ("wall", "power", True)
    assert domain.period_s == pytest.approx(0.1)
    assert domain.resolution_j == pytest.approx(0.05)
    assert (domain.window_s, domain.settle_s) == (pytest.approx(1.0), 0.25)
    assert meter.poll_s == pytest.approx(0.05)


def test_a_slow_meter_needs_longer_windows(tmp_path: Path) -> None:
    with follow(write(tmp_path, HEADER + rows(7, 7, 7, step_s=2.0))) as meter:
        (domain,) = meter.domains
    assert (domain.resolution_j, domain.window_s, domain.settle_s) == (0.0, 20.0, 4.0)
    assert meter.poll_s == 0.5


def test_stamps_become_seconds_of_our_clock(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3, start_s=WALL_S + 4.0))
    with follow(path) as meter, follow(path, offset_s=-2.5) as shifted:
        assert [r.time_s for r in meter.poll()] == pytest.approx([54.0, 54.1, 54.2])
        readings = shifted.poll()
    assert [r.time_s for r in readings] == pytest.approx([51.5, 51.6, 51.7])
    assert [(r.domain, r.kind, r.value) for r in readings] == [("wall", "power", v) for v in (1.0, 2.0, 3.0)]


def test_polls_return_only_new_and_complete_rows(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        assert len(meter.poll()) == 3
        assert meter.poll() == []
        append(path, f"{WALL_S},4\n{WALL_S + 0.1},5")
        assert [r.value for r in meter.poll()] == [4.0]
        append(path, "0.5\r\n")
        assert [r.value for r in meter.poll()] == [50.5]
        assert meter.poll() == []


def test_a_row_cut_at_opening_waits_for_its_rest(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3) + f"{WALL_S},")
    with follow(path) as meter:
        assert len(meter.poll()) == 3
        append(path, "9\n")
        assert [r.value for r in meter.poll()] == [9.0]


def test_the_rows_make_a_curve(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + HEADER + rows(*[100.0] * 11))
    with follow(path) as meter:
        curve = Curve.from_readings(meter.domains[0], meter.poll())
    assert curve.window(0.0, 100.0).energy.joules == pytest.approx(100.0)


def test_several_domains(tmp_path: Path) -> None:
    lines = [f"{WALL_S + i},{name},{i + extra}\n" for i in range(4) for extra, name in ((0, "Node"), (10, "gpu box"))]
    with follow(write(tmp_path, "timestamp,domain,power_w\n" + "".join(lines))) as meter:
        assert [(d.name, d.whole) for d in meter.domains] == [("Node", True), ("gpu box", False)]
        readings = meter.poll()
    assert [r.value for r in readings if r.domain == "gpu box"] == [10.0, 11.0, 12.0, 13.0]


def test_a_long_log_keeps_its_newest_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(powerlog, "KEPT_ROWS", 5)
    monkeypatch.setattr(powerlog, "CHUNK_BYTES", 64)
    with follow(write(tmp_path, HEADER + rows(*range(40)))) as meter:
        assert [r.value for r in meter.poll()] == [35.0, 36.0, 37.0, 38.0, 39.0]


def test_one_poll_reads_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        monkeypatch.setattr(powerlog, "CHUNK_BYTES", 40)
        append(path, rows(*range(10), start_s=WALL_S))
        polls = [[r.value for r in meter.poll()] for _ in range(8)]
    assert [value for values in polls for value in values] == [float(v) for v in range(10)]
    assert max(len(values) for values in polls) <= 3


@pytest.mark.parametrize("content", ["", "time,watts"])
def test_an_empty_log(tmp_path: Path, content: str) -> None:
    with pytest.raises(MeterUnavailable, match=r"meter\.csv is empty"):
        follow(write(tmp_path, content))


@pytest.mark.parametrize("powers_w", [(), (1.0,), (1.0, 2.0)])
def test_a_log_that_has_just_begun(tmp_path: Path, powers_w: tuple[float, ...]) -> None:
    with pytest.raises(MeterUnavailable, match="the log must be running"):
        follow(write(tmp_path, HEADER + rows(*powers_w)))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MeterUnavailable, match="No such file"):
        follow(tmp_path / "none.csv")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(MeterUnavailable, match="is not a file"):
        follow(tmp_path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MeterUnavailable, match="is not a file"):
        follow(tmp_path / "pipe")


def test_an_offset_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(MeterUnavailable, match="nan s off"):
        follow(write(tmp_path, HEADER + rows(1, 2, 3)), offset_s=float("nan"))


BAD_LINES = [
    (f"{WALL_S},twelve\n", "the power 'twelve' is not a number"),
    (f"{WALL_S},nan\n", "not a finite number"),
    (f"{WALL_S},-3\n", "from 0 up"),
    ("later,1\n", "neither seconds since 1970 nor ISO 8601"),
    (f"{WALL_S - 5},1\n", "the time of wall runs backwards"),
    (f"{WALL_S},1,2\n", "the row has 3 columns, the header 2"),
    (f"{WALL_S},1".encode() + b"\xff\n", "byte 15 is not UTF-8 text"),
    (b"1" * (MAX_LINE_BYTES + 1) + b"\n", "longer than 4096 bytes"),
    (b"1" * (MAX_LINE_BYTES + 1), "longer than 4096 bytes"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_bad_lines_at_opening(tmp_path: Path, line: str | bytes, reason: str) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    append(path, line)
    with pytest.raises(MeterUnavailable, match=reason) as caught:
        follow(path)
    assert f"{path}, line 5: " in str(caught.value)


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_bad_lines_while_polling(tmp_path: Path, line: str | bytes, reason: str) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        append(path, line)
        with pytest.raises(MeterFailed, match=reason) as caught:
            meter.poll()
        assert f"{path}, line 5: " in str(caught.value)


def test_a_missing_column_names_line_1(tmp_path: Path) -> None:
    with pytest.raises(MeterUnavailable, match="line 1: the header has no column watts"):
        follow(write(tmp_path, "time,volts\n1,2\n"))


def test_good_rows_before_a_bad_one_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        append(path, f"{WALL_S},4\noops\n{WALL_S + 1},5\n")
        assert [r.value for r in meter.poll()] == [4.0]
        for _ in range(2):
            with pytest.raises(MeterFailed, match="line 6"):
                meter.poll()


def test_a_new_domain_while_polling_fails(tmp_path: Path) -> None:
    path = write(tmp_path, "time,watts,domain\n" + "".join(f"{WALL_S - 3 + i},1,a\n" for i in range(3)))
    with follow(path) as meter:
        meter.poll()
        append(path, "9,1,b\n")
        with pytest.raises(MeterFailed, match="line 5: the domain b was not in the log"):
            meter.poll()


def test_a_truncated_file_fails(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        path.write_text(HEADER)
        with pytest.raises(MeterFailed, match="was cut short after line 4"):
            meter.poll()


def test_a_replaced_file_fails(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        path.rename(tmp_path / "old.csv")
        write(tmp_path, HEADER + rows(*range(20)))
        with pytest.raises(MeterFailed, match="was replaced by another file"):
            meter.poll()


def test_a_vanished_file_fails(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + rows(1, 2, 3))
    with follow(path) as meter:
        meter.poll()
        path.unlink()
        with pytest.raises(MeterFailed, match="No such file"):
            meter.poll()


def test_a_log_with_a_gap_has_no_energy_over_it(tmp_path: Path) -> None:
    early, late = rows(*[100] * 20, start_s=WALL_S - 8.0), rows(*[100] * 20, start_s=WALL_S - 2.0)
    with follow(write(tmp_path, HEADER + early + late)) as meter:
        curve = Curve.from_readings(meter.domains[0], meter.poll())
    with pytest.raises(NotCovered, match=r"no readings for 4\.10 of"):
        curve.window(43.0, 49.5)
    span = curve.window(48.2, 49.8)
    assert span.energy.joules == pytest.approx(100.0 * span.duration_s)
