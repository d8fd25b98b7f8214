"""Programs without a framework, as a user meets them: measured, split by functions, compared, and changed on trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHORT = ("--seconds", "0.6", "--wait", "0", "--meter", "estimated", "--cpu-watts", "10")
SLOW = """\
import json


def hand_over(message):
    return json.loads(json.dumps(message))


def count(messages):
    return [sum(hand_over(each)["values"]) for each in messages]


def build():
    messages = [{"id": at, "values": list(range(200))} for at in range(60)]

    def step():
        return count(messages)

    return step
"""
FAST = SLOW.replace("json.loads(json.dumps(message))", "dict(message)")


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    Path("fast.py").write_text(FAST)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "joulediff", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def told(diff: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["expensive"], each["cause"]["key"], each["proof"]) for each in diff["findings"]]


def test_two_programs_are_compared_and_the_change_is_tried() -> None:
    ended = run("diff", "slow.py", "fast.py", *SHORT, "--json", "diff.json", "--markdown", "diff.md")
    assert ended.returncode == 0, ended.stderr
    diff = json.loads(Path("diff.json").read_text())
    assert diff["ratio"]["low"] > 2
    (finding,) = told(diff)
    assert finding[0] == "a" and finding[1] in ("json.loads", "json.dumps") and finding[2] == "cause confirmed"
    assert diff["findings"][0]["cause"]["location_a"]["text"] == "return json.loads(json.dumps(message))"
    assert diff["outputs_agree"] and "A and B return equal values" in diff["notes"]
    rows = {row["name"]: row for row in diff["regions"]}
    assert rows["hand_over"]["kind"] == "function" and rows["hand_over"]["finding"] == "1"
    for side in ("a", "b"):
        energies = [row[f"energy_{side}"] for row in diff["regions"]]
        total = sum(each["joules"] for each in energies if each is not None)
        assert total == pytest.approx(diff[side]["step"]["energy"]["joules"])
    for text in (ended.stdout, Path("diff.md").read_text()):
        assert "no operators" in text and "split among functions" in text
        assert "0 op" not in text and "region" not in text


def test_a_program_with_itself_has_no_finding() -> None:
    ended = run("diff", "slow.py", "slow.py", *SHORT, "--json", "-")
    diff = json.loads(ended.stdout)
    assert diff["findings"] == [] and diff["outputs_agree"]


def test_recordings_are_compared_and_shown_later() -> None:
    for name in ("slow", "fast"):
        assert run("record", f"{name}.py", "-o", f"{name}.jd", "--step-seconds", "0.6", *SHORT[2:]).returncode in (0, 2)
    ended = run("diff", "slow.jd", "fast.jd", "--json", "diff.json")
    assert ended.returncode == 0, ended.stderr
    (finding,) = told(json.loads(Path("diff.json").read_text()))
    assert finding[0] == "a" and finding[2] == "observed"
    shown = run("show", "slow.jd")
    assert shown.returncode == 0
    assert "energy of one step by function, split by samples of the host" in shown.stdout
    assert "hand_over" in shown.stdout and "slow.py:5" in shown.stdout
    parts = json.loads(run("show", "slow.jd", "--json", "-").stdout)
    assert parts["ops"] is None and parts["functions"][0]["function"] == "hand_over"
    assert 0 < parts["functions"][0]["energy"]["joules"] <= parts["step"]["energy"]["joules"]


def test_outputs_that_differ_make_a_trade_off() -> None:
    Path("other.py").write_text(FAST.replace('["values"]', '["values"][1:100]'))
    ended = run("diff", "slow.py", "other.py", *SHORT, "--json", "-")
    diff = json.loads(ended.stdout)
    assert not diff["outputs_agree"]
    assert any(note.startswith("A and B return different values") for note in diff["notes"])
    assert all(each["verdict"] == "tradeoff" or each["difference"] < 0.01 for each in diff["findings"])
