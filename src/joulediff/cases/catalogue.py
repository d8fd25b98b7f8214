"""The library of cases as somebody reads it: a line for each, one in full, and all of them as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulediff.archive.codec import to_plain
from joulediff.cases.case import Case, Measured
from joulediff.cases.judge import kind_text, kinds_text
from joulediff.report.columns import GAP, cut_end, make_table
from joulediff.report.json import dump
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal import print_parts
from joulediff.report.views.amounts import count_text, ratio_text

SCHEMA = "joulediff.case-list/1"
# What a narrow terminal does without.
_SPARE = ("system", "kind", "devices")
_LEAST_TITLE = 30


def print_catalogue(cases: Sequence[Case], lacking: Mapping[str, str | None], console: Console) -> None:
    """Print a line for each case; `lacking` has why one cannot run here."""
    found = [plain_record(case) for case in cases]
    columns = {
        "case": [case.folder.name for case in found],
        "title": [case.title for case in found],
        "system": [case.system for case in found],
        "kind": [kind_text(case.kind) for case in found],
        "devices": [", ".join(case.devices) for case in found],
        "here": ["✓" if lacking[case.id] is None else str(lacking[case.id]) for case in cases],
    }
    for spare in _SPARE:
        if _title_room(columns, console.width) < min(_LEAST_TITLE, _widest("title", columns["title"])):
            del columns[spare]
    room = max(_title_room(columns, console.width), len("title"))
    columns["title"] = [cut_end(title, room) for title in columns["title"]]
    table = make_table(*columns)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells[:-1], Text(cells[-1], style="green" if cells[-1] == "✓" else "dim"))
    able = sum(lacking[case.id] is None for case in cases)
    print_parts(console, table, Text(), Text(f"{able} of {count_text(len(cases), 'case')} can run here", style="bold"))


def print_case(
    case: Case, lack: str | None, console: Console, *, programs: bool = False, library: Path | None = None
) -> None:
    """Print all that is known of a case, with `programs` the text of its files too."""
    plain = plain_record(_in_lines(case))
    where = "" if library is None else f"--library {plain_text(str(library))} "
    facts = [
        *_facts(plain),
        ("here", f"joulediff cases {where}run {case.id}" if lack is None else f"cannot run: {lack}"),
    ]
    keys = max(cell_len(key) for key, _ in facts)
    grid = Table.grid(padding=(0, GAP, 0, 0))
    before = ""
    for key, text in facts:
        shown = "" if key == before else key
        grid.add_row(Text(f"{shown:{keys}}", style="dim", no_wrap=True), Text(text, overflow="fold"))
        before = key
    head = Text.assemble((case.id, "bold"), f"  {plain.title}")
    print_parts(console, head, Text(), Text(plain.about), Text(), grid, *(_listings(case) if programs else ()))


def catalogue_to_json(cases: Sequence[Case], lacking: Mapping[str, str | None]) -> str:
    """Return cases as JSON text: all entries of each, where its folder is, and why it cannot run here."""
    plain = [{"id": case.id, **_entries(case), "lacks": lacking[case.id]} for case in cases]
    return dump({"schema": SCHEMA, "cases": plain})


def _entries(case: Case) -> dict[str, object]:
    names = [name for name in Case.__dataclass_fields__ if name != "folder"]
    return {"folder": str(case.folder), **{name: to_plain(getattr(case, name)) for name in names}}


def _title_room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    return width - sum(_widest(head, cells) + GAP for head, cells in columns.items() if head != "title")


def _widest(head: str, cells: Sequence[str]) -> int:
    return max(map(cell_len, [head, *cells]))


def _in_lines(case: Case) -> Case:
    """Return a case whose texts are one line each: they are wrapped where they are shown."""
    names = ("title", "about", "published", "faithful", "fixed")
    texts: dict[str, Any] = {name: " ".join(getattr(case, name).split()) for name in names}
    return replace(case, **texts)


def _facts(case: Case) -> Iterator[tuple[str, str]]:
    yield "system", f"{case.system} ({case.origin})"
    yield "kind", kinds_text(case)
    yield from (("key", key) for key in case.keys)
    yield "devices", ", ".join(case.devices)
    if case.needs:
        yield "needs", ", ".join(f"{package} {least}" for package, least in case.needs.items())
    yield from (("link", link) for link in case.links)
    for name, text in (("published", case.published), ("departs", case.faithful), ("fixed", case.fixed)):
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
