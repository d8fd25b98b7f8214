"""A diff as Markdown, for a comment on a pull request: the facts of the terminal report.

Names come from other people's programs. Each character with a meaning in Markdown is written as an HTML entity, so
that no name becomes a link, a mention, a table cell or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from joulediff.model.diff import Diff
from joulediff.model.finding import Finding
from joulediff.report.limits import TOP_FINDINGS
from joulediff.report.sanitize import plain_record
from joulediff.report.views.columns import TextTable
from joulediff.report.views.diff_sentences import (
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
from joulediff.report.views.diff_table import DiffLine, DiffTable, diff_table
from joulediff.report.views.finding_sentences import Fact, file_names, finding_facts, mark_text, region_text
from joulediff.report.views.gate import gate_advice, gate_text
from joulediff.report.views.many_steps import many_steps_difference
from joulediff.report.views.named_regions import TITLE, named_region_table
from joulediff.report.views.other_differences import (
    ALSO_DIFFERS,
    also_differs_texts,
    not_explained_facts,
    not_explained_title,
    places_of,
)
from joulediff.report.views.short_texts import shorten

# A comment on GitHub holds 65,536 characters.
_NAME_ROOM = 100
_TEXT_ROOM = 800
# An underscore within a word has no meaning.
_SPECIAL = re.compile(r"[\\`*{}\[\]<>|~#@&$^]|(?<![^\W_])_|_(?![^\W_])")
# A name or number after these becomes a link to a person or an issue; a zero-width space prevents it.
_MENTION = re.compile("(&#64;|&#35;)")
# GitHub makes links of these by itself.
_LINK = re.compile(r"(?i)(www)\.|:(//)")


def diff_to_markdown(diff: Diff, *, top: int = TOP_FINDINGS, every: bool = False) -> str:
    """Return a diff as Markdown: `top` findings, or with `every` all of them, all rows and all evidence."""
    plain = plain_record(diff)
    files = file_names(plain.findings, places_of(plain))
    shown = plain.findings if every else plain.findings[: max(top, 1)]
    parts = [
        [f"### {escape(headline(plain))}"],
        _conditions(plain),
        _gate(plain),
        [escape(findings_text(plain))],
        [] if plain.many_steps is None else _list(many_steps_difference(plain.many_steps)),
        _sides(plain),
        _rows(diff_table(plain, top=top, every=every)),
        _regions(plain),
        *(
            _details(number, finding, finding_facts(finding, files, plain.thresholds, every=every))
            for number, finding in enumerate(shown, start=1)
        ),
        [f"{len(plain.findings) - len(shown):,} more findings"] if len(shown) < len(plain.findings) else [],
        _not_explained(plain, files),
        _also_differs(plain, files),
        _list(note_texts(plain)),
        [f"<sub>{escape(books_text(plain))}</sub>"],
        [f"next: {code(plain.next)}"] if plain.next is not None else [],
    ]
    texts = ["\n".join(lines) for lines in map(list, parts)]
    return "\n\n".join(text for text in texts if text) + "\n"


def escape(text: str) -> str:
    """Return a text that Markdown shows literally, in one line."""
    return _MENTION.sub(r"\1&#8203;", _entities(shorten(text, _TEXT_ROOM)))


def code(text: str) -> str:
    """Return a name or a line of code. HTML, because nothing can be escaped between backticks."""
    return f"<code>{_entities(shorten(text, _NAME_ROOM))}</code>" if text else ""


def _entities(text: str) -> str:
    shown = _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text)
    return _LINK.sub(lambda found: f"{found[1]}&#46;" if found[1] else f"&#58;{found[2]}", shown)


def _gate(diff: Diff) -> Iterator[str]:
    if diff.gate is not None:
        advice = gate_advice(diff, diff.gate)
        yield f"**{escape(gate_text(diff.gate))}**{f' {escape(advice)}' if advice is not None else ''}"


def _conditions(diff: Diff) -> Iterator[str]:
    for each in diff.condition_differences:
        text = escape(condition_text(each))
        yield f"- **{text}**" if each.serious else f"- {text}"
    yield from (f"- {escape(text)}" for text in (*difference_texts(diff), *warning_texts(diff)))


def _sides(diff: Diff) -> Iterator[str]:
    yield from _table_head(["", "run", "what ran", "energy of a step", "device"])
    for letter, (label, about, energy, device) in zip("AB", side_texts(diff), strict=True):
        yield _table_row([letter, code(label), escape(", ".join(about)), escape(energy), escape(device)])


def _rows(table: DiffTable) -> Iterator[str]:
    if not table.lines:
        return
    yield from _table_head(["", "", *table.heads, table.row_head, "cause", ""], right=range(2, 2 + len(table.heads)))
    blank, before = [""] * (2 + len(table.heads)), ""
    for line in table.lines:
        if line.part == "tradeoff" != before:
            yield _table_row([*blank, f"*{TRADEOFFS}*", "", ""])
        before = line.part
        yield _row(line)


def _regions(diff: Diff) -> Iterator[str]:
    table = named_region_table(diff)
    if table is not None:
        yield from (f"**{TITLE}**", "", *text_table(table))


def _row(line: DiffLine) -> str:
    region = code(line.region) if line.number else escape(line.region)
    cells = [line.number, escape(line.sign), *map(escape, line.numbers), region, escape(line.cause), line.mark]
    return _table_row([f"**{cell}**" if line.part == "total" and cell else cell for cell in cells])


def _table_head(heads: Sequence[str], *, right: Iterable[int] = ()) -> Iterator[str]:
    yield _table_row(heads)
    yield _table_row(["--:" if at in right else "---" for at in range(len(heads))])


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text_table(table: TextTable) -> Iterator[str]:
    """Yield the lines of a table."""
    columns = table.columns
    yield from _table_head(
        [column.head for column in columns], right=[i for i, each in enumerate(columns) if each.is_right]
    )
    for at, emphasis in enumerate(table.emphasis or [""] * len(columns[0].cells)):
        cells = [escape(column.cells[at]) for column in columns]
        yield _table_row([f"**{cell}**" if emphasis == "total" and cell else cell for cell in cells])


def _details(number: int, finding: Finding, facts: Iterable[Fact]) -> Iterator[str]:
    mark = mark_text(finding)
    title = f"{number} {code(region_text(finding))}{f' in {code(finding.where)}' if finding.where else ''}"
    yield f"<details><summary>{title}{f' {mark}' if mark else ''}</summary>"
    yield ""
    yield from _fact_lines(facts)
    yield ""
    yield "</details>"


def _not_explained(diff: Diff, files: Mapping[str, str]) -> Iterator[str]:
    if diff.not_explained is None:
        return
    yield f"**{escape(not_explained_title(diff.not_explained))}**"
    yield ""
    yield from _fact_lines(not_explained_facts(diff.not_explained, files))


def _also_differs(diff: Diff, files: Mapping[str, str]) -> Iterator[str]:
    texts = also_differs_texts(diff, files)
    if texts:
        yield from (f"**{ALSO_DIFFERS}**", "", *_list(texts))


def _fact_lines(facts: Iterable[Fact]) -> Iterator[str]:
    return (f"- **{fact.key}**: {code(fact.text) if fact.is_code else escape(fact.text)}" for fact in facts)


def _list(texts: Iterable[str]) -> list[str]:
    return [f"- {escape(text)}" for text in texts]
