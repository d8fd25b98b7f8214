"""Run a case like `joulediff diff wasteful.py lean.py`, and store the result in a folder.

The folder has `a.jd`, `b.jd` and `diff.json`; from these the case can be judged again without the device.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from joulediff.archive import Snapshot, save
from joulediff.cases.case import Case, DeviceName
from joulediff.diagnosis.compare_programs import compare_programs
from joulediff.diagnosis.interleaved_recording import Program
from joulediff.model.diff import Diff
from joulediff.model.options import CASE_OPTIONS, DiffOptions, RecordOptions
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener
from joulediff.process.client import RemoteProgram
from joulediff.process.exit_reasons import explain_exit
from joulediff.process.interpreter import find_interpreter
from joulediff.process.request import Request
from joulediff.report.json.diff import diff_to_json

Size = Literal["small", "large"]
DIFF = "diff.json"
RUNS: dict[SideName, str] = {"a": "a.jd", "b": "b.jd"}
SAME_LABEL = "lean again"
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_SIGNALS = 4096


def programs_of(
    case: Case,
    *,
    device: DeviceName,
    size: Size,
    folder: Path,
    options: RecordOptions = CASE_OPTIONS,
    lean: bool = False,
) -> dict[SideName, Program]:
    """Return the two programs of a case; their runs are stored in a folder. With `lean`, both are the lean one."""
    arguments = ("--device", device, "--size", size)
    return {side: _program(case, side, options, arguments, folder / name, lean=lean) for side, name in RUNS.items()}


def run_case(
    case: Case,
    *,
    device: DeviceName,
    size: Size,
    folder: Path,
    options: RecordOptions = CASE_OPTIONS,
    confirm: bool = DiffOptions.confirm,
    lean: bool = False,
    listener: ProgressListener | None = None,
    ahead: Mapping[SideName, RemoteProgram] | None = None,
) -> tuple[Diff, dict[SideName, Path]]:
    """Return the diff of a case's two programs, and the files of their runs; older files in the folder are deleted.

    Ctrl-C always raises: a diff whose trials were stopped cannot be judged. `options` say how long and with which
    meter to measure. With `lean`, the lean program runs on both sides. `ahead` are processes of these programs that
    were started before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[SideName, Path] = {side: folder / name for side, name in RUNS.items()}
    for old in (*files.values(), folder / DIFF):
        with suppress(FileNotFoundError):
            old.unlink()
    programs = programs_of(case, device=device, size=size, folder=folder, options=options, lean=lean)
    with _stop_noted() as find_stop:
        diff = compare_programs(
            programs,
            {},
            DiffOptions(confirm=confirm),
            listener=listener or ProgressListener(),
            ahead=ahead,
        )
        if (number := find_stop()) is not None:
            raise explain_exit("", None, number)
    diff = replace(
        diff,
        a=replace(diff.a, program=_shown(programs["a"].request.program)),
        b=replace(diff.b, program=_shown(programs["b"].request.program)),
    )
    (folder / DIFF).write_text(diff_to_json(diff), encoding="utf-8")
    return diff, files


def is_same(diff: Diff) -> bool:
    """Return whether the lean program of a case ran on both sides."""
    return diff.b.label == SAME_LABEL


@contextmanager
def _stop_noted() -> Iterator[Callable[[], int | None]]:
    """Give a function that returns the signal that asked to stop, if one came.

    A diagnosis that is stopped during trials ends them and returns normally, so the signal must be noted. Signals
    reach only the main thread; in other threads none is noted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield lambda: _read_stop(reader)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _read_stop(reader: int) -> int | None:
    try:
        numbers = os.read(reader, _MOST_SIGNALS)
    except BlockingIOError:
        return None
    return next((number for number in numbers if number in _STOPS), None)


def _program(
    case: Case, side: SideName, options: RecordOptions, arguments: tuple[str, ...], file: Path, *, lean: bool
) -> Program:
    path, label = (case.wasteful, "wasteful") if side == "a" else (case.lean, "lean")
    if lean:
        path, label = case.lean, "lean" if side == "a" else SAME_LABEL
    request = Request(str(path), replace(options, label=label), arguments)
    return Program(request, find_interpreter(), _keep_in(file, str(path)))


def _shown(program: str) -> str:
    """Return the name of a program in stored files: without the folders of this machine."""
    return "/".join(("cases", *Path(program).parts[-2:]))


def _keep_in(file: Path, program: str) -> Callable[[Snapshot], None]:
    def keep(recording: Snapshot) -> None:
        save(recording.changed(program=_shown(program)), file)

    return keep
