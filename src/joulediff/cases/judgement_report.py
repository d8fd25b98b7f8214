"""Judgements as text, on a terminal and as Markdown: a row for each case, why some are not found, and totals.

Both show the cells, notes and totals of one `CasesTable`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import get_args

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.cases.judge import Judgement, Outcome, kind_text, told_text
from joulediff.model.energy import Ratio
from joulediff.model.finding import PROOF_WORDS, ProofWord
from joulediff.report.markdown import code, escape
from joulediff.report.sanitize import plain_record
from joulediff.report.terminal.table import cut_end, to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.columns import Column, Cut, TextTable
from joulediff.report.views.finding_sentences import short_mark
from joulediff.report.views.short_texts import ratio_text

RIGHT, WRONG = "✓", "✗"
# The row of these outcomes says everything.
_NEEDS_NO_NOTE: tuple[Outcome, ...] = ("fixed upstream", "clean", "not run")
_NOT_KNOWN = "-"
# In the order of the fields of a line.
_HEADS = ("case", "step", "region", "by J", "by s", "kind", "key", "line", "proof", "outcome")
_NUMBERS = ("step", "region", "by J", "by s")
_LONG_HEADS = ("case", "step", "region", "rank by energy", "rank by time", "kind", "key", "line", "proof", "outcome")
# The order in which a narrow terminal leaves columns out: the notes repeat what matters in them.
_SPARE = {head: at for at, head in enumerate(("by s", "by J", "kind", "region", "line", "proof"))}
# An id is cut only if it takes more than this share of the width: users type it.
_CASE_SHARE = 0.4
_LEAST_KEY = 14
_STYLES: Mapping[Outcome, str] = {
    "found": "green",
    "clean": "green",
    "fixed upstream": "cyan",
    "partly": "yellow",
    "missed": "red",
    "failed": "red",
    "false alarm": "red",
}


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case that ran. A wrong cell ends with a cross."""

    case: str
    step: str
    """Energy of the wasteful step over that of the lean one: `1.24x`, with `~` within noise."""
    region: str
    rank_energy: str
    rank_time: str
    kind: str
    key: str
    line: str
    """Whether the finding names a right line of the program."""
    proof: str
    """`✓ cause confirmed`, `✓ replacement confirmed` or `observed`."""
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CasesTable:
    """Rows, notes and totals of cases that ran."""

    lines: tuple[CaseLine, ...]
    notes: tuple[str, ...]
    totals: str


def cases_table(judgements: Sequence[Judgement]) -> CasesTable:
    """Return the table of judgements; cases that did not run are in the notes, by reason."""
    plain = [plain_record(each) for each in judgements]
    lines = tuple(_line(each) for each in plain if each.outcome != "not run")
    return CasesTable(lines, tuple(_notes(plain)), totals_text(plain))


def totals_text(judgements: Sequence[Judgement]) -> str:
    """Return the totals in one line: `17 of 19 found and confirmed (17 cause confirmed), 2 partly; 512 s`."""
    counts = Counter(each.outcome for each in judgements)
    ran = len(judgements) - counts["not run"]
    first: Outcome = "clean" if counts["clean"] or counts["false alarm"] else "found"
    found = f"found and confirmed{_proofs(judgements)}" if first == "found" else "without a finding"
    words = [f"{counts[first]} of {ran} {found}"]
    order = ("fixed upstream", *(each for each in get_args(Outcome) if each not in (first, "fixed upstream")))
    words += [f"{counts[outcome]} {outcome}" for outcome in order if counts[outcome]]
    seconds = [each.seconds for each in judgements if each.seconds is not None]
    return f"{', '.join(words)}; {_seconds_text(sum(seconds))}" if seconds else ", ".join(words)


def _proofs(judgements: Sequence[Judgement]) -> str:
    """Return how those that are found are confirmed: ` (12 cause confirmed, 5 replacement confirmed)`."""
    counts = Counter(each.proof for each in judgements if each.outcome == "found")
    words = [f"{counts[word]} {word}" for word in PROOF_WORDS if counts[word]]
    return f" ({', '.join(words)})" if words else ""


def judged_text(judged: Judgement) -> str:
    """Return one judgement in a line: `tf32: found, 6.31x, misconfiguration: allow_tf32, cause confirmed, 31 s`."""
    plain = plain_record(judged)
    if plain.outcome == "not run":
        return f"{plain.case}: not run, {plain.note}"
    words: list[str] = [plain.outcome]
    words += [step_text(plain.end_to_end)] if plain.end_to_end is not None else []
    words += [told_text(plain.told_kind, plain.told_key)] if plain.told_kind is not None else []
    words += [plain.proof] if plain.proof is not None else []
    words += [_seconds_text(plain.seconds)] if plain.seconds is not None else []
    note = f" ({plain.note})" if plain.note and plain.outcome not in _NEEDS_NO_NOTE else ""
    return f"{plain.case}: {', '.join(words)}{note}"


