"""Options that several commands share, and how their words become values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from joulediff.model.units import parse_share

_OWN = "joulediff.program.arguments"
_F = TypeVar("_F", bound=Callable[..., Any])


def read_share(text: str) -> float:
    """Return the share that `2%` or `0.02` means, for an option's `type`."""
    try:
        return parse_share(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a share; write 2% or 0.02") from None


def meter_options(command: _F) -> _F:
    """Add the options that choose and tune meters."""
    for option in (
        click.option("--clock-offset", default=0.0, metavar="S", help="Seconds to add to a power log's time stamps."),
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


def output_options(command: _F) -> _F:
    """Add `--json`, and `-v` for those who write it after the command; `main` looks for it everywhere."""
    for option in (
        click.option("-v", "--verbose", count=True, expose_value=False, help="-vv shows tracebacks."),
        click.option("--json", "json_to", metavar="FILE", help="Write JSON to FILE; - is standard output."),
    ):
        command = option(command)
    return command


class ProgramCommand(click.Command):
    """Leaves everything after `--` to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_OWN] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def program_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Return what a `ProgramCommand` left to the program."""
    found: tuple[str, ...] = ctx.meta[_OWN]
    return found
