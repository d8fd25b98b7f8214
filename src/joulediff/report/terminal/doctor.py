"""A checkup on a terminal: each meter, the idle power of each domain, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from joulediff.model.measurement import Checkup, MeterReport
from joulediff.model.units import format_power, format_share, format_si
from joulediff.report.terminal.measurement import state_text
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.columns import Column, Emphasis, TextTable


def print_checkup(found: Checkup, console: Console) -> None:
    """Print what `doctor` found."""
    table = [to_table(_meters(found), console.width)] if any(report.domains for report in found.meters) else []
    missing = [_missing(report) for report in found.meters if not report.available]
    style = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    verdict = Text(found.verdict[0].upper() + found.verdict[1:] + ".", style=style)
    print_parts(console, *table, *missing, "", *_idle(found), *bullets(found.advice, "!", "yellow"), verdict)


def _meters(found: Checkup) -> TextTable:
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
        Column("new value", periods, is_right=True),
        Column("resolution", resolutions, is_right=True),
        Column("sampling costs", costs_all, is_right=True),
        Column("source", sources),
    )
    return TextTable(columns, tuple(emphasis))


def _missing(report: MeterReport) -> Group:
    line = Text(f"{report.name}: {report.reason}", style="dim")
    fix = [Padding(Text(report.fix, style="dim"), (0, 0, 0, 2))] if report.fix else []
    return Group(line, *fix)


def _idle(found: Checkup) -> Iterator[RenderableType]:
    domains = [domain for report in found.meters for domain in report.domains]
    for name, idle in found.quiet.idle.items():
        device = next((d.device for d in domains if d.name == name), "")
        text = f"{name} idles at {format_power(idle.power_w)}"
        if any(d.name == name and d.source == "metered" for d in domains):
            text += f" ± {format_share(idle.spread_share)}"
        yield Text(f"{text}  {device}{state_text(name, found.quiet.states)}")
