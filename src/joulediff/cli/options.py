"""Options that several commands share. Their defaults are those of `model/options`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from joulediff.model.energy import Scale
from joulediff.model.options import ANY_LOOP, ApisOptions, DiffOptions, MeasureOptions, RecordOptions
from joulediff.model.units import format_share, parse_price, parse_share

# Whether to show tracebacks: `-vv` anywhere on the command line.
is_verbose: ContextVar[bool] = ContextVar("is_verbose", default=False)
# Whether this process was started for the command line alone, so that a command may fork it.
is_own_process: ContextVar[bool] = ContextVar("is_own_process", default=False)

_OWN = "joulediff.program.arguments"
_F = TypeVar("_F", bound=Callable[..., Any])
_Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def read_share(text: str) -> float:
    """Return the share that `2%` or `0.02` means, for an option's `type`."""
    try:
        return parse_share(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a share; write 2% or 0.02") from None


def share_option(flag: str, default: float | None, text: str) -> _Option:
    """Return an option for a share, whose help ends with its default."""
    if default is None:
        return click.option(flag, type=read_share, default=None, metavar="SHARE", help=text)
    shown = format_share(default)
    return click.option(flag, type=read_share, default=shown, metavar="SHARE", help=f"{text}  [{shown}]")


def gather(name: str, defaults: MeasureOptions | DiffOptions | ApisOptions, **options: _Option) -> Callable[[_F], _F]:
    """Add options, each under the field of `defaults` that it changes; the command gets them as one record, `name`."""

    def add(command: _F) -> _F:
        @wraps(command)
        def gathering(*args: Any, **given: Any) -> Any:
            found = {field: given.pop(field) for field in options}
            return command(*args, **{name: replace(defaults, **found)}, **given)

        with_options: Any = gathering
        for option in reversed(options.values()):
            with_options = option(with_options)
        found: _F = with_options
        return found

    return add


def meter_options() -> dict[str, _Option]:
    """Return the options that choose and tune meters."""
    return {
        "meter": click.option(
            "--meter",
            default=MeasureOptions.meter,
            show_default=True,
            metavar="M",
            help="auto, or names with commas: nvml rapl amdsmi apple estimated powerlog:FILE.csv scripted:FILE.json",
        ),
        "cpu_watts": click.option(
            "--cpu-watts",
            type=float,
            default=MeasureOptions.cpu_watts,
            metavar="W",
            help="Watts of a busy CPU core, where CPU energy is estimated.",
        ),
        "clock_offset_s": click.option(
            "--clock-offset",
            "clock_offset_s",
            default=MeasureOptions.clock_offset_s,
            metavar="S",
            help="Seconds to add to a power log's time stamps.",
        ),
    }


def tolerance_option(text: str) -> _Option:
    """Return the option for the tolerance of matching."""
    return click.option("--tolerance", default=DiffOptions.tolerance, show_default=True, metavar="T", help=text)


def seconds_option(default: float, text: str, *flags: str) -> _Option:
    """Return an option for a number of seconds, under `flags`; the last may be the name of its parameter."""
    return click.option(*flags, default=default, show_default=True, metavar="S", help=text)


def precision_option(text: str) -> _Option:
    """Return the option for the width of the interval to reach."""
    return click.option("--precision", type=read_share, default=MeasureOptions.precision, metavar="P", help=text)


def step_option(is_step: bool) -> _Option:  # noqa: FBT001
    """Return the option for a function that is the step and does not build it."""
    return click.option(
        "--step", "is_step", is_flag=True, default=is_step, help="The named function is itself the step."
    )


def loop_options(defaults: RecordOptions) -> dict[str, _Option]:
    """Return the options for a script without a function that builds the step."""
    return {
        "loop": click.option(
            "--loop",
            is_flag=False,
            flag_value=ANY_LOOP,
            default=defaults.loop,
            metavar="[LINE|FUNCTION]",
            help="FILE.py is a script: run it, and take the body of a loop in it as the step.",
        ),
        "loop_after": click.option(
            "--loop-after",
            type=click.IntRange(min=0),
            default=defaults.loop_after,
            show_default=True,
            metavar="N",
            help="Iterations of the loop that run before the one that is the step.",
        ),
    }


def wait_option(default: float) -> _Option:
    """Return the option for the longest wait for a quiet machine."""
    return seconds_option(default, "Longest wait for a quiet machine.", "--wait", "wait_s")


def recording_options(defaults: RecordOptions) -> Callable[[_F], _F]:
    """Add the options of commands that record two programs; they get a `RecordOptions` as `options`."""
    return gather(
        "options",
        defaults,
        seconds=seconds_option(defaults.seconds, "Time to measure a program for, at most.", "--seconds"),
        replay_seconds=seconds_option(
            defaults.replay_seconds, "Time to replay operators for, at most.", "--replay-seconds"
        ),
        wait_s=wait_option(defaults.wait_s),
        is_step=step_option(defaults.is_step),
        **loop_options(defaults),
        **meter_options(),
    )


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


# `-v` is for those who write it after the command; `main` looks for it everywhere.
verbose_option = click.option("-v", "--verbose", count=True, expose_value=False, help="-vv shows tracebacks.")
json_option = click.option(
    "--json", "json_to", metavar="FILE", shell_complete=complete_file, help="Write JSON to FILE; - is standard output."
)
markdown_option = click.option(
    "--markdown",
    "markdown_to",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write Markdown to FILE; - is standard output.",
)
report_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write a report; its suffix sets the format: .md, .json or .txt.",
)
every_option = click.option("--all", "every", is_flag=True, help="Show every row, and the evidence for each cause.")


