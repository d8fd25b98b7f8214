"""A folder with the results of cases: `results.json`, `recorded.json`, and for each case its recordings and its diff.

`results.json` is written after each case and keeps other cases, so that a library that takes hours can run in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from joulediff.archive.codec import Document, from_plain, read_json, to_plain
from joulediff.archive.reader import load_run
from joulediff.archive.writer import open_folder
from joulediff.cases.case import Case
from joulediff.cases.judge import Judgement, judge, judge_same
from joulediff.cases.recorded import write_recorded
from joulediff.cases.run import DIFF, RUNS, is_same
from joulediff.model.diff import Diff
from joulediff.model.errors import ArchiveError, JoulediffError
from joulediff.report.json import dump
from joulediff.report.json.diff import diff_from_json
from joulediff.version import __version__

SCHEMA = "joulediff.cases/1"
RESULTS = "results.json"
_DOCUMENT = Document(within="", null_is_nan=True)
_NOT_KEPT = "name a folder that `joulediff cases run --keep` wrote"


@dataclass(frozen=True, slots=True)
class Results:
    """The judgements of cases. `created`: UTC, ISO 8601."""

    schema: str
    created: str
    tool: str
    judgements: tuple[Judgement, ...]


def results_to_json(judgements: Sequence[Judgement]) -> str:
    """Return judgements as JSON text, complete."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return dump(to_plain(Results(SCHEMA, now, __version__, tuple(judgements))))


def read_results(folder: Path) -> tuple[Judgement, ...]:
    """Return the judgements in a folder; none if it has no `results.json`."""
    path = folder / RESULTS
    if not path.exists():
        return ()
    try:
        plain = read_json(path.read_bytes())
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise ArchiveError(f"it is no {SCHEMA}")
        found: Results = from_plain(Results, plain, "results", _DOCUMENT)
    except OSError as error:
        raise JoulediffError(f"cannot read {path} ({error.strerror})", fix=_NOT_KEPT) from error
    except ArchiveError as error:
        raise JoulediffError(f"cannot read {path}: {error.what}", fix=_NOT_KEPT) from error
    return found.judgements


def write_results(folder: Path, judgements: Iterable[Judgement], before: Sequence[Judgement] = ()) -> None:
    """Write judgements to a folder, with those of `before` on other cases.

    A case that ran before and does not run now keeps its judgement: its recordings are still there.
    """
    ran = {each.case for each in before if each.outcome != "not run"}
    new = {each.case: each for each in judgements if each.outcome != "not run" or each.case not in ran}
    every = {**{each.case: each for each in before}, **new}
    (folder / RESULTS).write_text(results_to_json(tuple(every.values())), encoding="utf-8")


@dataclass(slots=True)
class ResultsFolder:
    """A folder for cases that run now. One that the user keeps has the judgements of earlier calls in `before`."""

    folder: Path
    is_kept: bool
    before: Sequence[Judgement] = ()
    judged: list[Judgement] = field(default_factory=list)

    def has(self, case: str) -> bool:
        """Return whether an earlier call has run a case."""
        return any(each.case == case and each.outcome != "not run" for each in self.before)

    def add(self, judgement: Judgement) -> None:
        """Add a judgement; a kept folder stores it at once."""
        self.judged.append(judgement)
        if self.is_kept:
            write_results(self.folder, self.judged, self.before)
            write_recorded(self.folder, judgement)


@contextmanager
def open_results(keep: Path | None) -> Iterator[ResultsFolder]:
    """Give a folder for results; without `keep` it is deleted afterwards."""
    with open_folder(keep, "cases") as folder:
        yield ResultsFolder(folder, is_kept=keep is not None, before=read_results(folder))


def judge_kept(folder: Path, cases: Sequence[Case]) -> tuple[Judgement, ...]:
    """Return a new judgement of each diff in a folder, in the order of `cases`.

    A case without a diff, because it failed or did not run, keeps its judgement of `results.json`.
    """
    if not folder.is_dir():
        raise JoulediffError(f"there is no folder {folder}", fix=_NOT_KEPT)
    known = {each.case: each for each in read_results(folder)}
    library = {case.id: case for case in cases}
    for name in (path.parent.name for path in sorted(folder.glob(f"*/{DIFF}"))):
        known[name] = _judge_folder(library.get(name), folder / name, known.get(name))
    if not known:
        raise JoulediffError(f"{folder} keeps no case", fix=_NOT_KEPT)
    order = {case.id: at for at, case in enumerate(cases)}
    return tuple(sorted(known.values(), key=lambda each: (order.get(each.case, len(order)), each.case)))


def _judge_folder(case: Case | None, folder: Path, before: Judgement | None) -> Judgement:
    """Return the judgement of a stored case; files that cannot be read fail only this case."""
    if case is None:
        return Judgement(folder.name, "failed", note="the library has no such case")
    try:
        return judge_diff(case, folder, before)
    except JoulediffError as error:
        return Judgement(case.id, "failed", note=" ".join(error.what.split()))


def judge_diff(case: Case, folder: Path, before: Judgement | None = None) -> Judgement:
    """Return the judgement of a case that ran in `folder`; its seconds are those of `before`."""
    file = folder / RUNS["a"]
    diff, run = _read_diff(folder / DIFF), load_run(file) if file.exists() else None
    seconds = None if before is None else before.seconds
    return (judge_same if is_same(diff) else judge)(case, diff, run, seconds)


def _read_diff(path: Path) -> Diff:
    try:
        return diff_from_json(path.read_bytes())
    except OSError as error:
        raise JoulediffError(f"cannot read {path} ({error.strerror})", fix=_NOT_KEPT) from error
    except ArchiveError as error:
        raise JoulediffError(f"cannot read {path}: {error.what}", fix=error.fix) from error
