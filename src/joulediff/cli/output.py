"""The output of commands: reports go to standard output, progress to standard error if it is a terminal."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.progress import ProgressListener, StageTimes
from joulediff.model.run import Run
from joulediff.model.units import format_share

if TYPE_CHECKING:
    from joulediff.process.kept_output import KeptOutput

# The spinner costs CPU time while energy is measured, so it turns slowly (rich: 12.5 Hz).
REFRESH_HZ = 4.0
# A stage is printed again after this share of it: often enough to show progress.
STAGE_SHARE = 0.25
# Shorter stages are left out of the timings.
LEAST_STAGE_S = 0.05
# Runs with as many operators in all take a second to match.
LONG_OPS = 10_000
# File systems allow 255 bytes, and a letter may take four.
NAME_CHARS = 60
# The offset of the name of the first entry in a ZIP file.
_NAME_AT = 30


class Progress(ProgressListener):
    """Shows the stage on a terminal, and keeps a partial measurement and the error that ended it.

    `apart` is for a program whose standard error is redirected: the stage is still shown.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._file = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace") if apart else None
        self._console = Console(stderr=True, file=self._file)
        self._live: Live | None = None
        self.partial: Measurement | None = None
        self.failure: tuple[BaseException, int] | None = None

    def stage(self, text: str, share: float | None = None) -> None:
        if not self._console.is_terminal:
            return
        shown = text if share is None else f"{text}  {format_share(share)}"
        if self._live is None:
            # The program's output is not redirected: that would take time, and be measured.
            self._live = Live(
                console=self._console,
                refresh_per_second=REFRESH_HZ,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Spinner("dots", text=shown))

    def kept(self, measurement: Measurement) -> None:
        self.partial = measurement

    def failed(self, error: BaseException, call: int) -> None:
        self.failure = (error, call)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._file is not None:
            self._file.close()


class StageLines(ProgressListener):
    """Shows each stage as a line, on a terminal that another process prints to as well.

    A stage whose text differs only in numbers is shown again after each further `STAGE_SHARE` of it.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._shown = ""
        self._share = 0.0

    def stage(self, text: str, share: float | None = None) -> None:
        is_same = re.sub(r"\d+", "", text) == re.sub(r"\d+", "", self._shown)
        is_due = text != self._shown and (share or 0.0) >= self._share + STAGE_SHARE
        if (is_same and not is_due) or not sys.stderr.isatty():
            return
        self._shown, self._share = text, share or 0.0
        with suppress(OSError):  # a closed terminal must not end a recording
            sys.stderr.write(f"joulediff: {self._name}{text}\n")
            sys.stderr.flush()


def print_timings(times: StageTimes) -> None:
    """Print the seconds of each stage on standard error, in the order of their first report, and their sum."""
    times.stop()
    rows = [(stage, seconds) for stage, seconds in times.seconds.items() if seconds >= LEAST_STAGE_S]
    rows.append(("all stages", sum(times.seconds.values())))
    for stage, seconds in rows:
        click.echo(f"{seconds:7.1f} s  {stage}", err=True)


@contextmanager
def show_matching(a: Run, b: Run) -> Iterator[ProgressListener]:
    """Yield a listener for the matching of two runs, which shows its progress if it takes long."""
    if len(a.ops) + len(b.ops) < LONG_OPS:
        yield ProgressListener()
        return
    with Progress() as progress:
        yield progress


def open_console() -> Console:
    """Return the console for reports."""
    from joulediff.report.terminal.text import open_console as open_for_reports

    return open_for_reports()


def write_text(text: str, place: str) -> None:
    """Write the JSON of `--json` to a file, or to standard output for `-`."""
    if place == "-":
        sys.stdout.write(text)
        return
    try:
        Path(place).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(place, error.strerror or str(error), "--json") from error


def refuse_unwritable(place: str | None, *, option: str = "--json") -> None:
    """Raise if a report cannot be written to `place`, before anything is measured for it."""
    if place is None or place == "-":
        return
    path = Path(place)
    if path.is_dir():
        raise _unwritable(place, "it is a folder", option)
    if not path.parent.is_dir():
        raise _unwritable(place, "its folder does not exist", option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(place, "no permission", option)


def refuse_output(place: str, program: str) -> None:
    """Raise if a run cannot be saved at `place`, or would replace the program or a file that is not a recording."""
    from joulediff.archive.container import BEGIN, MANIFEST
    from joulediff.archive.writer import why_unwritable

    if (why := why_unwritable(place)) is not None:
        raise _unwritable(place, why, "-o")
    path = Path(os.path.realpath(place))
    if not path.exists():
        return
    with suppress(OSError):
        if path.samefile(program):
            raise _unwritable(place, "it is the program itself", "-o")
    try:
        with path.open("rb") as file:
            head = file.read(_NAME_AT + len(MANIFEST))
    except OSError as error:
        raise _unwritable(place, "there is a file that cannot be read", "-o") from error
    named = path.suffix == ".jd" or head[_NAME_AT:] == MANIFEST.encode()
    if not (head.startswith(BEGIN) and named):
        raise JoulediffError(
            f"cannot write {place} (it is a file that joulediff did not write)",
            fix="choose another file for -o, or remove this one first",
        )


def name_file(label: str) -> str:
    """Return the file name of a recording with this label: unsafe characters become dashes."""
    safe = re.sub(r"[^\w.+=@,-]+", "-", label).strip("-.")
    return f"{safe[:NAME_CHARS] or 'run'}.jd"


def form_of(place: str | None) -> str:
    """Return the report that the suffix of a file chooses; the terminal's without a file."""
    from joulediff.report.render import form_of as form_of_file

    return form_of_file(place)


