"""Format quantities for people. No other module of the package does."""

from __future__ import annotations

import math
import re

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def format_si(value: float, unit: str, *, digits: int = 4) -> str:
    """Return `value` with an SI prefix and about `digits` digits: `282.5 mJ`."""
    value = float(f"{value:.{digits - 1}e}")  # 999.96 is 1.000 k, not 1000.0; the largest floats become infinite
    if not math.isfinite(value):
        return f"? {unit}"
    if value == 0:
        return f"0 {unit}"
    size = abs(value)
    factor, prefix = next((p for p in _PREFIXES if size >= p[0]), _PREFIXES[-1])
    scaled = value / factor
    whole = max(1, math.floor(math.log10(abs(scaled))) + 1) if scaled else 1
    return f"{scaled:.{max(0, digits - whole)}f} {prefix}{unit}"


def format_energy(joules: float) -> str:
    """Return joules as text. Kilojoules stay joules: totals are compared in one unit."""
    return f"{joules:,.0f} J" if 999.95 <= abs(joules) < 999_999.5 else format_si(joules, "J")


def format_power(watts: float) -> str:
    """Return watts with one decimal."""
    return f"{watts:.1f} W" if 0.05 <= abs(watts) < math.inf or watts == 0 else format_si(watts, "W", digits=2)


def format_time(seconds: float) -> str:
    """Return a duration as text."""
    if 60 <= seconds < math.inf:
        return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s"
    return format_si(seconds, "s")


def format_price(amount: float, currency: str) -> str:
    """Return an amount of money: with two decimals, or three digits if it is small."""
    digits = f"{amount:,.2f}" if abs(amount) >= 1 or amount == 0 else f"{amount:.3g}"
    return f"{digits} {currency}".rstrip() if math.isfinite(amount) else "?"


def format_mass(kilograms: float) -> str:
    """Return a mass: `3.128 kg`, `12.10 t`."""
    return format_si(kilograms / 1000, "t") if abs(kilograms) >= 999.95 else format_si(1000 * kilograms, "g")


def format_share(share: float) -> str:
    """Return a share as a percentage, with two significant digits below 10 %."""
    if not math.isfinite(share):
        return "?%"
    percent = 100 * share
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.2g}%"


def parse_price(text: str) -> tuple[float, str]:
    """Return the number and the currency of `0.25`, `0.25 EUR` or `$0.25`. Raises ValueError for anything else."""
    found = re.fullmatch(r"([^\d.+-]*)([\d.]+(?:e-?\d+)?)([^\d.]*)", text.strip())
    if found is None or (found[1] and found[3]) or not (found[1] + found[3]).isprintable():
        raise ValueError(text)
    return float(found[2]), (found[1] or found[3]).strip()


def parse_energy(text: str) -> float:
    """Return the joules of `0.5 J`, `500 mJ`, `2kJ` or `0.5`. Raises ValueError for anything else."""
    found = re.fullmatch(r"([\d.+]+(?:e[-+]?\d+)?)\s*(?:([nµumkM]?)J)?", text.strip())
    if found is None:
        raise ValueError(text)
    prefix = {"u": "µ", None: ""}.get(found[2], found[2])
    joules = float(found[1]) * next(factor for factor, name in _PREFIXES if name == prefix)
    if not 0 < joules < math.inf:
        raise ValueError(text)
    return joules


def parse_share(text: str) -> float:
    """Return the share written as `5%` or `0.05`. Raises ValueError for anything else.

    A bare `5` is refused: it more likely means 5 % than five times the whole.
    """
    number = float(text.strip().removesuffix("%"))
    share, limit = (number / 100, math.inf) if text.strip().endswith("%") else (number, 1.0)
    if not 0 < share < limit:
        raise ValueError(text)
    return share
