"""A measurement and a checkup as tables and sentences: domains, devices and meters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from joulediff.model.measurement import BlockMeasurement, Checkup, DeviceState, Measurement
from joulediff.model.units import format_power, format_share, format_si
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.short_texts import energy_text, format_interval

# Fewer page faults a step than this are those of Python and of joulediff.
SHOWN_FAULTS = 1.0


def domain_table(found: Measurement) -> TextTable:
    """Return the energy of each domain at work, and their total if several are counted."""
    shown = {name: domain for name, domain in found.domains.items() if not domain.rested}
    rows = [
        [
            name,
            format_interval(domain.energy),
            energy_text(domain.net_energy),
            format_power(domain.power_w),
            format_power(domain.idle.power_w) if domain.idle else "?",
            domain.energy.source + ("" if domain.counted else ", not added"),
        ]
        for name, domain in shown.items()
    ]
    emphasis: list[Emphasis] = ["" if domain.counted else "minor" for domain in shown.values()]
    if sum(d.counted for d in found.domains.values()) > 1:
        net = energy_text(found.net_energy)
        rows.append(["total", format_interval(found.energy), net, "", "", found.energy.source])
        emphasis.append("total")
    names, energies, nets, powers, idles, sources = zip(*rows, strict=True)
    columns = (
        Column("domain", names),
        Column("energy a step", energies, is_right=True),
        Column("net of idle", nets, is_right=True),
        Column("power", powers, is_right=True),
        Column("idle", idles, is_right=True),
        Column("source", sources, wraps=True),
    )
    return TextTable(columns, tuple(emphasis))


def block_table(found: BlockMeasurement) -> TextTable:
    """Return the energy of each domain in a block; at least one."""
    shown = list(found.domains.items())
    rows = [
        [name, format_interval(each.energy), format_power(each.power_w), each.energy.source, each.device]
        for name, each in shown
    ]
    names, energies, powers, sources, devices = zip(*rows, strict=True)
    columns = (
        Column("domain", names),
        Column("energy", energies, is_right=True),
        Column("power", powers, is_right=True),
        Column("source", sources, spare=0),
        Column("device", devices, cut="end", is_minor=True),
    )
    return TextTable(columns, tuple("" if each.counted else "minor" for _, each in shown))


def meter_table(found: Checkup) -> TextTable:
    """Return the domains of all meters; at least one."""
    rows = []
    emphasis: list[Emphasis] = []
    for report in found.meters:
        learned = {each.key: each for each in report.learned}
        for domain in report.domains:
            known = learned.get(domain.key)
            is_metered = domain.source == "metered"
            unsure = "" if known else " ?"
            period = f"{format_si(domain.period_s, 's', digits=3)}{unsure}" if is_metered else "-"
            resolution = f"{format_si(domain.resolution_j, 'J', digits=2)}{unsure}" if is_metered else "-"
            costs = f"{format_share(known.overhead_share)} of a core" if known else "?"
            rows.append([report.name, domain.name, domain.kind, period, resolution, costs, domain.source])
            emphasis.append("" if is_metered else "minor")
    names, domains, kinds, periods, resolutions, costs_all, sources = zip(*rows, strict=True)
    columns = (
        Column("meter", names),
        Column("domain", domains),
        Column("kind", kinds),
        Column("period", periods, is_right=True),
        Column("resolution", resolutions, is_right=True),
        Column("sampling cost", costs_all, is_right=True),
        Column("source", sources),
    )
    return TextTable(columns, tuple(emphasis))


def device_texts(found: Measurement) -> Iterator[str]:
    """Yield a sentence for each device that was measured, and one for those that were idle."""
    devices = {name: d.device for name, d in found.domains.items() if not d.rested}
    for name, device in devices.items():
        yield f"{name}: {device}{_state_text(name, found.states)}"
    if resting := [name for name, d in found.domains.items() if d.rested]:
        verb = "was" if len(resting) == 1 else "were"
        yield f"{', '.join(resting)} {verb} idle while the program ran: not added"
    minor, major = found.minor_faults or 0.0, found.major_faults or 0.0
    if minor >= SHOWN_FAULTS or major >= SHOWN_FAULTS:
        yield f"page faults of a step: {minor:,.0f} that took memory, {major:,.0f} that read from a disk"


def idle_texts(found: Checkup) -> Iterator[str]:
    """Yield the idle power of each domain, with its device."""
    domains = [domain for report in found.meters for domain in report.domains]
    for name, idle in found.quiet.idle.items():
        device = next((d.device for d in domains if d.name == name), "")
        text = f"{name} idles at {format_power(idle.power_w)}"
        if any(d.name == name and d.source == "metered" for d in domains):
            text += f" ± {format_share(idle.spread_share)}"
        yield f"{text}  {device}{_state_text(name, found.quiet.states)}"


def _state_text(name: str, states: Iterable[DeviceState]) -> str:
    """Return the clock and the temperature of a domain's device: `, 1980 MHz, 41 °C`; empty if unknown."""
    state = next((each for each in states if each.domain == name), None)
    if state is None:
        return ""
    clock = f", {state.clock_mhz:.0f} MHz" if state.clock_mhz else ""
    return clock + (f", {state.temperature_c:.0f} °C" if state.temperature_c is not None else "")
