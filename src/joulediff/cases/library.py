"""The library of cases, and which of them can run here. Packages are looked up by metadata, never imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from joulediff.cases.case import FILE, Case, CaseError, DeviceName, read_case
from joulediff.model.errors import MeterUnavailable

LIBRARY = Path(__file__).parent / "library"
_FIX = "name a folder that holds a folder for each case"
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def find_cases(folder: Path | None = None, names: Sequence[str] | None = None) -> tuple[Case, ...]:
    """Return the cases in a folder, by default the built-in ones: the published ones first, then by id.

    With `names`, only these, each once and in that order; other cases are not read.
    """
    place = LIBRARY if folder is None else folder
    if not place.is_dir():
        raise CaseError(f"there is no folder {place}", fix=_FIX)
    known = {path.parent.name: path.parent for path in place.glob(f"*/{FILE}")}
    if not known:
        raise CaseError(f"{place} holds no case", fix=_FIX)
    if names is None:
        found = (read_case(each) for each in known.values())
        return tuple(sorted(found, key=lambda case: (case.origin != "published", case.id)))
    _refuse_unknown(names, known)
    return tuple(read_case(known[name]) for name in dict.fromkeys(names))


def find_case(name: str, folder: Path | None = None) -> Case:
    """Return the case of that id."""
    return find_cases(folder, [name])[0]


def _refuse_unknown(names: Sequence[str], known: Iterable[str]) -> None:
    ids = sorted(known)
    for name in names:
        if name not in ids:
            near = [each for each in ids if name in each][:3] or difflib.get_close_matches(name, ids, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise CaseError(f"no case is called {name}", fix=f"{hint}`joulediff cases list` shows all cases")


def lacks(case: Case, device: str) -> str | None:
    """Return why a case cannot run here: another device, or a package that is missing; None if it can run."""
    if device not in case.devices:
        return f"only on {' and '.join(case.devices)}"
    for package, least in case.needs.items():
        try:
            here = metadata.version(package)
        except metadata.PackageNotFoundError:
            return f"needs {package}"
        if _release(here) < _release(least):
            return f"needs {package} {least} ({here} here)"
    return None


def choose_device(case: Case, *, has_gpu: bool) -> DeviceName:
    """Return the device to run a case on: the GPU if there is one and the case uses it."""
    return "cuda" if has_gpu and "cuda" in case.devices else "cpu"


def has_nvidia() -> bool:
    """Return whether a program here sees an NVIDIA GPU, without starting CUDA."""
    from joulediff.measuring.meters.nvml import open_nvml

    try:
        open_nvml().close()
    except MeterUnavailable:
        return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without suffixes: 2.4.0+cpu, 2.4 and 2.4rc1 are equal."""
    found = _RELEASE.match(version)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
