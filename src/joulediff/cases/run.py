"""Run a case as `joulediff diff wasteful.py lean.py` does, and keep what came of it in a folder.

The folder holds `a.jd`, `b.jd` and `diff.json`, of which the case can be judged again without the device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from joulediff.archive import save
from joulediff.cases.case import Case, DeviceName
from joulediff.child.interpreter import find_interpreter
from joulediff.child.request import Request
from joulediff.diagnosis.compare import compare_programs
from joulediff.diagnosis.live import Program
from joulediff.diffs import Diff, Thresholds
from joulediff.findings import SideName
from joulediff.report.diff_json import diff_to_json
from joulediff.runs import Run
from joulediff.stability.watch import Watch

Size = Literal["small", "large"]
SECONDS, REPLAY_SECONDS, WAIT_S = 2.0, 20.0, 10.0
# As `joulediff diff` has it.
TOLERANCE = 1e-3
DIFF = "diff.json"
RUNS: dict[SideName, str] = {"a": "a.jd", "b": "b.jd"}
SAME_LABEL = "lean again"


def run_case(
    case: Case,
    *,
    device: DeviceName,
    size: Size,
    folder: Path,
    request: Request | None = None,
    confirm: bool = False,
    lean: bool = False,
    watch: Watch | None = None,
) -> tuple[Diff, dict[SideName, Path]]:
    """Return the diff of a case's two programs, and the files with their runs; what the folder held of both is gone.

    `request` says how long and with which meter to measure. With `lean`, the lean program runs on both sides.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[SideName, Path] = {side: folder / name for side, name in RUNS.items()}
    for old in (*files.values(), folder / DIFF):
        with suppress(FileNotFoundError):
            old.unlink()
    asked = request or Request("", "", SECONDS, WAIT_S, replay_seconds=REPLAY_SECONDS)
    asked = replace(asked, arguments=("--device", device, "--size", size))
    programs = {side: _program(case, side, asked, file, lean=lean) for side, file in files.items()}
    diff = compare_programs(
        programs, {}, thresholds=Thresholds(), tolerance=TOLERANCE, confirm=confirm, watch=watch or Watch()
    )
    (folder / DIFF).write_text(diff_to_json(diff), encoding="utf-8")
    return diff, files


def is_same(diff: Diff) -> bool:
    """Return whether a case's lean program ran on both sides."""
    return diff.b.label == SAME_LABEL


def _program(case: Case, side: SideName, request: Request, file: Path, *, lean: bool) -> Program:
    path, label = (case.wasteful, "wasteful") if side == "a" else (case.lean, "lean")
    if lean:
        path, label = case.lean, "lean" if side == "a" else SAME_LABEL
    return Program(replace(request, program=str(path), label=label), find_interpreter(), _keep_in(file))


def _keep_in(file: Path) -> Callable[[Run], None]:
    def keep(run: Run) -> None:
        save(run, file)

    return keep
