"""Keep the measured properties of this machine's sensors in the user's cache.

The file is optional: if it is missing, broken or from elsewhere, sensors have their nominal properties.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from joulediff.archive.scratch import write_whole
from joulediff.model.measurement import Domain, Learned

SCHEMA = "joulediff.sensors/1"
# A few hundred sensors; a larger file is not ours.
MAX_FILE_BYTES = 1024 * 1024
# No sensor worth reading is slower than a minute or coarser than a kilojoule.
MAX_PERIOD_S = 60.0
MAX_RESOLUTION_J = 1000.0


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of joulediff's cache: `JOULEDIFF_CACHE`, or the system's folder for caches."""
    env = os.environ if env is None else env
    if folder := env.get("JOULEDIFF_CACHE"):
        return Path(folder)
    if folder := env.get("XDG_CACHE_HOME"):
        return Path(folder) / "joulediff"
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "joulediff"
    return home.joinpath(*(["Library", "Caches"] if sys.platform == "darwin" else [".cache"])) / "joulediff"


class SensorCache:
    """Measured properties by sensor. `problem` says why the file could not be used, if it could not."""

    def __init__(self, folder: Path | None = None, *, machine: str | None = None) -> None:
        self.path = (folder or cache_folder()) / "sensors.json"
        self._machine = machine or platform.node()
        self.problem: str | None = None
        self._all = self._load()

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            if self.path.stat().st_size > MAX_FILE_BYTES:
                raise ValueError("it is too large")
            data = json.loads(self.path.read_text())
            if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("sensors"), dict):
                raise ValueError("it is of another kind")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self.problem = f"{self.path} is ignored ({_one_line(error)}); delete it, `joulediff doctor` makes a new one"
            return {}
        return {key: row for key, row in data["sensors"].items() if _is_sound(row)}

    def apply(self, domain: Domain) -> Domain:
        """Return `domain` with the period and resolution that were found on this machine."""
        row = self._all.get(f"{self._machine}/{domain.key}")
        if row is None or domain.source == "estimated":
            return domain
        return replace(domain, period_s=float(row["period_s"]), resolution_j=float(row["resolution_j"]))

    def store(self, learned: Sequence[Learned]) -> None:
        """Add to the file; a folder that cannot be written is noted in `problem`."""
        self._all.update({f"{self._machine}/{each.key}": asdict(each) for each in learned})
        content = json.dumps({"schema": SCHEMA, "sensors": self._all}, indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, content.encode())
        except OSError as error:
            self.problem = f"the sensor cache cannot be written to {self.path.parent} ({error.strerror})"


def _is_sound(row: object) -> bool:
    if not isinstance(row, dict):
        return False
    limits = (("period_s", MAX_PERIOD_S), ("resolution_j", MAX_RESOLUTION_J))
    return all(isinstance(row.get(name), int | float) and 0 < row[name] <= limit for name, limit in limits)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
