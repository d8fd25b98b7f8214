"""What many steps take, in sentences: kilowatt-hours, price and carbon dioxide, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterator

from joulediff.model.energy import ManySteps
from joulediff.model.units import format_mass, format_price, format_share, format_si

_NOT_INCLUDED = "nothing else of the machine or its building (PUE)"
# Above this, the zeros of a count are not countable.
_MOST_STEPS = 1e15


def many_steps_texts(found: ManySteps) -> Iterator[str]:
    """Yield the energy of many steps with its price and carbon dioxide, and what it is the energy of."""
    energy = found.energy_kwh
    half_kwh = max(energy.high - energy.value, energy.value - energy.low)
    share = format_share(half_kwh / energy.value) if energy.value > 0 else "?%"
    about = "estimated " if _is_estimated(found) else ""
    yield f"{_count(found)}: {', '.join([f'{about}{_energy_text(energy.value)} ± {share}', *_costs(found)])}"
    where = ", ".join(found.domains) or "the devices"
    yield f"{' and '.join(found.sources)} energy of {where}, with the idle power during the steps; {_NOT_INCLUDED}"


def many_steps_difference(found: ManySteps) -> Iterator[str]:
    """Yield how much more many steps of one side take than those of the other, and what that is the energy of."""
    energy = found.energy_kwh
    more, less, sign = ("B", "A", -1.0) if energy.value < 0 else ("A", "B", 1.0)
    low, high = sorted((sign * energy.low, sign * energy.high))
    interval = f"95% CI {_energy_text(low)} .. {_energy_text(high)}{', estimated' if _is_estimated(found) else ''}"
    if low <= 0:
        yield f"{_count(found)}: A and B may take the same energy ({more} - {less}: {interval})"
    else:
        amounts = ", ".join([_energy_text(sign * energy.value), *_costs(found, sign)])
        yield f"{_count(found)}: {more} takes {amounts} more than {less} ({interval})"
    yield f"{' and '.join(found.sources)} energy of the devices, with the idle power during the steps; {_NOT_INCLUDED}"


def _count(found: ManySteps) -> str:
    steps = found.scale.steps
    is_whole = steps == int(steps) and steps < _MOST_STEPS
    return f"{steps:,.0f} steps" if is_whole else f"{steps:g} steps"


def _energy_text(kwh: float) -> str:
    return format_si(1000 * kwh, "Wh")


def _costs(found: ManySteps, sign: float = 1.0) -> Iterator[str]:
    if found.price is not None:
        yield format_price(sign * found.price.value, found.scale.currency)
    if found.carbon_kg is not None:
        yield f"{format_mass(sign * found.carbon_kg.value)} CO2"


def _is_estimated(found: ManySteps) -> bool:
    return "estimated" in found.sources
