"""The library of cases as reports: a table, one case in full, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from joulediff.archive.codec import to_plain
from joulediff.cases.case import Case, Measured
from joulediff.cases.judge import kind_text, kinds_text
from joulediff.report.json import dump
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal.table import make_grid, to_table
from joulediff.report.terminal.text import print_parts
from joulediff.report.views.columns import Column, TextTable
from joulediff.report.views.short_texts import count_text, ratio_text

SCHEMA = "joulediff.case-list/1"
# The order in which a narrow terminal leaves columns out.
_SPARE = {"system": 0, "kind": 1, "devices": 2}


def print_catalogue(cases: Sequence[Case], lacking: Mapping[str, str | None], console: Console) -> None:
    """Print a row for each case; `lacking` has the reason why one cannot run here."""
    found = [plain_record(case) for case in cases]
    columns = {
        "case": [case.folder.name for case in found],
        "title": [case.title for case in found],
        "system": [case.system for case in found],
        "kind": [kind_text(case.kind) for case in found],
        "devices": [", ".join(case.devices) for case in found],
        "here": ["✓" if lacking[case.id] is None else str(lacking[case.id]) for case in cases],
    }
    made = [
        Column(head, cells, spare=_SPARE.get(head), cut="end" if head == "title" else None)
        for head, cells in columns.items()
    ]
    table = to_table(TextTable(tuple(made)), console.width, style_cell=_style)
    able = sum(lacking[case.id] is None for case in cases)
    print_parts(console, table, Text(), Text(f"{able} of {count_text(len(cases), 'case')} can run here", style="bold"))


def print_case(
    case: Case, lack: str | None, console: Console, *, programs: bool = False, library: Path | None = None
) -> None:
    """Print one case in full; with `programs`, also its source files."""
    plain = plain_record(_in_lines(case))
    where = "" if library is None else f"--library {plain_text(str(library))} "
    facts = [
        *_facts(plain),
        ("here", f"joulediff cases {where}run {case.id}" if lack is None else f"cannot run: {lack}"),
    ]
    head = Text.assemble((case.id, "bold"), f"  {plain.title}")
    listings = _listings(case) if programs else ()
    print_parts(console, head, Text(), Text(plain.about), Text(), make_grid(facts), *listings)


def catalogue_to_json(cases: Sequence[Case], lacking: Mapping[str, str | None]) -> str:
    """Return cases as JSON text: all entries, the folder, and why a case cannot run here."""
    plain = [{"id": case.id, **_entries(case), "lacks": lacking[case.id]} for case in cases]
    return dump({"schema": SCHEMA, "cases": plain})


def _entries(case: Case) -> dict[str, object]:
    names = [name for name in Case.__dataclass_fields__ if name != "folder"]
    return {"folder": str(case.folder), **{name: to_plain(getattr(case, name)) for name in names}}


def _style(column: Column, at: int) -> str:
    if column.head != "here":
        return ""
    return "green" if column.cells[at] == "✓" else "dim"


def _in_lines(case: Case) -> Case:
    """Return a case with each text on one line; the terminal wraps them."""
    names = ("title", "about", "expected", "differs", "fixed")
    texts: dict[str, Any] = {name: " ".join(getattr(case, name).split()) for name in names}
    return replace(case, **texts)


def _facts(case: Case) -> Iterator[tuple[str, str]]:
    yield "system", f"{case.system} ({case.origin})"
    yield from [("expected", case.expected)] if case.expected else []
    yield from (("link", link) for link in case.links)
    yield "kind", kinds_text(case)
    yield from (("key", key) for key in case.keys)
    yield from (("line", line) for line in case.lines)
    yield "devices", ", ".join(case.devices)
    if case.needs:
        yield "needs", ", ".join(f"{package} {least}" for package, least in case.needs.items())
    for name, text in (("differs", case.differs), ("fixed", case.fixed)):
        if text:
            yield name, text
    if case.processes > 1:
        yield "processes", str(case.processes)
    yield from (("measured", _measured_text(each)) for each in case.measured)
    yield from (("programs", str(path)) for path in (case.wasteful, case.lean))


def _measured_text(found: Measured) -> str:
    ratios = [f"{ratio_text(found.energy_ratio)} the energy"]
    ratios += [] if found.time_ratio is None else [f"{ratio_text(found.time_ratio)} the time"]
    return "; ".join(filter(None, [", ".join(ratios), found.device, found.versions, found.date, found.note]))


def _listings(case: Case) -> Iterator[RenderableType]:
    for path in sorted(case.folder.glob("*.py"), key=lambda each: (each != case.wasteful, each != case.lean)):
        yield Text()
        yield Text(path.name, style="bold")
        yield from (Padding(Text(plain_text(line), overflow="fold"), (0, 0, 0, 2)) for line in _lines(path))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").expandtabs(4).splitlines()
