"""The digests of recorded results, in `recorded.json`: a measured value that is edited later shows.

Only `joulediff cases run --keep` writes digests, after each case. The recordings and the diff of a case are measured as
a whole. Of its judgement only the `MEASURED` fields are: the others follow from these files and `case.toml`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from joulediff.archive.codec import Document, from_plain, read_json, to_plain
from joulediff.cases.judge import Judgement
from joulediff.cases.run import DIFF, RUNS
from joulediff.model.errors import ArchiveError, JoulediffError
from joulediff.report.json import dump
from joulediff.version import __version__

SCHEMA = "joulediff.recorded/1"
RECORDED = "recorded.json"
MEASURED = ("case", "seconds")
# The judgement of a case that failed has no files to follow from.
_MEASURED_OF_FAILED = (*MEASURED, "outcome", "note")
_DOCUMENT = Document(within="")
_FIX = "restore the files as they were recorded, or run the case again"


@dataclass(frozen=True, slots=True)
class Digests:
    """The SHA-256 digests of one recorded case."""

    tool: str
    files: Mapping[str, str]
    judgement: str | None
    """That of its measured fields, as JSON with sorted names; None if the folder has no `results.json`."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The digests of the cases in a folder."""

    schema: str = SCHEMA
    cases: Mapping[str, Digests] = field(default_factory=dict)


def write_recorded(folder: Path, judgement: Judgement) -> None:
    """Add the digests of a case that was just recorded in a folder. A case that did not run changes nothing."""
    if judgement.outcome == "not run":
        return
    before = read_recorded(folder)
    cases = {**before.cases, judgement.case: digests_of(folder / judgement.case, judgement)}
    (folder / RECORDED).write_text(dump(replace(before, cases=cases)), encoding="utf-8")


def read_recorded(folder: Path) -> Recorded:
    """Return the digests in a folder; none if it has no `recorded.json`."""
    path = folder / RECORDED
    if not path.exists():
        return Recorded()
    try:
        plain = read_json(path.read_bytes())
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise ArchiveError(f"it is no {SCHEMA}")
        found: Recorded = from_plain(Recorded, plain, "recorded", _DOCUMENT)
    except OSError as error:
        raise JoulediffError(f"cannot read {path} ({error.strerror})", fix=_FIX) from error
    except ArchiveError as error:
        raise JoulediffError(f"cannot read {path}: {error.what}", fix=_FIX) from error
    return found


def refuse_edited(folder: Path, judgements: Mapping[str, Judgement]) -> None:
    """Raise if a part of a folder is not as it was recorded. `judgements` are those of its `results.json`, by case."""
    edited = list(find_edited(folder, judgements))
    if edited:
        raise JoulediffError(f"{folder} is not as it was recorded: {', '.join(edited[:3])}", fix=_FIX)


def find_edited(folder: Path, judgements: Mapping[str, Judgement]) -> Iterator[str]:
    """Yield each part of a folder that is not as it was recorded: `tf32/diff.json`. A case without digests is one."""
    recorded = read_recorded(folder).cases
    ran = {name for name, each in judgements.items() if each.outcome != "not run"}
    stored = {path.parent.name for path in folder.glob(f"*/{DIFF}")}
    for name in sorted({*recorded, *ran, *stored}):
        if name not in recorded:
            yield f"{name} without digests"
            continue
        before, now = recorded[name], digests_of(folder / name, judgements.get(name))
        files = sorted({*before.files, *now.files})
        yield from (f"{name}/{file}" for file in files if before.files.get(file) != now.files.get(file))
        if before.judgement != now.judgement:
            yield f"the judgement of {name}"


def digests_of(folder: Path, judgement: Judgement | None) -> Digests:
    """Return the digests of the files of a case, and of the measured fields of its judgement."""
    paths = [folder / name for name in (*RUNS.values(), DIFF)]
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.exists()}
    return Digests(__version__, files, None if judgement is None else _digest_of(judgement))


def _digest_of(judgement: Judgement) -> str:
    names = _MEASURED_OF_FAILED if judgement.outcome == "failed" else MEASURED
    text = json.dumps({name: to_plain(getattr(judgement, name)) for name in names}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
