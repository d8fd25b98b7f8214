"""`jd.measure`: a step that is repeated, or a block of the program that runs once."""

from __future__ import annotations

from functools import partial
from typing import overload

from joulediff.measuring import step as repeated
from joulediff.measuring.blocks.block import Block
from joulediff.measuring.blocks.shared_meters import shared_meters
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.repeater import Step
from joulediff.model.errors import WrongType
from joulediff.model.measurement import Measurement, Quiet
from joulediff.model.options import MeasureOptions
from joulediff.model.progress import ProgressListener
from joulediff.pysource.programs import check_step, shown_type


@overload
def measure(
    work: str,
    *,
    meter: str = MeasureOptions.meter,
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    synchronise: bool = True,
) -> Block: ...
@overload
def measure(
    work: Step,
    *,
    label: str = MeasureOptions.label,
    seconds: float = MeasureOptions.seconds,
    meter: str | MeterSet = MeasureOptions.meter,
    precision: float | None = MeasureOptions.precision,
    wait_s: float = MeasureOptions.wait_s,
    idle: Quiet | None = None,
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    clock_offset_s: float = MeasureOptions.clock_offset_s,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
) -> Measurement: ...
def measure(
    work: Step | str,
    *,
    label: str = MeasureOptions.label,
    seconds: float = MeasureOptions.seconds,
    meter: str | MeterSet = MeasureOptions.meter,
    precision: float | None = MeasureOptions.precision,
    wait_s: float = MeasureOptions.wait_s,
    idle: Quiet | None = None,
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    clock_offset_s: float = MeasureOptions.clock_offset_s,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
    synchronise: bool = True,
) -> Measurement | Block:
    """Measure a function, or a block of code.

    A function without arguments is repeated for at most `seconds`: the result is the energy of one call, as `joulediff
    measure` prints it. A name opens a block that runs once: `with jd.measure("load") as m: ...`, and `m.energy` after
    it; of the options, it takes `meter`, `cpu_watts` and `synchronise`, which waits for devices at both ends.
    """
    if isinstance(work, str):
        if work.endswith(".py"):
            raise WrongType(
                f"measure was given the name of a program: {work}",
                fix=f"import a function and measure that, or run: joulediff measure {work}",
            )
        if not isinstance(meter, str):
            raise WrongType(f"the meter of a block cannot be {shown_type(meter)}", fix="give its name, or 'auto'")
        return Block(work, partial(shared_meters, meter, cpu_watts), synchronise=synchronise)
    if not callable(work):
        raise WrongType(
            f"measure cannot take {shown_type(work)}",
            fix="give a function without arguments, or a name: with jd.measure(name) as m: ...",
        )
    check_step(work, "the step")
    return repeated.measure(
        work,
        label=label,
        seconds=seconds,
        meter=meter,
        precision=precision,
        wait_s=wait_s,
        idle=idle,
        cpu_watts=cpu_watts,
        clock_offset_s=clock_offset_s,
        clock=clock,
        listener=listener,
    )
