"""Two runs of scripts on a terminal: which uses more energy, and in which APIs and lines.

All text is sanitized first: the recordings may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.model.apis.api_diff import ApiDiff
from joulediff.report.limits import TOP_FINDINGS
from joulediff.report.sanitize import plain_record
from joulediff.report.terminal.diff import GATE_STYLES, condition_bullets
from joulediff.report.terminal.table import cut_end, to_table
from joulediff.report.terminal.text import bullet, bullets, print_parts
from joulediff.report.views.apis.diff_sentences import (
    APIS_TITLE,
    LEDGER_TITLE,
    LINES_TITLE,
    ONCE,
    changes_text,
    gate_advice,
    headline,
    side_texts,
    warning_texts,
)
from joulediff.report.views.apis.diff_tables import api_diff_table, ledger_diff_table, line_diff_table
from joulediff.report.views.columns import TextTable
from joulediff.report.views.gate import gate_text

_MAX_WARNINGS = 4
_REST = "--all shows them"


def print_api_diff(diff: ApiDiff, console: Console, *, top: int = TOP_FINDINGS, every: bool = False) -> None:
    """Print a comparison: `top` APIs and lines that differ, or with `every` all of them."""
    plain = plain_record(diff)
    width = console.width
    print_parts(
        console,
        *_sides(plain, width),
        *condition_bullets(plain.condition_differences, comparable=plain.comparable, every=every),
        *bullets(warning_texts(plain), "!", "yellow", most=None if every else _MAX_WARNINGS, rest=_REST),
        *bullets(plain.notes, "-", "dim"),
        *_sentences(plain),
        *_table(api_diff_table(plain, top=top, every=every), APIS_TITLE, width),
        *_table(line_diff_table(plain, top=top, every=every), LINES_TITLE, width),
        *_table(ledger_diff_table(plain), LEDGER_TITLE, width),
        *([] if plain.next is None else [Text(f"next: {plain.next}", style="cyan")]),
    )


def _sides(diff: ApiDiff, width: int) -> Iterator[RenderableType]:
    for letter, (label, energy, about) in zip("AB", side_texts(diff), strict=True):
        text = Text(f"{letter} ", style="dim", no_wrap=True, overflow="ellipsis")
        text.append(f"{cut_end(label, max(width // 5, 8))}  ", style="bold")
        text.append(f"{energy}  ", style="cyan")
        yield text.append(about, style="dim")


def _sentences(diff: ApiDiff) -> Iterator[RenderableType]:
    if diff.gate is not None:
        yield Text(gate_text(diff.gate), style=GATE_STYLES[diff.gate.verdict])
        advice = gate_advice(diff, diff.gate)
        if advice is not None:
            yield bullet("!", advice, "yellow")
    if diff.comparable:
        yield Text(headline(diff), style="bold")
        yield Text(changes_text(diff))
        yield Text(ONCE, style="dim")


def _table(table: TextTable | None, title: str, width: int) -> Iterator[RenderableType]:
    if table is not None:
        yield from ("", Text(title, style="dim"), to_table(table, width))
