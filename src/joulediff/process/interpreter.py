"""Finds the Python that runs the program, and the packages it lacks for recording.

Another environment need not have joulediff installed: this process provides joulediff, pynvml, and psutil and scipy if
their binaries fit. It never provides numpy, because the program's own numpy must be the only one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from joulediff.model.errors import JoulediffError
from joulediff.process.request import PACKAGES

OLDEST = (3, 10)
# The first start of an environment on a network disk takes seconds.
PROBE_S = 60.0
# Pure Python, so it fits everywhere. Without it NVML is not available, which is no error on a machine without a GPU.
PROVIDED_ALWAYS = ("pynvml",)
PROVIDED_BINARY = ("psutil", "scipy")

# Runs under any Python, however old, and must not import from the current folder.
_PROBE = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json
found = {"version": list(sys.version_info[:3]), "binary": [], "has": []}
if sys.version_info >= (3, 10):
    import importlib.util, sysconfig
    found["binary"] = [sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_platform()]
    found["has"] = [name for name in %r if importlib.util.find_spec(name)]
sys.stdout.write("\\n" + json.dumps(found) + "\\n")
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python to run a program with. `provided` has the folder of each package that it takes from this environment."""

    path: str
    provided: Mapping[str, str] = field(default_factory=dict)


def find_interpreter(path: str | None = None) -> Interpreter:
    """Return the Python at `path`, or this one; raises JoulediffError if it cannot record."""
    if path is None:
        return Interpreter(sys.executable, _folders((*PROVIDED_ALWAYS, *PROVIDED_BINARY)))
    place = _locate(path)
    found = _probe(path, place)
    alike = found.binary == (sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_platform())
    provided = _folders((*PROVIDED_ALWAYS, *(PROVIDED_BINARY if alike else ())))
    missing = [name for name in PACKAGES if name not in found.has and name not in provided]
    if missing:
        raise JoulediffError(
            f"{path} (Python {found.version_text}) lacks packages that recording needs: {', '.join(missing)}",
            fix=f"{path} -m pip install {' '.join(missing)}",
        )
    return Interpreter(place, {name: folder for name, folder in provided.items() if name not in found.has})


@dataclass(frozen=True, slots=True)
class _Found:
    version: tuple[int, ...]
    binary: tuple[str, ...]
    has: tuple[str, ...]

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def _locate(path: str) -> str:
    found = Path(path)
    if os.sep not in path and not found.exists():
        on_path = shutil.which(path)
        if on_path is not None:
            return on_path
    if not found.exists():
        raise JoulediffError(f"there is no Python at {path}", fix="give the path of an interpreter: ENV/bin/python")
    if found.is_dir():
        inside = found / "bin" / "python"
        hint = str(inside) if inside.exists() else "ENV/bin/python"
        raise JoulediffError(f"{path} is a folder, not a Python", fix=f"name the interpreter in it: {hint}")
    if not os.access(found, os.X_OK):
        raise JoulediffError(f"{path} cannot be executed", fix="give the path of an interpreter: ENV/bin/python")
    # Not resolved: an environment's python is a link, and knows its packages by where the link is.
    return str(found.absolute())


def _probe(path: str, place: str) -> _Found:
    no_python = JoulediffError(f"{path} is not a Python", fix="give the path of an interpreter: ENV/bin/python")
    probe = _PROBE % ((*PACKAGES, *PROVIDED_ALWAYS),)
    try:
        done = subprocess.run(
            [place, "-c", probe], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False
        )
        fields = json.loads(done.stdout.splitlines()[-1])
        found = _Found(tuple(fields["version"]), tuple(fields["binary"]), tuple(fields["has"]))
    except subprocess.TimeoutExpired as error:
        raise JoulediffError(f"{path} did not answer in {PROBE_S:.0f} s", fix="is it a Python that starts?") from error
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise no_python from error
    if found.version < OLDEST:
        raise JoulediffError(
            f"{path} is Python {found.version_text}, and recording needs {OLDEST[0]}.{OLDEST[1]} or newer",
            fix="give a newer interpreter with the program's packages in it",
        )
    return found


def _folders(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the folder of each package that this environment has, without importing the package."""
    found = {name: find_spec(name) for name in packages}
    origins = {name: Path(spec.origin) for name, spec in found.items() if spec is not None and spec.origin}
    return {name: str(at.parents[1 if at.name == "__init__.py" else 0]) for name, at in origins.items()}
