"""The run of the `gpu` tests that passed last, as stored in tests/gpu/last_passed.json."""

from __future__ import annotations

import json
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import paths

LAST_PASSED = paths.TESTS / "gpu" / "last_passed.json"


def describe(commit: str | None, passed: int) -> dict[str, object]:
    """Return the record of a run in which this number of tests passed; the commit is that of the checkout if None."""
    card, driver = read_card()
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit or read_commit(),
        "card": card,
        "driver": driver,
        "python": platform.python_version(),
        "torch": version("torch"),
        "passed": passed,
    }


def read_card() -> tuple[str, str]:
    """Return the name of the first card, and the version of its driver."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)), pynvml.nvmlSystemGetDriverVersion()


def write(place: Path, commit: str | None, passed: int) -> None:
    """Write the record of a run to a file."""
    place.write_text(json.dumps(describe(commit, passed), indent=1) + "\n")


def read_commit() -> str:
    """Return the commit of the checkout, with a mark if files differ from it."""
    words = ["git", "-C", str(paths.ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
