"""Options that several commands share, and how their words become values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from joulediff.units import parse_share

_F = TypeVar("_F", bound=Callable[..., Any])


class ShareType(click.ParamType[float]):
    """A share: `2%` or `0.02`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_share(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a share; write 2% or 0.02", param, ctx)


def meter_options(command: _F) -> _F:
    """Add the options that choose and tune meters."""
    for option in (
        click.option("--cpu-watts", type=float, metavar="W", help="Watts of a busy core, for the estimate."),
        click.option(
            "--meter",
            default="auto",
            show_default=True,
            metavar="M",
            help="auto, or names with commas: nvml rapl amdsmi apple estimated powerlog:FILE.csv scripted:FILE.json",
        ),
    ):
        command = option(command)
    return command


def json_option(command: _F) -> _F:
    """Add `--json`."""
    return click.option("--json", "json_to", metavar="FILE", help="Write JSON to FILE; - is standard output.")(command)
