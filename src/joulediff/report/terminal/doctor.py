"""A checkup on a terminal: each meter, the idle power of each domain, and a verdict."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from joulediff.model.measurement import Checkup, MeterReport
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.measurement_tables import idle_texts, meter_table


def print_checkup(found: Checkup, console: Console) -> None:
    """Print the result of `doctor`."""
    table = [to_table(meter_table(found), console.width)] if any(report.domains for report in found.meters) else []
    missing = [_missing(report) for report in found.meters if not report.available]
    idle = [Text(text) for text in idle_texts(found)]
    style = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    verdict = Text(found.verdict[0].upper() + found.verdict[1:] + ".", style=style)
    print_parts(console, *table, *missing, "", *idle, *bullets(found.advice, "!", "yellow"), verdict)


def _missing(report: MeterReport) -> Group:
    line = Text(f"{report.name}: {report.reason}", style="dim")
    fix = [Padding(Text(report.fix, style="dim"), (0, 0, 0, 2))] if report.fix else []
    return Group(line, *fix)
