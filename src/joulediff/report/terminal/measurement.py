"""One measurement on a terminal: the energy of a step, of each domain, and what limits the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.model.measurement import DeviceState, Measurement
from joulediff.model.units import format_energy, format_power, format_time
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.amounts import count_text, format_interval
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.warnings import NOT_TRUSTWORTHY


def print_measurement(found: Measurement, console: Console) -> None:
    """Print one measurement."""
    print_parts(console, headline(found), "", to_table(_domains(found), console.width), *_footer(found))


def headline(found: Measurement) -> Text:
    """Return a measurement in one line."""
    text = Text(no_wrap=False)
    text.append(found.label, style="bold")
    text.append("  ")
    text.append(f"{format_interval(found.energy)} a step", style="bold cyan")
    steps = f"{count_text(found.steps, 'step')} in {count_text(found.repeats, 'window')}"
    text.append(f"   {format_time(found.step_s)} a step   {steps}", style="dim")
    return text


def device_lines(found: Measurement) -> Iterator[Text]:
    """Yield a line for each device that was measured, and one for those that rested."""
    devices = {name: d.device for name, d in found.domains.items() if not d.rested}
    for name, device in devices.items():
        yield Text(f"{name}: {device}{state_text(name, found.states)}", style="dim")
    if resting := [name for name, d in found.domains.items() if d.rested]:
        verb = "was" if len(resting) == 1 else "were"
        yield Text(f"{', '.join(resting)} {verb} idle while the program ran: not added", style="dim")


def state_text(name: str, states: Iterable[DeviceState]) -> str:
    """Return the clock and the temperature of a domain's device: `, 1980 MHz, 41 °C`; empty if unknown."""
    state = next((each for each in states if each.domain == name), None)
    if state is None:
        return ""
    clock = f", {state.clock_mhz:.0f} MHz" if state.clock_mhz else ""
    return clock + (f", {state.temperature_c:.0f} °C" if state.temperature_c is not None else "")


def _domains(found: Measurement) -> TextTable:
    shown = {name: domain for name, domain in found.domains.items() if not domain.rested}
    rows = [
        [
            name,
            format_interval(domain.energy),
            format_energy(domain.net_energy.joules) if domain.net_energy else "?",
            format_power(domain.power_w),
            format_power(domain.idle.power_w) if domain.idle else "?",
            domain.energy.source + ("" if domain.counted else ", not added"),
        ]
        for name, domain in shown.items()
    ]
    emphasis: list[Emphasis] = ["" if domain.counted else "minor" for domain in shown.values()]
    if sum(d.counted for d in found.domains.values()) > 1:
        net = format_energy(found.net_energy.joules) if found.net_energy else "?"
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


def _footer(found: Measurement) -> Iterator[RenderableType]:
    yield from device_lines(found)
    yield from bullets(found.warnings, "!", "yellow")
    if not found.trustworthy:
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")
