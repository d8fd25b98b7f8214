"""A step at several sizes as tables and sentences.

An order of growth is named only if the record settles it; else the row says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from string import ascii_letters

from joulediff.model.apis.scaling import Growth, PowerLaw, Scaling, SizePoint
from joulediff.model.energy import Amount, Energy
from joulediff.model.units import format_energy, format_power, format_share, format_time
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.scaling.plot import Series, legend, plot
from joulediff.report.views.short_texts import count_text, energy_text, format_interval

_PLOT_HEIGHT = 12
_WHOLE = "step"
_SHOWN = {"energy": format_energy, "net energy": format_energy, "time": format_time, "power": format_power}


def headline(found: Scaling) -> str:
    """Return the order of growth of the energy and the time in one line."""
    sizes = count_text(len(found.points), "size")
    if not found.points:
        return f"{found.label}  no size was measured"
    first, last = found.points[0].size, found.points[-1].size
    energy, time = found.growth("energy"), found.growth("time")
    grows = f"energy grows as {order_text(energy)}, time as {order_text(time)}" if energy and time else ""
    return f"{found.label}  {grows}   {sizes}, n = {first:,} to {last:,}"


def size_table(found: Scaling) -> TextTable:
    """Return a row for each size, and one for the first size again."""
    points = [*found.points, *([found.again] if found.again is not None else [])]
    sizes = [f"{each.size:,}{' again' if each is found.again else ''}" for each in points]
    measured = [each.measured for each in points]
    powers = [each.energy.joules / each.step_s if each.step_s > 0 else None for each in measured]
    emphasis: list[Emphasis] = [
        "minor" if each is found.again else "" if each.measured.trustworthy else "warning" for each in points
    ]
    columns = (
        Column("n", sizes, is_right=True),
        Column("energy a step", [format_interval(each.energy) for each in measured], is_right=True),
        Column("net of idle", [energy_text(each.net_energy) for each in measured], is_right=True, spare=0),
        Column("time a step", [format_time(each.step_s) for each in measured], is_right=True),
        Column("power", ["?" if each is None else format_power(each) for each in powers], is_right=True),
        Column("energy / n", [energy_text(each.energy_per_unit) for each in points], is_right=True),
        *_domain_columns(points),
    )
    return TextTable(columns, tuple(emphasis))


def _domain_columns(points: list[SizePoint]) -> Iterator[Column]:
    """Yield the energy of each domain, if there are several."""
    names = list(dict.fromkeys(name for each in points for name in each.measured.domains))
    if len(names) < 2:
        return
    for at, name in enumerate(names):
        yield Column(
            name, [energy_text(_energy_in(each, name)) for each in points], is_right=True, spare=len(names) - at
        )


def _energy_in(point: SizePoint, domain: str) -> Energy | None:
    found = point.measured.domains.get(domain)
    return None if found is None or found.rested else found.energy


def has_growth(found: Scaling) -> bool:
    """Return whether any quantity has a fit."""
    return any(each.law is not None for each in found.growths)


def growth_table(found: Scaling) -> TextTable:
    """Return a row for each quantity: its exponent, its constant part and its order."""
    rows = [
        [
            each.quantity,
            each.domain or _WHOLE,
            order_text(each),
            "" if each.law is None else _exponent_text(each.law),
            "" if each.law is None else _constant_text(each, each.law),
            "" if each.law is None else _equal_text(each.law, found),
        ]
        for each in found.growths
    ]
    quantities, domains, orders, exponents, constants, equals = zip(*rows, strict=True)
    columns = (
        Column("", quantities),
        Column("of", domains),
        Column("order of growth", orders),
        Column("exponent of n", exponents),
        Column("constant part", constants, spare=1),
        Column("growing part is larger", equals, spare=0, short_head="grows"),
    )
    return TextTable(columns)


def order_text(growth: Growth) -> str:
    """Return an order of growth: `n log n`, `between n and n^1.5`, `?` if it is not known."""
    if not growth.orders:
        return "?"
    names = ["constant" if each == "1" else each for each in growth.orders]
    return names[0] if len(names) == 1 else f"between {names[0]} and {names[-1]}"


def _exponent_text(law: PowerLaw) -> str:
    if law.exponent is None:
        return "0"
    return f"{law.exponent.value:.2f} ({law.exponent.low:.2f} .. {law.exponent.high:.2f})"


def _constant_text(growth: Growth, law: PowerLaw) -> str:
    part: Amount = law.constant
    show = _SHOWN[growth.quantity]
    return f"at most {show(part.high)}" if part.low <= 0 else show(part.value)


def _equal_text(law: PowerLaw, found: Scaling) -> str:
    if law.equal_at is None or not found.points:
        return ""
    if law.equal_at <= found.points[0].size:
        return "everywhere"
    if law.equal_at >= found.points[-1].size:
        return "nowhere here"
    return f"from n = {law.equal_at:,.0f}"


def _reason_texts(found: Scaling) -> list[str]:
    """Return why an order of growth is not known, for the quantities of the same reason together."""
    reasons: dict[str, list[str]] = {}
    for each in found.growths:
        if each.reason is not None:
            reasons.setdefault(each.reason, []).append(
                each.quantity if each.domain is None else f"{each.quantity} of {each.domain}"
            )
    return [f"order of growth of {', '.join(names)} is not known: {reason}" for reason, names in reasons.items()]


def warning_texts(found: Scaling) -> list[str]:
    """Return how the series ended, and the warnings of the series and of its measurements."""
    texts = []
    if found.ended is not None:
        why = "out of memory" if found.ended.out_of_memory else "failed"
        texts.append(f"the series ended before n = {found.ended.size:,} ({why}): {found.ended.why}")
    texts += found.warnings
    sizes: dict[str, list[int]] = {}
    for point in found.points:
        for warning in point.measured.warnings:
            sizes.setdefault(warning, []).append(point.size)
    for warning, at in sizes.items():
        is_everywhere = len(at) == len(found.points)
        texts.append(warning if is_everywhere else f"n = {', '.join(f'{each:,}' for each in at)}: {warning}")
    return texts


def note_texts(found: Scaling) -> list[str]:
    """Return the devices, how far the fit is from the energies, and why orders of growth are not known."""
    return [*_device_texts(found), *_misfit_texts(found), *_reason_texts(found)]


def _device_texts(found: Scaling) -> list[str]:
    domains = found.points[-1].measured.domains if found.points else {}
    return [
        f"{name}: {each.device}, {each.energy.source}{'' if each.counted else ', not added'}"
        for name, each in domains.items()
        if not each.rested
    ]


def plots(found: Scaling, width: int) -> Iterator[list[str]]:
    """Yield the plots of energy and time against size, each with its title and legend."""
    step_energy, step_time = found.growth("energy"), found.growth("time")
    energy = [Series(_WHOLE, "o", [(e.size, e.measured.energy.joules) for e in found.points], _curve(step_energy))]
    marks = iter(ascii_letters.replace("o", ""))
    for name in dict.fromkeys(each.domain for each in found.growths if each.domain is not None):
        points = [(e.size, part.joules) for e in found.points if (part := _energy_in(e, name)) is not None]
        energy.append(Series(name, _mark(name, energy, marks), points))
    time = [Series(_WHOLE, "o", [(e.size, e.measured.step_s) for e in found.points], _curve(step_time))]
    for title, series, show in (("energy a step", energy, format_energy), ("time a step", time, format_time)):
        lines = plot(series, width=width, height=_PLOT_HEIGHT, show_y=show)
        if lines:
            yield [f"{title} against n, both logarithmic:   {legend(series, lines)}", *lines]


def _mark(name: str, taken: list[Series], others: Iterator[str]) -> str:
    used = {each.mark for each in taken}
    return name[0] if name[0] not in used and name[0] != "*" else next(each for each in others if each not in used)


def _curve(growth: Growth | None) -> Callable[[float], float] | None:
    return None if growth is None or growth.law is None else growth.law.value_at


def _misfit_texts(found: Scaling) -> list[str]:
    energy = found.growth("energy")
    if energy is None or energy.law is None:
        return []
    return [f"the energies are {format_share(energy.law.misfit_share)} from the fit (root mean square)"]