quiet_option = click.option(
    "--quiet-program", "quiet", is_flag=True, help="Hide what the program prints; if it fails, show its last lines."
)


def scale_options(command: _F) -> _F:
    """Add the options for the cost of many steps; the command gets them as `scale`, None without them."""

    @wraps(command)
    def scaling(*args: Any, **given: Any) -> Any:
        scale = _scale_of(given.pop("times"), given.pop("price"), given.pop("carbon"))
        return command(*args, scale=scale, **given)

    with_options: Any = scaling
    for option in (
        click.option("--carbon", type=_at_least_zero, metavar="G", help="Grams of CO2 of a kWh, for --times."),
        click.option("--price", type=_read_price, metavar="P", help="Price of a kWh, such as '0.25 EUR', for --times."),
        click.option("--times", type=_at_least_zero, metavar="N", help="Also show the kWh, price and CO2 of N steps."),
    ):
        with_options = option(with_options)
    found: _F = with_options
    return found


def _scale_of(times: float | None, price: tuple[float, str] | None, carbon: float | None) -> Scale | None:
    if times is None:
        if price is not None or carbon is not None:
            raise click.UsageError("--price and --carbon need the number of steps: --times 1e6")
        return None
    if times == 0:
        raise click.UsageError("--times needs at least one step")
    amount, currency = (None, "") if price is None else price
    return Scale(times, amount, currency, carbon)


def _at_least_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{text!r} is not a number from 0 on")
    return number


def _read_price(text: str) -> tuple[float, str]:
    try:
        return parse_price(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a price; write 0.25 or '0.25 EUR'") from None


def top_option(default: int, text: str) -> _Option:
    """Return the option for the number of rows or findings to show."""
    return click.option("--top", type=click.IntRange(min=1), default=default, show_default=True, metavar="N", help=text)


def output_options(command: _F) -> _F:
    """Add `--json` and `-v`."""
    return json_option(verbose_option(command))


def examples(*lines: tuple[str, str]) -> str:
    """Return the end of a command's help: commands, each with what it does."""
    room = max(len(command) for command, _ in lines)
    shown = [f"  {command:<{room}}  {meaning}" for command, meaning in lines]
    # click wraps a paragraph unless it begins with this character.
    return "\n".join(["\b", "Examples:", *shown])


class ProgramCommand(click.Command):
    """Leaves everything after `--` to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_OWN] = tuple(args[at + 1 :])
        own = args[:at]
        for i, (option, value) in enumerate(pairwise(own)):
            if option == "--loop" and value.endswith(".py"):  # the program, and no value of the option
                own[i] = f"--loop={ANY_LOOP}"
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def program_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Return the arguments that a `ProgramCommand` left to the program."""
    found: tuple[str, ...] = ctx.meta[_OWN]
    return found
