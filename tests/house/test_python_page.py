"""The code of docs/python.md runs as written, and names every public name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import joulediff as jd
import paths
from joulediff.measuring.idle import wait_for_rest

PAGE = (paths.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMENTS = re.compile(r"(?:^# +\S.*\n)+\Z", re.MULTILINE)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wait(*args: Any, **options: Any) -> Any:
        return wait_for_rest(*args, **{**options, "wait_s": 0.0})

    monkeypatch.setattr("joulediff.measuring.step.wait_for_rest", wait)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.ROUNDS", {})
    monkeypatch.chdir(tmp_path)


def test_the_examples_run_in_order_and_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) > 8
    names: dict[str, Any] = {"__name__": "example"}
    printed = 0
    for block in BLOCKS:
        exec(compile(block, "python.md", "exec"), names)
        out = capsys.readouterr().out
        said = COMMENTS.search(block)
        if said is not None:
            lines = [line.removeprefix("# ") for line in said.group().splitlines()]
            assert [line.strip() for line in lines] == [line.strip() for line in out.splitlines()]
            printed += 1
    assert printed == 2, "the errors are quoted in full"
    assert torch.equal(names["old"](), names["new"]())


def test_every_public_name_is_on_the_page() -> None:
    missing = [name for name in jd.__all__ if not name.startswith("_") and not re.search(rf"\b{name}\b", PAGE)]
    assert missing == []
