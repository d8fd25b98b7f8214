"""The cases that are there, and which of them can run here. A package is looked up by its metadata, never imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from joulediff.cases.case import FILE, Case, CaseError, DeviceName, read_case

LIBRARY = Path(__file__).parent / "library"
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def find_cases(folder: Path | None = None) -> tuple[Case, ...]:
    """Return the cases in a folder, or else the library's own: the published ones first, then by id."""
    place = LIBRARY if folder is None else folder
    if not place.is_dir():
        raise CaseError(f"there is no folder {place}", fix="name a folder that holds a folder for each case")
    found = (read_case(path.parent) for path in place.glob(f"*/{FILE}"))
    return tuple(sorted(found, key=lambda case: (case.origin != "published", case.id)))


def find_case(name: str, folder: Path | None = None) -> Case:
    """Return the case of that id."""
    return pick_cases([name], find_cases(folder))[0]


def pick_cases(names: Sequence[str], cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the cases of these ids, in the order in which they are named, each once."""
    known = {case.id: case for case in cases}
    for name in names:
        if name not in known:
            near = [each for each in known if name in each][:3] or difflib.get_close_matches(name, known, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise CaseError(f"no case is called {name}", fix=f"{hint}`joulediff cases list` has them all")
    return tuple(known[name] for name in dict.fromkeys(names))


def lacks(case: Case, device: str) -> str | None:
    """Return why a case cannot run on a device here: what it does not run on, or the package that is not there."""
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
    """Return where to run a case: on the GPU where there is one and the case is about it."""
    return "cuda" if has_gpu and "cuda" in case.devices else "cpu"


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without what follows them: 2.4.0+cpu, 2.4 and 2.4rc1 are alike."""
    found = _RELEASE.match(version)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
