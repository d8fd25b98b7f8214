"""Show a result to the user of a script or a notebook, as the commands show it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from joulediff.archive.container import is_recording
from joulediff.archive.reader import load
from joulediff.model.apis.api_diff import ApiDiff
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.apis.scaling import Scaling
from joulediff.model.diff import Diff
from joulediff.model.display import record_of
from joulediff.model.errors import ArchiveError, WrongType
from joulediff.model.measurement import BlockMeasurement, Checkup, Measurement
from joulediff.model.run import Run
from joulediff.report.limits import TOP_FINDINGS, TOP_ROWS
from joulediff.report.terminal.text import open_console
from joulediff.report.views.run.rows import By


def show(result: object, *, by: By = "op", top: int | None = None, every: bool = False) -> None:
    """Print a result, or the one in a file, as the commands do; in a notebook it is displayed as HTML.

    A result is a Run, ApiRun, Diff, Measurement, Checkup, or a measured block; a file is a .jd recording, or a diff in
    JSON.
    `by` groups the operators of a run: `op`, `module`, `line`, `kernel` or `region`. `top` is the number of rows of a
    run, or of findings of a diff; `every` shows all findings with all evidence.
    """
    path = str(result) if isinstance(result, str | Path) else None
    record = _read(Path(result)) if isinstance(result, str | Path) else record_of(result)
    if record is None:
        raise WrongType(f"there is nothing to show yet: {result!r}", fix="show it after the block")
    if (display := _notebook_display()) is None:
        print_result(record, open_console(), by=by, top=top, every=every, path=path)
        return
    from joulediff.report.notebook import to_html

    display({"text/html": to_html(record, by=by, top=top, every=every), "text/plain": repr(record)}, raw=True)


def print_result(
    record: object,
    console: Console,
    *,
    by: By = "op",
    top: int | None = None,
    every: bool = False,
    path: str | None = None,
) -> None:
    """Print a record on a console; `path` is its file. Formats are imported when they are needed."""
    if isinstance(record, Diff):
        from joulediff.report.terminal.diff import print_diff

        print_diff(record, console, top=TOP_FINDINGS if top is None else top, every=every)
    elif isinstance(record, Run):
        from joulediff.report.terminal.run import print_run

        print_run(record, console, by=by, top=TOP_ROWS if top is None else top, path=path)
    elif isinstance(record, ApiRun):
        from joulediff.report.terminal.apis import print_api_run

        print_api_run(record, console, top=TOP_ROWS if top is None else top, every=every, path=path)
    elif isinstance(record, ApiDiff):
        from joulediff.report.terminal.apis_diff import print_api_diff

        print_api_diff(record, console, top=TOP_FINDINGS if top is None else top, every=every)
    elif isinstance(record, Measurement):
        from joulediff.report.terminal.measurement import print_measurement

        print_measurement(record, console)
    elif isinstance(record, BlockMeasurement):
        from joulediff.report.terminal.measurement import print_block

        print_block(record, console)
    elif isinstance(record, Scaling):
        from joulediff.report.terminal.scaling import print_scaling

        print_scaling(record, console)
    elif isinstance(record, Checkup):
        from joulediff.report.terminal.doctor import print_checkup

        print_checkup(record, console)
    else:
        raise WrongType(
            f"there is no report of an object of type {type(record).__name__}",
            fix="give a Run, ApiRun, Diff, Measurement, Scaling or Checkup, a block, or the path of a .jd file",
        )


def _read(path: Path) -> object:
    if is_recording(path) or path.suffix != ".json":
        return load(path)
    from joulediff.report.json.saved import result_from_json

    try:
        return result_from_json(path.read_bytes())
    except OSError as error:
        raise ArchiveError(f"cannot read {path} ({error.strerror})", fix="name a .jd file or a diff in JSON") from error


def _notebook_display() -> Callable[..., object] | None:
    """Return the function that displays in this notebook; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    return importlib.import_module("IPython.display").display  # type: ignore[no-any-return]
