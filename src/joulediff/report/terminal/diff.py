"""A diff on a terminal: what was not alike, which side uses more, a table of where, and each finding with its proof.

All text of a diff is made plain first: the recordings that it was made of come from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from joulediff.model.diff import Diff
from joulediff.model.finding import Finding
from joulediff.report.columns import GAP, cut_begin, cut_end, fit_texts, make_table
from joulediff.report.sanitize import plain_record
from joulediff.report.terminal import bullet, print_parts
from joulediff.report.views.diff_rows import DiffTable, Line, Part, diff_table
from joulediff.report.views.diff_sentences import (
    NOT_COMPARABLE,
    TRADEOFFS,
    books_text,
    condition_text,
    doubt_texts,
    findings_text,
    headline,
    note_texts,
    side_texts,
)
from joulediff.report.views.finding_sentences import Fact, file_names, finding_facts, mark_text, region_text

TOP = 10
# More than so many are counted, so that the result stays on the screen.
_MAX_DOUBTS = 4
_MAX_NOTES = 3
# Without so much room, causes are told under the table alone.
_LEAST_TEXT = 56
_LEAST_REGION = 20
_INDENT = 2
_ENDS_WITH_LINE = re.compile(r":\d+\)?$")
_STYLES: Mapping[Part, str] = {"noise": "dim", "total": "bold"}


def print_diff(diff: Diff, console: Console, *, top: int = TOP, every: bool = False) -> None:
    """Print a diff: `top` findings with their proof, or with `every` all of them, all rows and all evidence."""
    plain = plain_record(diff)
    table = diff_table(plain, top=top, every=every)
    shown = plain.findings if every else plain.findings[:top]
    print_parts(
        console,
        *_sides(plain, console.width),
        *_doubts(plain, every=every),
        *_sentences(plain, console.width),
        *_tables(table, console.width),
        *_details(plain, shown, console.width, every=every),
        *_foot(plain, console.width),
    )


def _sides(diff: Diff, width: int) -> Iterator[Text]:
    sides = list(side_texts(diff))
    labels = [cut_end(label, max(width // 5, 8)) for label, *_ in sides]
    abouts = [[", ".join(about[skip:]) for _, about, *_ in sides] for skip in range(4)]
    energies, devices = [side[2] for side in sides], [side[3] for side in sides]
    room = width - 2 - sum(_widest(texts) + GAP for texts in (labels, energies)) - _widest(devices) - GAP
    # The program, the count of operators and the repeats go before anything is cut.
    about = next((texts for texts in abouts if _widest(texts) <= room), abouts[-1])
    for at, letter in enumerate("AB"):
        text = Text(f"{letter} ", style="dim", no_wrap=True, overflow="ellipsis")
        text.append(_pad(labels[at], _widest(labels) + GAP), style="bold")
        text.append(_pad(about[at], _widest(about) + GAP) if any(about) else "", style="default")
        text.append(_pad(energies[at], _widest(energies) + GAP), style="cyan")
        yield text.append(devices[at])


def _doubts(diff: Diff, *, every: bool) -> Iterator[RenderableType]:
    serious = [condition_text(each) for each in diff.condition_differences if each.serious]
    slight = [condition_text(each) for each in diff.condition_differences if not each.serious]
    yield from (bullet("!", f"not alike: {text}", "bold red") for text in serious)
    if not diff.comparable:
        yield bullet("!", NOT_COMPARABLE, "bold red")
    yield from _folded([f"not alike: {text}" for text in slight], _MAX_DOUBTS, "!", "yellow", every=every)
    yield from _folded(doubt_texts(diff), _MAX_DOUBTS, "!", "yellow", every=every)
    yield from _folded(note_texts(diff), _MAX_NOTES, "-", "dim", every=every)


def _folded(texts: Sequence[str], most: int, mark: str, style: str, *, every: bool) -> Iterator[RenderableType]:
    shown = texts if every or len(texts) <= most + 1 else texts[:most]
    yield from (bullet(mark, text, style) for text in shown)
    if len(shown) < len(texts):
        yield bullet(mark, f"{len(texts) - len(shown):,} more: --all shows them", style)


def _sentences(diff: Diff, width: int) -> Iterator[Text]:
    said, found = headline(diff) if diff.comparable else "", findings_text(diff)
    if diff.findings and cell_len(f"{said} {found}") <= width:
        said, found = f"{said} {found}".strip(), ""
    yield from (Text(text, style="bold") for text in (said, found) if text)


def _tables(table: DiffTable, width: int) -> Iterator[RenderableType]:
    """Yield the table in its parts: findings, trade-offs under a line of their own, and the rest with the total."""
    if not table.lines:
        return
    columns = _columns(table, width)
    parts = [line.part if line.part in ("finding", "tradeoff") else "rest" for line in table.lines]
    titles = {"tradeoff": TRADEOFFS, "rest": "the rest"} if "tradeoff" in parts else {}
    yield Text()
    is_first = True
    for part in ("finding", "tradeoff", "rest"):
        rows = [at for at, each in enumerate(parts) if each == part]
        if rows and part in titles:
            yield Text(titles[part], style="dim")
        if rows:
            yield _part(table, columns, rows, with_head=is_first)
            is_first = False


def _columns(table: DiffTable, width: int) -> list[tuple[str, list[str]]]:
    """Return the columns with their heads, their texts cut to the room that is left and padded alike in all parts."""
    lines = table.lines
    signs = _padded([f"{line.number:>{max(len(each.number) for each in lines)}} {line.sign}" for line in lines])
    numbers = [
        (f">{head}", _padded([head, *cells], right=True)[1:])
        for head, cells in zip(table.heads, zip(*(line.numbers for line in lines), strict=True), strict=True)
    ]
    room = width - sum(_widest(cells) + GAP for cells in (signs, *(cells for _, cells in numbers)))
    texts = [(head, _padded(cells)) for head, cells in _texts(lines, room) if any(cells)]
    return [("", signs), *numbers, *texts]


def _texts(lines: Sequence[Line], room: int) -> list[tuple[str, list[str]]]:
    """Return region, cause where there is room for it, and mark."""
    marks = [line.mark for line in lines]
    if any(marks) and room - _widest(marks) - GAP < _LEAST_REGION:
        marks = [mark[:1] if mark.startswith("✓") else "" for mark in marks]
    room -= _widest(marks) + GAP if any(marks) else 0
    regions, causes = [line.region for line in lines], [line.cause for line in lines]
    head = "cause" if any(line.number for line in lines) else "where"
    if room < _LEAST_TEXT:
        return [("region", [cut_end(text, max(room, 8)) for text in regions]), ("", marks)]
    regions, cut = fit_texts(regions, causes, room, keep_end=True)
    return [("region", regions), (head, [_cut_cause(cause, _widest(cut)) for cause in causes]), ("", marks)]


def _cut_cause(text: str, room: int) -> str:
    """Return a cause with what tells the most left: the line where it ends with one, else how it begins."""
    return cut_begin(text, room) if _ENDS_WITH_LINE.search(text) else cut_end(text, room)


def _part(table: DiffTable, columns: Sequence[tuple[str, list[str]]], rows: Iterable[int], *, with_head: bool) -> Table:
    made = make_table(*(head for head, _ in columns))
    made.show_header = with_head
    for at in rows:
        line = table.lines[at]
        first, *cells = (Text(cells[at], style=_text_style(cells[at])) for _, cells in columns)
        first.stylize("bold" if line.number else "")
        made.add_row(first, *cells, style=_STYLES.get(line.part, ""))
    return made


def _text_style(cell: str) -> str:
    return "green" if cell.startswith("✓") else ""


def _details(diff: Diff, shown: Sequence[Finding], width: int, *, every: bool) -> Iterator[RenderableType]:
    files = file_names(diff.findings)
    for number, finding in enumerate(shown, start=1):
        yield Text()
        yield _title(number, finding, width)
        facts = list(finding_facts(finding, files, diff.thresholds, every=every))
        yield _facts(facts, width)
    if len(shown) < len(diff.findings):
        yield from (Text(), Text(f"{len(diff.findings) - len(shown):,} more: --all shows them", style="dim"))


def _title(number: int, finding: Finding, width: int) -> Text:
    text = Text(f"{number} ", style="bold")
    mark = mark_text(finding)
    where = f"  in {finding.where}" if finding.where else ""
    room = width - cell_len(f"{number} ") - (cell_len(mark) + GAP if mark else 0)
    text.append(cut_end(f"{region_text(finding)}{where}", room))
    return text.append(f"{' ' * GAP}{mark}", style=_text_style(mark) or "yellow") if mark else text


def _facts(facts: Sequence[Fact], width: int) -> Table:
    keys = max(cell_len(fact.key) for fact in facts)
    room = max(width - _INDENT - keys - GAP, 16)
    grid = Table.grid(padding=(0, GAP, 0, 0))
    before = ""
    for fact in facts:
        key = "" if fact.key == before else fact.key
        text = cut_end(fact.text, room) if fact.is_code else fact.text
        grid.add_row(Text(" " * _INDENT + key, style="dim", no_wrap=True), Text(text, overflow="fold"))
        before = fact.key
    return grid


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


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _padded(texts: Sequence[str], *, right: bool = False) -> list[str]:
    width = _widest(texts)
    return [text.rjust(width) if right else _pad(text, width) for text in texts]