def _line(judged: Judgement) -> CaseLine:
    is_told = judged.told_kind is not None
    return CaseLine(
        judged.case,
        step_text(judged.end_to_end),
        ratio_text(judged.region_ratio) if judged.region_ratio is not None else "only A" if is_told else _NOT_KNOWN,
        _NOT_KNOWN if judged.rank_energy is None else str(judged.rank_energy),
        _NOT_KNOWN if judged.rank_time is None else str(judged.rank_time),
        _marked(None if judged.told_kind is None else kind_text(judged.told_kind), right=judged.kind_right),
        _marked(judged.told_key, right=judged.key_right),
        (RIGHT if judged.line_right else WRONG) if is_told else _NOT_KNOWN,
        _proof_text(judged.proof),
        judged.outcome,
    )


def _proof_text(word: ProofWord | None) -> str:
    if word is None:
        return _NOT_KNOWN
    return word if word == "observed" else f"{RIGHT} {word}"


def step_text(ratio: Ratio | None) -> str:
    """Return a ratio of energies: `6.31x`, `~1.03x` within noise."""
    if ratio is None or not 0.0 <= ratio.value < 1e6:
        return "?"
    return f"{'~' if ratio.may_be_one else ''}{ratio_text(ratio.value)}"


def _seconds_text(seconds: float) -> str:
    return f"{round(seconds):,} s" if math.isfinite(seconds) else "? s"


def _marked(told: str | None, *, right: bool) -> str:
    if told is None:
        return _NOT_KNOWN
    return told if right else f"{told} {WRONG}"


def _notes(judgements: Sequence[Judgement]) -> Iterator[str]:
    for each in judgements:
        if each.note and each.outcome not in _NEEDS_NO_NOTE:
            yield f"{each.case}: {each.note}"
    idle = [each for each in judgements if each.outcome == "not run"]
    for reason in dict.fromkeys(each.note for each in idle):
        yield f"not run, {reason}: {', '.join(each.case for each in idle if each.note == reason)}"


def print_judgements(judgements: Sequence[Judgement], console: Console) -> None:
    """Print the judgements of cases."""
    table = cases_table(judgements)
    notes = bullets(table.notes, "-", "dim")
    print_parts(console, *_table(table, console.width), *notes, Text(table.totals, style="bold"))


def judgements_to_markdown(judgements: Sequence[Judgement]) -> str:
    """Return the judgements of cases as Markdown."""
    table = cases_table(judgements)
    parts = [list(_markdown_rows(table)), [f"- {escape(note)}" for note in table.notes], [escape(table.totals)]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _table(table: CasesTable, width: int) -> Iterator[RenderableType]:
    if not table.lines:
        return
    rows = zip(*(astuple(line) for line in table.lines), strict=True)
    columns = [_column(head, cells, width) for head, cells in zip(_HEADS, rows, strict=True)]
    outcomes = [line.outcome for line in table.lines]
    yield to_table(TextTable(tuple(columns)), width, least_text=_LEAST_KEY, style_cell=partial(_style, outcomes))
    yield Text()


def _column(head: str, cells: Sequence[str], width: int) -> Column:
    if head == "proof":
        cells = [short_mark(cell) for cell in cells]
    if head == "case":
        return Column(head, [cut_end(cell, int(width * _CASE_SHARE)) for cell in cells])
    # The end of a key says the most.
    cut: Cut | None = "begin" if head == "key" else None
    return Column(head, cells, is_right=head in _NUMBERS, spare=_SPARE.get(head), cut=cut)


def _style(outcomes: Sequence[Outcome], column: Column, at: int) -> str:
    cell = column.cells[at]
    if column.head == "outcome":
        return _STYLES.get(outcomes[at], "")
    if cell.endswith(WRONG):
        return "yellow"
    return "green" if cell.startswith(RIGHT) else ""


def _markdown_rows(table: CasesTable) -> Iterator[str]:
    if not table.lines:
        return
    yield _row(_LONG_HEADS)
    yield _row(["--:" if head in _NUMBERS else "---" for head in _HEADS])
    for line in table.lines:
        case, *cells = astuple(line)
        yield _row([code(case), *map(escape, cells)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
