"""The repository says which commit last passed the tests of a real GPU."""

from __future__ import annotations

import json
import re
from datetime import date

from gpu_runs import LAST_PASSED


def test_the_last_run_on_a_gpu_is_complete() -> None:
    found = json.loads(LAST_PASSED.read_text())
    assert date.fromisoformat(found["date"])
    assert re.fullmatch("[0-9a-f]{40}", found["commit"]), "a commit, without changes of its own"
    assert found["passed"] > 0
    assert all(found[name] for name in ("card", "driver", "python", "torch"))
