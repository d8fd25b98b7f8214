"""A diff on a terminal: warnings, which side uses more energy, a table of regions, and each finding with its proof.

All text of a diff is sanitized first: its recordings may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from joulediff.model.diff import ConditionDifference, Diff, GateVerdict
from joulediff.model.finding import Finding
from joulediff.report.limits import TOP_FINDINGS
from joulediff.report.sanitize import plain_record
from joulediff.report.terminal.measurement import amount_lines
from joulediff.report.terminal.table import (
    GAP,
    cut_end,
    fill_table,
    fit_columns,
    make_grid,
    text_room,
    to_table,
    widest,
)
from joulediff.report.terminal.text import bullet, bullets, print_parts
from joulediff.report.views.columns import Column
from joulediff.report.views.diff_sentences import (
    NOT_COMPARABLE,
    TRADEOFFS,
    books_text,
    condition_text,
    difference_texts,
    findings_text,
    headline,
    note_texts,
    side_texts,
    warning_texts,
)
from joulediff.report.views.diff_table import DiffLine, DiffTable, Part, diff_table
from joulediff.report.views.finding_sentences import Fact, file_names, finding_facts, mark_text, region_text, short_mark
from joulediff.report.views.gate import gate_advice, gate_text
from joulediff.report.views.many_steps import many_steps_difference
from joulediff.report.views.named_regions import TITLE as NAMED_REGIONS
from joulediff.report.views.named_regions import named_region_table
from joulediff.report.views.other_differences import (
    ALSO_DIFFERS,
    also_differs_texts,
    not_explained_facts,
    not_explained_title,
    places_of,
)

# More warnings, notes or other differences than this are counted instead, so that the result stays on the screen.
_MAX_WARNINGS = 4
_MAX_NOTES = 3
_MAX_ALSO = 5
_REST = "--all shows them"
# With less room than this for texts, causes are only in the details under the table.
_LEAST_TEXT = 56
_LEAST_REGION = 20
_INDENT = 2
GATE_STYLES: Mapping[GateVerdict, str] = {"passed": "bold green", "failed": "bold red", "cannot tell": "bold yellow"}
_STYLES: Mapping[Part, str] = {"noise": "dim", "total": "bold"}


def print_diff(diff: Diff, console: Console, *, top: int = TOP_FINDINGS, every: bool = False) -> None:
    """Print a diff: `top` findings with their proof, or with `every` all of them, all rows and all evidence."""
    plain = plain_record(diff)
    table = diff_table(plain, top=top, every=every)
    shown = plain.findings if every else plain.findings[:top]
    print_parts(
        console,
        *_sides(plain, console.width),
        *_warnings(plain, every=every),
        *_sentences(plain, console.width),
        *([] if plain.many_steps is None else amount_lines(many_steps_difference(plain.many_steps))),
        *_tables(table, console.width),
        *_regions(plain, console.width),
        *_details(plain, shown, console.width, every=every),
        *_foot(plain, console.width),
    )


def _sides(diff: Diff, width: int) -> Iterator[Text]:
    sides = list(side_texts(diff))
    labels = [cut_end(label, max(width // 5, 8)) for label, *_ in sides]
    abouts = [[", ".join(about[skip:]) for _, about, *_ in sides] for skip in range(4)]
    energies, devices = [side[2] for side in sides], [side[3] for side in sides]
    room = width - 2 - sum(widest(texts) + GAP for texts in (labels, energies)) - widest(devices) - GAP
    # The program, the count of operators and the repeats are left out, in this order, before a text is cut.
    about = next((texts for texts in abouts if widest(texts) <= room), abouts[-1])
    for at, letter in enumerate("AB"):
        text = Text(f"{letter} ", style="dim", no_wrap=True, overflow="ellipsis")
        text.append(_pad(labels[at], widest(labels) + GAP), style="bold")
        text.append(_pad(about[at], widest(about) + GAP) if any(about) else "", style="default")
        text.append(_pad(energies[at], widest(energies) + GAP), style="cyan")
        yield text.append(devices[at])


def _warnings(diff: Diff, *, every: bool) -> Iterator[RenderableType]:
    most_warnings, most_notes = (None, None) if every else (_MAX_WARNINGS, _MAX_NOTES)
    yield from condition_bullets(diff.condition_differences, comparable=diff.comparable, every=every)
    yield from bullets(difference_texts(diff), "!", "yellow")
    yield from bullets(warning_texts(diff), "!", "yellow", most=most_warnings, rest=_REST)
    yield from bullets(note_texts(diff), "-", "dim", most=most_notes, rest=_REST)


def condition_bullets(
    differences: Sequence[ConditionDifference], *, comparable: bool, every: bool
) -> Iterator[RenderableType]:
    """Yield the conditions that differ, serious ones first, and whether the energies can be compared."""
    yield from (bullet("!", condition_text(each), "bold red") for each in differences if each.serious)
    if not comparable:
        yield bullet("!", NOT_COMPARABLE, "bold red")
    slight = [condition_text(each) for each in differences if not each.serious]
    yield from bullets(slight, "!", "yellow", most=None if every else _MAX_WARNINGS, rest=_REST)


def _sentences(diff: Diff, width: int) -> Iterator[Text]:
    said, found = headline(diff) if diff.comparable else "", findings_text(diff)
    if diff.findings and cell_len(f"{said} {found}") <= width:
        said, found = f"{said} {found}".strip(), ""
    yield from (Text(text, style="bold") for text in (said, found) if text)
    yield from _gate(diff)


def _gate(diff: Diff) -> Iterator[Text]:
    if diff.gate is None:
        return
    advice = gate_advice(diff, diff.gate)
    yield Text(gate_text(diff.gate), style=GATE_STYLES[diff.gate.verdict])
    if advice is not None:
        yield Text(advice, style="yellow")


def _tables(table: DiffTable, width: int) -> Iterator[RenderableType]:
    """Yield the table in its parts: findings, trade-offs under a separate line, and the rest with the total."""
    lines = table.lines
    if not lines:
        return
    columns = _columns(table, width)
    parts = [line.part if line.part in ("finding", "tradeoff") else "rest" for line in lines]
    titles = {"tradeoff": TRADEOFFS, "rest": "the rest"} if "tradeoff" in parts else {}
    styles = [_STYLES.get(line.part, "") for line in lines]
    yield Text()
    with_head = True
    for part in ("finding", "tradeoff", "rest"):
        rows = [at for at, each in enumerate(parts) if each == part]
        if not rows:
            continue
        if part in titles:
            yield Text(titles[part], style="dim")
        yield fill_table(
            columns, rows=rows, styles=styles, with_head=with_head, style_cell=partial(_cell_style, lines, columns[0])
        )
        with_head = False


def _regions(diff: Diff, width: int) -> Iterator[RenderableType]:
    table = named_region_table(diff)
    if table is not None:
        yield from (Text(), Text(NAMED_REGIONS, style="dim"), to_table(table, width))


def _columns(table: DiffTable, width: int) -> list[Column]:
    lines = table.lines
    digits = max(len(line.number) for line in lines)
    signs = Column("", [f"{line.number:>{digits}} {line.sign}" for line in lines])
    numbers = [
        Column(head, cells, is_right=True)
        for head, cells in zip(table.heads, zip(*(line.numbers for line in lines), strict=True), strict=True)
    ]
    room = text_room([signs, *numbers, Column("", [])], width)
    texts = [column for column in _texts(table, room) if any(column.cells)]
    return fit_columns([signs, *numbers, *texts], width)


def _texts(table: DiffTable, room: int) -> list[Column]:
    """Return region, cause if there is room for it, and mark."""
    lines = table.lines
    marks = _marks([line.mark for line in lines], room)
    room -= widest(marks) + GAP if any(marks) else 0
    region, mark = Column(table.row_head, [line.region for line in lines], cut="end"), Column("", marks)
    if room < _LEAST_TEXT:
        return [region, mark]
    head = "cause" if any(line.number for line in lines) else "where"
    return [region, Column(head, [line.cause for line in lines], cut="line"), mark]


def _marks(marks: list[str], room: int) -> list[str]:
    """Return the words of proof as far as they leave room for the regions: in full, in short, or only the ticks."""
    ticks = [mark[:1] if mark.startswith("✓") else "" for mark in marks]
    for texts in (marks, [short_mark(mark) for mark in marks]):
        if room - widest(texts) - GAP >= _LEAST_REGION:
            return texts
    return ticks


def _cell_style(lines: Sequence[DiffLine], signs: Column, column: Column, at: int) -> str:
    if column is signs:
        return "bold" if lines[at].number else ""
    return _text_style(column.cells[at])


def _text_style(cell: str) -> str:
    return "green" if cell.startswith("✓") else ""


def _details(diff: Diff, shown: Sequence[Finding], width: int, *, every: bool) -> Iterator[RenderableType]:
    files = file_names(diff.findings, places_of(diff))
    for number, finding in enumerate(shown, start=1):
        yield Text()
        yield _title(number, finding, width)
        facts = list(finding_facts(finding, files, diff.thresholds, every=every))
        yield _facts(facts, width)
    if len(shown) < len(diff.findings):
        yield from (Text(), Text(f"{len(diff.findings) - len(shown):,} more: --all shows them", style="dim"))
    if diff.not_explained is not None:
        yield Text()
        yield Text(cut_end(not_explained_title(diff.not_explained), width), style="bold")
        yield _facts(list(not_explained_facts(diff.not_explained, files)), width)
    also = also_differs_texts(diff, files)
    if also:
        yield from (Text(), Text(ALSO_DIFFERS, style="bold"))
        yield from bullets(also, "-", "default", most=None if every else _MAX_ALSO, rest=_REST)


def _title(number: int, finding: Finding, width: int) -> Text:
    text = Text(f"{number} ", style="bold")
    mark = mark_text(finding)
    where = f"  in {finding.where}" if finding.where else ""
    room = width - cell_len(f"{number} ") - (cell_len(mark) + GAP if mark else 0)
    text.append(cut_end(f"{region_text(finding)}{where}", room))
    return text.append(f"{' ' * GAP}{mark}", style=_text_style(mark) or "yellow") if mark else text


def _facts(facts: Sequence[Fact], width: int) -> Table:
    room = max(width - _INDENT - widest(fact.key for fact in facts) - GAP, 16)
    rows = ((fact.key, cut_end(fact.text, room) if fact.is_code else fact.text) for fact in facts)
    return make_grid(rows, indent=_INDENT)


def _foot(diff: Diff, width: int) -> Iterator[Text]:
    books = books_text(diff)
    yield Text()
    if diff.next is None:
        yield Text(books, style="dim")
        return
    following = f"next: {diff.next}"
    if cell_len(books) + 2 * GAP + cell_len(following) <= width:
        yield Text.assemble((books + " " * 2 * GAP, "dim"), (following, "cyan"))
        return
    yield Text(books, style="dim")
    yield Text(following, style="cyan")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
