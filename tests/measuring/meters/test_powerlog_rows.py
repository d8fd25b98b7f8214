from __future__ import annotations

import time

import pytest

from joulediff.measuring.meters.powerlog import MAX_DOMAINS, Row, RowParser


def parser(header: str = "time,watts,domain") -> RowParser:
    made = RowParser()
    assert made.read(header) is None
    assert made.has_header
    return made


@pytest.mark.parametrize(
    ("header", "line", "row"),
    [
        ("time,watts", "10,5.5", Row("wall", 10.0, 5.5)),
        ("Timestamp , Power_W", " 10.25 , 5 ", Row("wall", 10.25, 5.0)),
        ("W,note,TIME_S,domain", "5,hello,1e3,outlet 1", Row("outlet 1", 1000.0, 5.0)),
        ('"time","power"', '"10","0"', Row("wall", 10.0, 0.0)),
    ],
)
def test_columns(header: str, line: str, row: Row) -> None:
    assert parser(header).read(line) == row


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00z", 60.0),
        ("1970-01-01 01:01:00+01:00", 60.0),
        ("1970-01-01T01:01:00+0100", 60.0),
        ("1970-01-01T00:01:00.5Z", 60.5),
        ("1970-01-01T00:01:00.123456789Z", 60.123456),
    ],
)
def test_iso_times(text: str, time_s: float) -> None:
    row = parser().read(f"{text},1,wall")
    assert row is not None
    assert row.time_s == pytest.approx(time_s)


def test_a_time_without_an_offset_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("TZ", "XYZ-2")
        time.tzset()
        row = parser().read("1970-01-01T02:01:00,1,wall")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row is not None
    assert row.time_s == 60.0


def test_empty_lines_are_skipped() -> None:
    assert parser().read("  \r") is None


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("watts,domain", "no column time"),
        ("time,volts", "no column watts"),
        ("1700000000,12.5", "no column time"),
        ("time,watts,power", "two columns for watts: watts and power"),
        ('time,"watts', "not a line of CSV"),
    ],
)
def test_bad_headers(header: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RowParser().read(header)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("10,abc,wall", "the power 'abc' is not a number"),
        ("10,,wall", "the power '' is not a number"),
        ("10,1_0,wall", "the power '1_0' is not a number"),
        ("10,nan,wall", "the power 'nan' is not a finite number"),
        ("10,inf,wall", "the power 'inf' is not a finite number"),
        ("10,1e999,wall", "not a finite number"),
        ("10,-1,wall", "the power '-1' is not a finite number of watts from 0 up"),
        ("soon,1,wall", "the time 'soon' is neither seconds since 1970 nor ISO 8601"),
        (",1,wall", "the time '' is neither"),
        ("nan,1,wall", "the time 'nan' is not finite"),
        ("1700000000000,1,wall", "is it in milliseconds"),
        ("2024-13-01T00:00:00Z,1,wall", "neither"),
        ("10,1", "the row has 2 columns, the header 3"),
        ("10,1,wall,2", "the row has 4 columns, the header 3"),
        ("10,1,", "'' is not the name of a domain"),
        ("10,1,a\x1b[2J", "is not the name of a domain"),
        ("10,1," + "x" * 65, r"\.\.\.' is not the name of a domain"),
        ('10,1,"wall', "not a line of CSV"),
    ],
)
def test_bad_rows(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parser().read(line)


def test_time_advances_for_each_domain_by_itself() -> None:
    rows = parser()
    rows.read("10,1,a")
    rows.read("5,1,b")
    rows.read("11,1,a")
    with pytest.raises(ValueError, match=r"the time of a runs backwards by 0\.5 s"):
        rows.read("10.5,1,a")
    with pytest.raises(ValueError, match="the time of b stands still"):
        rows.read("5,1,b")


def test_domains_are_limited_and_can_be_closed() -> None:
    rows = parser()
    for number in range(MAX_DOMAINS):
        rows.read(f"1,1,outlet {number}")
    with pytest.raises(ValueError, match="more than 64 domains"):
        rows.read("1,1,one more")
    rows.close_domains()
    assert rows.read("2,1,outlet 0") is not None
    with pytest.raises(ValueError, match="the domain late was not in the log"):
        rows.read("2,1,late")
