"""Numbers and names as short text: one unit for a column, rounding that keeps sums, counts, ratios, short names.

An unknown number is `?`, never zero.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from joulediff.frameworks.framework import kernel_namespaces
from joulediff.model.energy import Energy
from joulediff.model.run import Setting
from joulediff.model.units import format_energy

DIGITS = 4
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
# A larger ratio has more digits than a column has room for.
_MOST_RATIO = 1e6
# Joules or seconds: no step needs as much, so a larger number is a fault in the file.
_MOST = 1e15
_VALUE_CHARS = 40


def pick_unit(most: float, unit: str) -> tuple[float, str, int]:
    """Return the divisor, the unit with its prefix, and the decimal places that show `DIGITS` digits of `most`."""
    most = abs(most) if math.isfinite(most) else 0.0
    last = _PREFIXES[-1] if most else _PREFIXES[0]
    factor, prefix = next((p for p in _PREFIXES if most >= p[0]), last)
    return factor, prefix + unit, max(0, DIGITS - len(str(int(most / factor))))


def round_to_sum(values: Sequence[float | None], *, total: int | None = None) -> list[int | None]:
    """Return whole numbers that sum to `total`, by default to the rounded sum: the largest remainders round up.

    A value that is None or not finite is unknown and stays None.
    """
    known = {i: value for i, value in enumerate(values) if value is not None and math.isfinite(value)}
    whole = {i: math.floor(value) for i, value in known.items()}
    rests = {i: known[i] - whole[i] for i in known}
    if rests:
        left = round(sum(rests.values())) if total is None else total - sum(whole.values())
        every, more = divmod(left, len(rests))
        for place, i in enumerate(sorted(rests, key=lambda i: -rests[i])):
            whole[i] += every + (place < more)
    return [whole.get(i) for i in range(len(values))]


def format_places(units: int | None, places: int) -> str:
    """Return a number of units of the last place as text: 3123 is `3.123` with three places."""
    if units is None:
        return "?"
    whole, rest = divmod(abs(units), 10**places)
    return f"{'-' if units < 0 else ''}{whole:,}" + (f".{rest:0{places}d}" if places else "")


def energy_text(energy: Energy | None) -> str:
    """Return the value of an energy: `32.10 mJ`."""
    return "?" if energy is None else format_energy(energy.joules)


def shown_j(energy: Energy | None) -> float | None:
    """Return the joules to show: None if there is no energy, NaN if the number is a fault in the file."""
    if energy is None:
        return None
    return energy.joules if abs(energy.joules) <= _MOST else math.nan


def energies_in_one_unit(energies: Iterable[Energy | None]) -> list[str]:
    """Return energies in the unit of the largest one; only the last text names the unit."""
    return in_one_unit([shown_j(energy) for energy in energies])


def format_interval(energy: Energy) -> str:
    """Return an energy with the half width of its interval: `32.10 mJ ± 0.9%`."""
    return energy.interval_text


def ratio_text(ratio: float) -> str:
    """Return a ratio with enough decimal places to differ from 1: `4.43x`, `1.004x`."""
    if not 0.0 <= ratio < _MOST_RATIO:
        return "?x"
    places = 0 if ratio >= 100 else 1 if ratio >= 10 else 3 if 0.0 < abs(ratio - 1.0) < 0.015 else 2
    return f"{format_places(round(ratio * 10**places), places)}x"


def in_one_unit(values: Sequence[float | None], unit: str = "J") -> list[str]:
    """Return quantities in the unit of the largest one; only the last text names the unit."""
    known = [abs(value) for value in values if value is not None and abs(value) < _MOST]
    factor, name, places = pick_unit(max(known, default=0.0), unit)
    texts = [
        "?" if value is None or not abs(value) < _MOST else format_places(round(value * 10**places / factor), places)
        for value in values
    ]
    return [*texts[:-1], f"{texts[-1]} {name}"]


def count_text(number: int, word: str) -> str:
    """Return a count with its noun: `1 op`, `12 ops`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def with_count(name: str, count: int) -> str:
    """Return a name, followed by its count if that is more than one: `addmm ×48`."""
    return f"{name} ×{count:,}" if count > 1 else name


def value_text(value: Setting) -> str:
    """Return the value of a setting, short enough for one line."""
    return "not set" if value is None else shorten(str(value), _VALUE_CHARS)


def shorten(text: str, chars: int) -> str:
    """Return a text of at most `chars` characters; a longer one ends with an ellipsis."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def short_files(files: Iterable[str]) -> dict[str, str]:
    """Return the short name of each file: without its folders, or with one folder if two names are equal."""
    files = set(files)
    names = Counter(PurePath(file).name for file in files)
    return {file: "/".join(PurePath(file).parts[-1 if names[PurePath(file).name] == 1 else -2 :]) for file in files}


def short_kernel(name: str) -> str:
    """Return the name of a kernel without the namespaces that most kernels share.

    They would push the part that differs out of a narrow column.
    """
    shared = "|".join(("std", "cuda", *kernel_namespaces()))
    return re.sub(rf"^void |\b(?:{shared})::|\(anonymous namespace\)::|<unnamed>::", "", name)
