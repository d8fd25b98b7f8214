"""The energy of a test, the limits that a test must keep, and the verdict.

A test fails only if its interval is surely above the limit; an unknown energy exceeds nothing and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from joulediff.model.energy import Energy, add_common, scale, widen
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement
from joulediff.model.stats import half_width
from joulediff.model.units import format_energy, format_share, parse_energy

Verdict = Literal["kept", "exceeded", "unsure"]

_MARK_FIX = 'write @pytest.mark.joules(max="0.5 J"), with strict=True or repeat=True where they are wanted'
# The spread between repeats needs as many values.
LEAST_BATCHES = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """The arguments of the mark."""

    max_j: float | None = None
    strict: bool = False
    """Fail also if it cannot be told whether the limit is kept."""
    most_runs: float = 1
    """How often the test may run, at most."""


@dataclass(frozen=True, slots=True)
class TestEnergy:
    """The energy of the call of one test, without its fixtures; the mean, if it was repeated."""

    __test__ = False  # pytest collects classes of this name

    energy: Energy | None
    seconds: float
    runs: int
    verdict: Verdict | None = None
    """None without a limit."""
    note: str | None = None
    """The reason for a doubt, or for no energy."""
    is_shared: bool = False
    """Other tests ran at the same time, and the meter saw them too: the energy is an upper bound."""


def read_mark(arguments: Sequence[object], named: Mapping[str, object]) -> Limit:
    """Return the limit of a mark; raises JoulediffError for arguments that it does not have."""
    given = dict(zip(("max",), arguments, strict=False)) | dict(named)
    unknown = [*given.keys() - {"max", "strict", "repeat"}, *map(repr, arguments[1:])]
    if unknown:
        raise JoulediffError(f"the mark joules has no argument {', '.join(sorted(unknown))}", fix=_MARK_FIX)
    most = given.get("max")
    try:
        max_j = None if most is None else parse_energy(str(most))
    except ValueError:
        raise JoulediffError(f"the mark joules has max={most!r:.40}, which is no energy", fix=_MARK_FIX) from None
    strict, repeat = given.get("strict", False), given.get("repeat", False)
    if not isinstance(strict, bool) or not isinstance(repeat, int) or repeat < 0:
        raise JoulediffError(
            f"the mark joules has strict={strict!r:.40}, repeat={repeat!r:.40}",
            fix="strict is True or False; repeat is True, or the number of runs",
        )
    return Limit(max_j, strict, float("inf") if repeat is True else max(1, int(repeat)))


def judge_limit(energy: Energy | None, max_j: float) -> Verdict:
    """Return whether an energy is surely at most `max_j`, or surely more."""
    if energy is None:
        return "unsure"
    return "exceeded" if energy.low > max_j else "kept" if energy.high <= max_j else "unsure"


def judge_baseline(energy: Energy | None, before: Energy, tolerance: float) -> Verdict:
    """Return whether an energy is surely more than before, and by more than the tolerance.

    It is within the interval of before, or not much above: then it is kept.
    """
    if energy is None:
        return "unsure"
    is_more = energy.joules > (1 + tolerance) * before.joules
    if not is_more:
        return "kept"
    return "exceeded" if energy.low > before.high else "unsure"


def of_block(found: BlockMeasurement, *, is_shared: bool) -> TestEnergy:
    """Return the energy of a test that ran once. `is_shared`: other tests ran meanwhile, and the meter saw them too."""
    return _shared(TestEnergy(found.energy, found.seconds, 1, note=_first(found.warnings)), is_shared=is_shared)


def of_batches(batches: Sequence[tuple[BlockMeasurement, int]], *, is_shared: bool) -> TestEnergy:
    """Return the mean of a test that ran several times in each batch, with the spread between the batches."""
    runs = sum(count for _, count in batches)
    seconds = sum(found.seconds for found, _ in batches) / runs
    energies = [found.energy for found, _ in batches if found.energy is not None]
    if len(energies) < len(batches):
        return TestEnergy(None, seconds, runs, note=_first([w for found, _ in batches for w in found.warnings]))
    mean = scale(add_common(energies), 1 / runs)
    if len(batches) >= LEAST_BATCHES:
        each_j = [energy.joules / count for energy, (_, count) in zip(energies, batches, strict=True)]
        mean = widen(mean, half_width(each_j, known_sigma=0.0))
    energy = None if mean is None else mean.not_negative()
    return _shared(TestEnergy(energy, seconds, runs), is_shared=is_shared)


def limit_text(found: TestEnergy, max_j: float) -> str:
    """Return why a test fails: its energy and its limit."""
    if found.energy is None:
        return f"the energy of the test is not known ({found.note or 'no meter gave a number'}), and its mark is strict"
    verb = "used" if found.verdict == "exceeded" else "may have used"
    return f"the test {verb} {energy_text(found.energy)}, more than its limit of {format_energy(max_j)}"


def baseline_text(energy: Energy, before: Energy, tolerance: float, file: str) -> str:
    """Return why a test fails: its energy now and before."""
    ratio = f"{energy.joules / before.joules:.2f}x its baseline" if before.joules > 0 else "and its baseline"
    return (
        f"the test used {energy_text(energy)}, {ratio} of {energy_text(before)} in {file}; "
        f"the tolerance is {format_share(tolerance)}"
    )


def energy_text(energy: Energy) -> str:
    """Return an energy with the ends of its interval: `1.24 J (1.21 J .. 1.26 J)`."""
    return f"{format_energy(energy.joules)} ({format_energy(energy.low)} .. {format_energy(energy.high)})"


def to_plain(found: TestEnergy) -> dict[str, Any]:
    """Return plain data, which reports of pytest carry between processes."""
    return asdict(found)


def from_plain(plain: Mapping[str, Any]) -> TestEnergy:
    """Return the energy of a test from `to_plain`."""
    energy = None if plain["energy"] is None else Energy(**plain["energy"])
    return TestEnergy(**{each.name: plain[each.name] for each in fields(TestEnergy)} | {"energy": energy})


def _shared(found: TestEnergy, *, is_shared: bool) -> TestEnergy:
    """Return the energy as an upper bound, if a meter saw other tests too. An estimate sees its own process only."""
    energy = found.energy
    if energy is None or not is_shared or energy.source == "estimated":
        return found
    return replace(found, energy=Energy(energy.joules, 0.0, energy.high, energy.source), is_shared=True)


def _first(warnings: Sequence[str]) -> str | None:
    return warnings[0] if warnings else None
