"""One measurement on a terminal: the energy of a step, of each domain, and the warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.model.energy import Scale
from joulediff.model.measurement import BlockMeasurement, Measurement, cost_text, scale_measurement
from joulediff.model.units import format_time
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.many_steps import many_steps_texts
from joulediff.report.views.measurement_tables import block_table, device_texts, domain_table
from joulediff.report.views.short_texts import count_text, format_interval
from joulediff.report.views.warnings import NOT_TRUSTWORTHY


def print_measurement(found: Measurement, console: Console, *, scale: Scale | None = None) -> None:
    """Print one measurement, and with a scale what many steps take."""
    many = many_steps_lines(found, scale)
    print_parts(console, headline(found), *many, "", to_table(domain_table(found), console.width), *_footer(found))


def many_steps_lines(found: Measurement, scale: Scale | None) -> Iterator[Text]:
    """Yield what many steps take, if a scale asks for it."""
    if scale is not None:
        yield from amount_lines(many_steps_texts(plain_record(scale_measurement(found, scale))))


def amount_lines(texts: Iterable[str]) -> Iterator[Text]:
    """Yield the lines of an amount: the first one says how much it is."""
    yield from (Text(text, style="dim" if at else "bold") for at, text in enumerate(texts))


def print_block(found: BlockMeasurement, console: Console) -> None:
    """Print the energy of a block, or of the calls of a function."""
    text = Text.assemble(
        (plain_text(found.name), "bold"), "  ", (plain_text(cost_text(found.energy, found.seconds)), "bold cyan")
    )
    if found.calls > 1:
        each = f"a call {format_time(found.shortest_s)} to {format_time(found.longest_s)}"
        text.append(f"   {count_text(found.calls, 'call')}, {each}", style="dim")
    text.append(f"   {format_time(found.cpu_s)} of CPU time", style="dim")
    tables: list[RenderableType] = (
        ["", to_table(plain_record(block_table(found)), console.width)] if found.domains else []
    )
    warnings = [plain_text(warning) for warning in found.warnings]
    print_parts(console, text, *tables, *bullets(warnings, "!", "yellow"))


def headline(found: Measurement) -> Text:
    """Return a measurement in one line."""
    text = Text(no_wrap=False)
    text.append(found.label, style="bold")
    text.append("  ")
    text.append(f"{format_interval(found.energy)} a step", style="bold cyan")
    steps = f"{count_text(found.steps, 'step')} in {count_text(found.repeats, 'window')}"
    text.append(f"   {format_time(found.step_s)} a step   {steps}", style="dim")
    return text


def device_lines(found: Measurement) -> Iterator[Text]:
    """Yield a line for each device that was measured, and one for those that rested."""
    return (Text(text, style="dim") for text in device_texts(found))


def _footer(found: Measurement) -> Iterator[RenderableType]:
    yield from device_lines(found)
    yield from bullets(found.warnings, "!", "yellow")
    if not found.trustworthy:
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")
