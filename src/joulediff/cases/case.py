"""One known case of wasted energy: two programs with the same result, and the expected finding.

A case is a folder with `case.toml`, `wasteful.py` and `lean.py`; its name is the id of the case. An unknown entry in
`case.toml` is an error, so that a misspelt entry is not taken for a missing one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from joulediff.archive.codec import Document, from_plain, shown
from joulediff.cases.answer import LEAN, WASTEFUL, Answer
from joulediff.model.errors import ArchiveError, JoulediffError
from joulediff.model.finding import FindingKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Origin = Literal["published", "ours"]
DeviceName = Literal["cpu", "cuda"]

FILE = "case.toml"
_TOML = Document(within="")
_FIX = "docs/add-a-case.md explains each entry"


class CaseError(JoulediffError):
    """A case cannot be found, or its folder does not hold one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of a case: energy and time of the wasteful step over those of the lean one."""

    device: str
    date: str
    versions: str
    energy_ratio: float
    time_ratio: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A known case of wasted energy. A diff must report `kind` (or one of `also`) with any of the `keys`."""

    folder: Path
    title: str
    system: str
    """The system that the published report is about: `PyTorch`."""
    origin: Origin
    kind: FindingKind
    keys: tuple[str, ...]
    devices: tuple[DeviceName, ...]
    """The devices on which the waste exists."""
    about: str
    also: tuple[FindingKind, ...] = ()
    """Other kinds that are right: the same waste may show differently on another device."""
    lines: tuple[str, ...] = ()
    """Accepted lines of the wasteful program: the exact text of each, without the space around it."""
    links: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """Packages, each with its minimum version."""
    expected: str = ""
    """The cause in the words of the report or the patch that the first link names, written before any run."""
    differs: str = ""
    """How the programs differ from the report: sizes, loops, layers left out."""
    stand_in: bool = False
    """Whether the programs use other operators or another library in place of the system of the report."""
    fixed: str = ""
    """The fix in the system itself, if there is one."""
    processes: int = 1
    measured: tuple[Measured, ...] = ()

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def answer(self) -> Answer:
        """The right answer: what the first finding must say."""
        return Answer(self.wasteful, (self.kind, *self.also), self.keys, self.lines)

    @property
    def wasteful(self) -> Path:
        """The program that wastes energy."""
        return self.folder / WASTEFUL

    @property
    def lean(self) -> Path:
        """The program that computes the same without the waste."""
        return self.folder / LEAN


def read_case(folder: Path) -> Case:
    """Return the case in a folder; raises CaseError that names the wrong entry."""
    path = folder / FILE
    plain = _read_toml(path)
    try:
        _check(plain)
        hints = get_type_hints(Case)
        case = Case(folder, **{name: from_plain(hints[name], value, name, _TOML) for name, value in plain.items()})
    except ArchiveError as error:
        raise CaseError(f"{path}: {error.what}", fix=error.fix or _FIX) from None
    for program in (case.wasteful, case.lean):
        if not program.is_file():
            raise CaseError(f"{folder} has no {program.name}", fix="a case is two programs: wasteful.py and lean.py")
    return case


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaseError(f"cannot read {path} ({error.strerror})", fix="a case is a folder with a case.toml") from error
    except ValueError as error:
        raise CaseError(f"{path} is not TOML ({shown(error)})", fix=_FIX) from error
    return found


def _check(plain: Mapping[str, Any]) -> None:
    """Raise for entries that are missing or unknown, and for words that are not allowed."""
    known = {each.name: each for each in fields(Case) if each.name != "folder"}
    _refuse_unknown(plain, known, "")
    for at, each in enumerate(rows if isinstance(rows := plain.get("measured"), list) else []):
        if isinstance(each, Mapping):
            _refuse_unknown(each, [entry.name for entry in fields(Measured)], f" in measured[{at}]")
    for name in ("title", "system", "origin", "kind", "keys", "devices", "about"):
        if plain.get(name) in (None, "", []):
            raise ArchiveError(f"{name} is {'empty' if name in plain else 'missing'}", fix=_FIX)
    _expect_words("origin", [plain["origin"]], get_args(Origin))
    _expect_words("kind", [plain["kind"]], get_args(FindingKind))
    _expect_words("also", plain.get("also"), get_args(FindingKind))
    _expect_words("devices", plain["devices"], get_args(DeviceName))


def _refuse_unknown(plain: Mapping[str, Any], known: Mapping[str, Any] | Sequence[str], within: str) -> None:
    unknown = [name for name in plain if name not in known]
    if unknown:
        raise ArchiveError(
            f"{shown(unknown[0])} is not an entry of a case{within}", fix=f"there are: {', '.join(known)}"
        )


def _expect_words(name: str, found: Any, words: Sequence[str]) -> None:
    for each in found if isinstance(found, list) else []:
        if each not in words:
            raise ArchiveError(f"{name} may not be {shown(each)}", fix=f"one of {', '.join(words)}")
