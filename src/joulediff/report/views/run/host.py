"""The host time of a run as a table: the lines with the most time, and the functions that they call."""

from __future__ import annotations

import math
from collections.abc import Mapping

from joulediff.energy.host_energy import HostBy, HostPart, host_energy, host_parts
from joulediff.energy.host_time import LineTime, line_times
from joulediff.model.energy import Energy, add_known, remainder, share_of
from joulediff.model.run import Run
from joulediff.model.units import format_share, format_time
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.short_texts import count_text, format_places, pick_unit, round_to_sum, short_files

# Lines that are shown; --json has all of them.
TOP_LINES = 5
NOT_SAMPLED = "(in no sampled line)"
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


def split_title(by: HostBy) -> str:
    """Return the title of the table of energies."""
    return f"energy of one step by {by}, split by samples of the host"


def split_table(run: Run, by: HostBy, top: int) -> TextTable | None:
    """Return the functions or lines of a run with their energy, which sum to the step's as printed.

    None for a run with operators, which have their own table, and without samples or energy.
    """
    total, parts = host_energy(run), host_parts(run, by)
    if run.ops or total is None or not parts:
        return None
    shown = parts if len(parts) <= top + 1 else parts[:top]
    energies = [part.energy for part in shown]
    rest = [add_known(part.energy for part in parts[len(shown) :])] if len(shown) < len(parts) else []
    energies = [*energies, *rest, remainder(total, [part.energy for part in parts])]
    blank = [""] * (len(energies) - len(shown) + 1)
    names = short_files(frame.file for frame in run.frames)
    more = [f"{len(parts) - len(shown)} more"] if rest else []
    first = [_name(part, names, by) for part in shown]
    code = [_place_of(part, names) if by == "function" else _text_of(run, part) for part in shown]
    head = ("function", "most in") if by == "function" else ("line", "code")
    factor, unit, places = pick_unit(total.joules, "J")
    per_joule = 10**places / factor
    scaled = [None if energy is None else energy.joules * per_joule for energy in energies]
    units = round_to_sum(scaled, total=round(total.joules * per_joule))
    emphasis: list[Emphasis] = [""] * len(energies)
    whole = sum(each for each in units if each is not None)
    return TextTable(
        (
            Column(unit, [format_places(each, places) for each in (*units, whole)], is_right=True),
            Column("share", [*(_share(energy, total) for energy in energies), "100%"], is_right=True),
            Column("±", [*(_spread(part.energy) for part in shown), *blank[1:], _spread(total)], is_right=True),
            Column("waiting", [*map(_waiting, shown), *blank], is_right=True, spare=0),
            Column(head[0], [*first, *more, NOT_SAMPLED, total.source]),
            Column(head[1], [*code, *blank], cut="line" if by == "function" else "end"),
            Column("in", [*(part.calls for part in shown), *blank], cut="begin", is_minor=True),
        ),
        (*emphasis, "total"),
    )


def _name(part: HostPart, names: Mapping[str, str], by: HostBy) -> str:
    if part.frame is None:
        return part.function
    return _place_of(part, names) if by == "line" else part.function.rpartition("<locals>.")[2]


def _place_of(part: HostPart, names: Mapping[str, str]) -> str:
    return "" if part.frame is None else f"{names[part.frame.file]}:{part.frame.line}"


def _text_of(run: Run, part: HostPart) -> str:
    return "" if part.frame is None else run.line_text(part.frame.file, part.frame.line) or ""


def _share(energy: Energy | None, total: Energy) -> str:
    share = None if energy is None else share_of(energy.joules, total)
    return "" if share is None else format_share(share)


def _spread(energy: Energy | None) -> str:
    share = None if energy is None else energy.half_width_share
    return "" if share is None or not math.isfinite(share) else format_share(min(share, 9.99))


def _waiting(line: LineTime | HostPart) -> str:
    """Return the share of the time in which the thread did not run."""
    return format_share(max(0.0, 1 - line.cpu_s / line.time_s)) if line.time_s > 0 else ""


def _place(line: LineTime, names: dict[str, str]) -> str:
    return "(step)" if line.frame is None else f"{names[line.frame.file]}:{line.frame.line}"


def _code(run: Run, line: LineTime) -> str:
    return "" if line.frame is None else run.line_text(line.frame.file, line.frame.line) or ""
