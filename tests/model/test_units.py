from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.model.units import format_energy, format_power, format_share, format_si, format_time, parse_share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2825, "282.5 mJ"),
        (1.0, "1.000 J"),
        (0.0, "0 J"),
        (-0.0321, "-32.10 mJ"),
        (12.345, "12.35 J"),
        (7.25e-9, "7.250 nJ"),
        (3e-10, "0.300 nJ"),
        (12_346.0, "12.35 kJ"),
        (4.2e7, "42.00 MJ"),
        (999.96, "1.000 kJ"),
        (0.99996, "1.000 J"),
        (math.nan, "? J"),
        (math.inf, "? J"),
        (-1.7976e308, "? J"),
    ],
)
def test_si_prefix(value: float, text: str) -> None:
    assert format_si(value, "J") == text


def test_si_with_fewer_digits() -> None:
    assert format_si(0.0203, "s", digits=3) == "20.3 ms"
    assert format_si(5.3e-6, "J", digits=2) == "5.3 µJ"


@given(st.floats(min_value=1e-9, max_value=9e8))
def test_si_is_read_back_within_its_digits(value: float) -> None:
    number, unit = format_si(value, "J").split()
    factor = {"MJ": 1e6, "kJ": 1e3, "J": 1.0, "mJ": 1e-3, "µJ": 1e-6, "nJ": 1e-9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=6e-4)
    assert len(number.replace(".", "")) == 4 or unit == "MJ"


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0.0144, "14.40 mJ"),
        (612.4, "612.4 J"),
        (999.94, "999.9 J"),
        (999.96, "1,000 J"),
        (1234.5, "1,234 J"),
        (-45_678.0, "-45,678 J"),
        (999_999.0, "999,999 J"),
        (999_999.9, "1.000 MJ"),
        (2.5e6, "2.500 MJ"),
        (math.nan, "? J"),
    ],
)
def test_energy(joules: float, text: str) -> None:
    assert format_energy(joules) == text


@pytest.mark.parametrize(
    ("watts", "text"),
    [(698.04, "698.0 W"), (0.05, "0.1 W"), (0.031, "31 mW"), (0.0, "0.0 W"), (-2.0, "-2.0 W"), (math.inf, "? W")],
)
def test_power(watts: float, text: str) -> None:
    assert format_power(watts) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.016e-3, "2.016 ms"),
        (1.5, "1.500 s"),
        (59.0, "59.00 s"),
        (90.0, "90 s"),
        (1200.0, "20 min"),
        (math.inf, "? s"),
    ],
)
def test_time(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.009, "0.9%"), (0.0123, "1.2%"), (0.125, "12%"), (2.0, "200%"), (0.0, "0%"), (math.nan, "?%"), (math.inf, "?%")],
)
def test_share(share: float, text: str) -> None:
    assert format_share(share) == text


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 2 % ", 0.02), ("150%", 1.5), ("0.5%", 0.005)]
)
def test_parse_share(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "five", "0", "0%", "-5%", "-0.1", "nan", "inf", "inf%", "5", "1", "5%%"])
def test_parse_share_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_share(text)
