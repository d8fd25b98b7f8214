"""Record a program: each pass in turn, and what they say together.

Watching changes what is watched, so energy and time come from a pass with nothing attached, kernels from
one under the framework's profiler, operators from one that sees every tensor. Whatever ends a pass, what
the passes before it found is handed to `checkpoint` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from joulediff.metering.run import SECONDS, measure
from joulediff.meters import MeterSet
from joulediff.meters.meter import Clock
from joulediff.runs import Pass, Run
from joulediff.stability.idle import WAIT_S
from joulediff.stability.repeats import Step
from joulediff.stability.watch import Watch
from joulediff.version import __version__

Checkpoint = Callable[[Run], None]


def record(
    step: Step,
    *,
    label: str = "step",
    program: str | None = None,
    seconds: float = SECONDS,
    meter: str | MeterSet = "auto",
    wait_s: float = WAIT_S,
    cpu_watts: float | None = None,
    clock_offset_s: float = 0.0,
    source: bool = True,
    cpp: bool = False,
    checkpoint: Checkpoint | None = None,
    clock: Clock | None = None,
    watch: Watch | None = None,
) -> Run:
    """Return the record of one step of a program.

    `seconds` bounds the metered pass. `checkpoint` is called with the run so far after each pass.
    `source` embeds the lines around recorded ones; `cpp` adds C++ frames. Exceptions of `step` pass through.
    """
    watch, checkpoint = watch or Watch(), checkpoint or (lambda _: None)
    run = Run(label, program, datetime.now(timezone.utc).isoformat(timespec="seconds"), __version__)
    begin_s = time.perf_counter()
    found = measure(
        step,
        label=label,
        seconds=seconds,
        meter=meter,
        wait_s=wait_s,
        cpu_watts=cpu_watts,
        clock_offset_s=clock_offset_s,
        clock=clock,
        watch=watch,
    )
    run = replace(run, measurement=found, passes=(Pass("metered", "done", time.perf_counter() - begin_s),))
    checkpoint(run)
    return run
