"""The run of the `gpu` tests that passed last, as stored in tests/gpu/last_passed.json."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import version

import paths

LAST_PASSED = paths.TESTS / "gpu" / "last_passed.json"


def describe(commit: str | None, passed: int) -> dict[str, object]:
    """Return the record of a run in which this number of tests passed; the commit is that of the checkout if None."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit or read_commit(),
        "card": card,
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "passed": passed,
    }


def read_commit() -> str:
    """Return the commit of the checkout, with a mark if files differ from it."""
    words = ["git", "-C", str(paths.ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
