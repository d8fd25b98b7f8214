"""The workflows of docs/ci.md run as they stand there, with a stand-in for GitHub's command and short measurements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import paths
from joulediff.archive.reader import load

PAGE = (paths.ROOT / "docs" / "ci.md").read_text()
BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
BLOCKS = dict(BLOCK.findall(PAGE))
STEP = """import torch

def build():
    torch.set_num_threads(1)
    x = torch.ones(128, 128)
    def step():
        for _ in range({products}):
            y = x @ x
        return y
    return step
"""
SHORT = "--seconds 0.2 --replay-seconds 0.2 --wait 0 --meter estimated"
WRAPPER = """#!/bin/sh
case "$1" in diff) more="--settle 0";; esac
exec "{python}" -m joulediff "$@" {short} $more
"""
# Has no comment to edit at first, as on a new pull request.
GH = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in *--edit-last*) test -f "{comment}" || exit 1;; esac
cat "$5" > "{comment}"
"""


def run(commands: str, folder: Path, tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run commands as a CI system does: the first that fails ends them."""
    variables = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(paths.ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        **environ,
    }
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", commands],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def write_step(folder: Path, products: int) -> None:
    (folder / "bench").mkdir(parents=True, exist_ok=True)
    (folder / "bench" / "step.py").write_text(STEP.format(products=products))


@pytest.fixture(autouse=True)
def _commands(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    scripts = {
        "joulediff": WRAPPER.format(python=sys.executable, short=SHORT),
        "gh": GH.format(log=tmp_path / "gh.log", comment=tmp_path / "comment.md"),
    }
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)


def github_steps() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the job, and its steps with commands by their names."""
    job = yaml.safe_load(BLOCKS["github"])["jobs"]["gate"]
    return job, {each["name"]: each for each in job["steps"] if "run" in each}


def test_the_github_workflow(tmp_path: Path) -> None:
    job, steps = github_steps()
    write_step(tmp_path / "base", products=1)
    write_step(tmp_path / "head", products=9)
    files = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    done = run(steps["Compare"]["run"], tmp_path, tmp_path, PROGRAM=job["env"]["PROGRAM"], **files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "code=3\n"
    assert "gate failed: B uses" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    for _ in range(2):
        assert run(steps["Comment"]["run"], tmp_path, tmp_path, PULL_REQUEST="7").returncode == 0
    assert "gate failed: B uses" in (tmp_path / "comment.md").read_text()
    calls = (tmp_path / "gh.log").read_text().splitlines()
    assert [each.endswith("--edit-last") for each in calls] == [True, False, True]
    assert all(each.startswith("pr comment 7 --body-file energy.md") for each in calls)


@pytest.mark.parametrize(
    ("code", "ends", "word"), [("0", 0, "passed"), ("2", 0, "::warning"), ("3", 1, "::error"), ("1", 1, "::error")]
)
def test_the_verdict_of_the_github_job(tmp_path: Path, code: str, ends: int, word: str) -> None:
    done = run(github_steps()[1]["Verdict"]["run"], tmp_path, tmp_path, CODE=code)
    assert (done.returncode, word in done.stdout) == (ends, True)


def test_the_gitlab_job(tmp_path: Path) -> None:
    job = yaml.safe_load(BLOCKS["gitlab"])["energy"]
    project = tmp_path / "project"
    write_step(project, products=9)
    git = "git -c user.name=n -c user.email=e@example.com"
    setup = f"git init -q && git add . && {git} commit -qm base"
    assert run(setup, project, tmp_path).returncode == 0
    base = run("git rev-parse HEAD", project, tmp_path).stdout.strip()
    write_step(project, products=1)
    commands = "\n".join(job["script"])
    variables = {"PROGRAM": job["variables"]["PROGRAM"], "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    done = run(commands, project, tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert "gate passed: B uses" in (project / "energy.md").read_text()
    assert job["allow_failure"] == {"exit_codes": 2}


def test_a_stored_baseline(tmp_path: Path) -> None:
    write_step(tmp_path, products=1)
    done = run(BLOCKS["record"], tmp_path, tmp_path)
    assert load(tmp_path / "base.jd").label == "base", done.stderr
    write_step(tmp_path, products=30)
    done = run(BLOCKS["baseline"], tmp_path, tmp_path)
    report = (tmp_path / "energy.md").read_text()
    # Other programs of the machine may disturb a measurement of the test; then there is no verdict.
    wanted = {3: "gate failed", 2: "gate cannot tell"}
    assert wanted[done.returncode] in report, done.stderr