def _unwritable(place: str, why: str, option: str) -> JoulediffError:
    return JoulediffError(f"cannot write {place} ({why})", fix=f"choose another file for {option}")


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files that reports are written to, by the option that names each; `-` is standard output."""

    files: Mapping[str, str | None]

    @property
    def any(self) -> bool:
        """Whether any report is written besides the terminal's."""
        return any(self.files.values())

    @property
    def takes_stdout(self) -> bool:
        """Whether a report is written to standard output."""
        return "-" in self.files.values()

    def refuse(self) -> None:
        """Raise if a report cannot be written, before anything is measured for it."""
        for option, place in self.files.items():
            refuse_unwritable(place, option=option)
            refuse_recording(place, option=option)
        places = [place for place in self.files.values() if place is not None]
        if places.count("-") > 1:
            raise JoulediffError("two reports cannot share standard output", fix="write one of them to a file")
        for place in places:
            if places.count(place) > 1:
                raise JoulediffError(f"two reports cannot share {place}", fix="choose a file for each")


@contextmanager
def stdout_kept_clean(active: bool) -> Iterator[None]:  # noqa: FBT001
    """Send the output of the program to standard error, so that standard output has only the report."""
    if not active:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)  # for the output of subprocesses and of C code
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


@contextmanager
def output_of_program(kept: KeptOutput | None, *, to_stderr: bool) -> Iterator[None]:
    """Send the output of the program, of its subprocesses and of C code to `kept`, or standard output to the error."""
    if kept is None:
        with stdout_kept_clean(to_stderr):
            yield
        return
    saved = [(fd, os.dup(fd)) for fd in (1, 2)]
    with os.fdopen(os.dup(kept.fileno()), "w", encoding="utf-8", errors="replace") as text:
        try:
            _flush_all()
            for fd, _ in saved:
                os.dup2(kept.fileno(), fd)
            with redirect_stdout(text), redirect_stderr(text):
                yield
        finally:
            _flush_all()
            for fd, before in saved:
                os.dup2(before, fd)
                os.close(before)


def _flush_all() -> None:
    """Write what Python and the C library hold back: it belongs to where output goes now."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):  # closed by the program, or none
            stream.flush()  # type: ignore[union-attr]
    with suppress(OSError, AttributeError):  # a C library without this function
        ctypes.CDLL(None).fflush(None)


def refuse_recording(place: str | None, *recorded: str, option: str = "--json") -> None:
    """Raise if a report would replace a recording."""
    if place is None or place == "-" or not Path(place).is_file():
        return
    if any(Path(each).exists() and Path(each).samefile(place) for each in recorded):
        why = "it is the recording to show"
    elif Path(place).suffix.lower() == ".jd" or zipfile.is_zipfile(place):
        why = "it is a recording"
    else:
        return
    raise _unwritable(place, why, option)
