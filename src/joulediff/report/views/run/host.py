"""The host time of a run as a table: the lines with the most time, and the functions that they call."""

from __future__ import annotations

from joulediff.energy.host_time import LineTime, line_times
from joulediff.model.run import Run
from joulediff.model.units import format_share, format_time
from joulediff.report.views.columns import Column, TextTable
from joulediff.report.views.short_texts import count_text, short_files

# Lines that are shown; --json has all of them.
TOP_LINES = 5
# Lines with less than this share of the step are not shown.
_LEAST_SHARE = 0.005


def host_title(run: Run) -> str | None:
    """Return the title of the table, with the overhead of sampling; None without the sampled pass."""
    sampling = run.sampling
    if sampling is None or not run.host_samples:
        return None
    overhead = f"{format_share(abs(sampling.overhead_share))} {'more' if sampling.overhead_share >= 0 else 'less'}"
    return (
        f"time of the host in one sampled step of {format_time(sampling.step_s)}; "
        f"{overhead} than without sampling, {count_text(sampling.steps, 'step')}"
    )


def host_table(run: Run) -> TextTable | None:
    """Return the lines of the host with the most time; None without the sampled pass."""
    sampling = run.sampling
    if sampling is None or sampling.step_s <= 0:
        return None
    lines = [line for line in line_times(run) if line.time_s >= _LEAST_SHARE * sampling.step_s][:TOP_LINES]
    if not lines:
        return None
    names = short_files(frame.file for frame in run.frames)
    return TextTable(
        (
            Column("time", [format_time(line.time_s) for line in lines], is_right=True),
            Column("share", [format_share(line.time_s / sampling.step_s) for line in lines], is_right=True),
            Column("waiting", [_waiting(line) for line in lines], is_right=True, spare=0),
            Column("line", [_place(line, names) for line in lines]),
            Column("code", [_code(run, line) for line in lines], cut="end"),
            Column("in", [line.calls for line in lines], cut="begin", is_minor=True),
        )
    )


def _waiting(line: LineTime) -> str:
    """Return the share of the time in which the thread did not run."""
    return format_share(max(0.0, 1 - line.cpu_s / line.time_s)) if line.time_s > 0 else ""


def _place(line: LineTime, names: dict[str, str]) -> str:
    return "(step)" if line.frame is None else f"{names[line.frame.file]}:{line.frame.line}"


def _code(run: Run, line: LineTime) -> str:
    return "" if line.frame is None else run.line_text(line.frame.file, line.frame.line) or ""
