"""Records as text for a terminal. The same facts as the JSON, a screen at most.

Every line fits the width it is given; what is noise is folded, what is doubtful comes last and stays in sight.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulediff.model.energy import Energy
from joulediff.model.measurement import Checkup, DeviceState, DomainEnergy, Measurement, MeterReport
from joulediff.model.units import format_energy, format_power, format_share, format_si, format_time
from joulediff.report.sanitize import plain_text


def print_measurement(found: Measurement, console: Console) -> None:
    """Print one measurement."""
    print_parts(console, headline(found), "", _domain_table(found), *_footer(found))


def print_checkup(found: Checkup, console: Console) -> None:
    """Print what `doctor` found."""
    table = [_meter_table(found)] if any(report.domains for report in found.meters) else []
    missing = [_missing(report) for report in found.meters if not report.available]
    style = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    verdict = Text(found.verdict[0].upper() + found.verdict[1:] + ".", style=style)
    print_parts(console, *table, *missing, "", *_quiet_lines(found), verdict)


def format_interval(energy: Energy) -> str:
    """Return an energy with the half width of its interval: `32.10 mJ ± 0.9%`."""
    return f"{format_energy(energy.joules)} ± {format_share(energy.half_width_share)}"


def print_parts(console: Console, *parts: RenderableType) -> None:
    """Print without the blanks that pad lines to the full width: they would travel with a copied report."""
    for line in console.render_lines(Group(*parts), pad=False):
        text = Text.assemble(*((plain_text(segment.text), segment.style or "") for segment in line), end="")
        text.rstrip()
        console.print(text, soft_wrap=True, end="\n")


def headline(found: Measurement) -> Text:
    """Return a measurement in one line."""
    text = Text(no_wrap=False)
    text.append(found.label, style="bold")
    text.append("  ")
    text.append(f"{format_interval(found.energy)} a step", style="bold cyan")
    windows = "1 window" if found.repeats == 1 else f"{found.repeats} windows"
    steps = "1 step" if found.steps == 1 else f"{found.steps:,} steps"
    text.append(f"   {format_time(found.step_s)} a step   {steps} in {windows}", style="dim")
    return text


def _domain_table(found: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("domain", "energy a step", "net of idle", "power", "idle", "source"):
        table.add_column(name, justify="left" if name in ("domain", "source") else "right", no_wrap=name != "source")
    for name, domain in found.domains.items():
        if not domain.rested:
            table.add_row(*_domain_row(name, domain), style=None if domain.counted else "dim")
    if sum(d.counted for d in found.domains.values()) > 1:
        net = format_energy(found.net_energy.joules) if found.net_energy else "?"
        table.add_row("total", format_interval(found.energy), net, "", "", found.energy.source, style="bold")
    return table


def _domain_row(name: str, domain: DomainEnergy) -> list[str]:
    net = format_energy(domain.net_energy.joules) if domain.net_energy else "?"
    idle = format_power(domain.idle.power_w) if domain.idle else "?"
    source = domain.energy.source + ("" if domain.counted else ", not added")
    return [name, format_interval(domain.energy), net, format_power(domain.power_w), idle, source]


def device_lines(found: Measurement) -> Iterable[Text]:
    """Yield a line on each device that was measured, and one on those that rested."""
    devices = {name: d.device for name, d in found.domains.items() if not d.rested}
    for name, device in devices.items():
        yield Text(f"{name}: {device}{_state(name, found.states)}", style="dim")
    if resting := [name for name, d in found.domains.items() if d.rested]:
        yield Text(f"{', '.join(resting)} rested while the program ran: not added", style="dim")


def _footer(found: Measurement) -> Iterable[RenderableType]:
    yield from device_lines(found)
    for warning in found.warnings:
        yield bullet("!", warning, "yellow")
    if not found.trustworthy:
        yield Text("Not trustworthy: see above.", style="bold yellow")


def _state(name: str, states: Iterable[DeviceState]) -> str:
    for state in states:
        if state.domain == name:
            clock = f", {state.clock_mhz:.0f} MHz" if state.clock_mhz else ""
            return clock + (f", {state.temperature_c:.0f} °C" if state.temperature_c is not None else "")
    return ""


def _meter_table(found: Checkup) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("meter", "domain", "kind", "new value", "resolution", "sampling costs", "source"):
        right = name in ("new value", "resolution", "sampling costs")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for report in found.meters:
        learned = {each.key: each for each in report.learned}
        for domain in report.domains:
            known = learned.get(domain.key)
            # An estimate has no sensor to be slow or coarse.
            doubt = "" if known else " ?"
            sensor = [f"{format_si(domain.period_s, 's', digits=3)}{doubt}"]
            sensor += [f"{format_si(domain.resolution_j, 'J', digits=2)}{doubt}"]
            table.add_row(
                report.name,
                domain.name,
                domain.kind,
                *(sensor if domain.source == "metered" else ["-", "-"]),
                f"{format_share(known.overhead_share)} of a core" if known else "?",
                domain.source,
                style=None if domain.source == "metered" else "dim",
            )
    return table


def _missing(report: MeterReport) -> Group:
    line = Text(f"{report.name}: {report.reason}", style="dim")
    fix = [Padding(Text(report.fix, style="dim"), (0, 0, 0, 2))] if report.fix else []
    return Group(line, *fix)


def _quiet_lines(found: Checkup) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for name, idle in found.quiet.idle.items():
        device = next((d.device for r in found.meters for d in r.domains if d.name == name), "")
        text = f"{name} rests at {format_power(idle.power_w)}"
        if any(d.name == name and d.source == "metered" for r in found.meters for d in r.domains):
            text += f" ± {format_share(idle.spread_share)}"
        lines.append(Text(f"{text}  {device}{_state(name, found.quiet.states)}"))
    lines += [bullet("!", advice, "yellow") for advice in found.advice]
    return lines


def bullet(mark: str, text: str, style: str) -> Table:
    """Return a text behind a mark, with its further lines under its first."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return grid
