"""A recorded program that is still there: measured again, changed, watched line by line, or in parts.

Everything is measured with the meters, and at the clock, of the recording. The program is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

from joulediff.energy.load_energy import LoadMeter
from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.jobs import Job, JobCost, TrialRunner
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.repeater import Step
from joulediff.measuring.step import measure
from joulediff.model.energy import Energy, add, to_energy
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run, Setting
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.line_tracer import watch_lines

# A sequence of operators is weighed twice, with the others between, so that drift shows.
WINDOW_S = 0.4


@dataclass(slots=True)
class LocalProgram:
    """One program and what it can be tried with."""

    run: Run
    step: Step
    trial_runner: TrialRunner
    load_meter: LoadMeter
    meter: MeterSet
    clock: Clock
    begin: Callable[[], None]
    root: Path
    change: Callable[[Mapping[str, Setting]], AbstractContextManager[None]]
    """Puts settings in force for as long as it lasts."""
    other: Run | None = None
    """The recording that this one is compared with."""

    def measure(
        self, *, seconds: float, wait_s: float, settings: Mapping[str, Setting], listener: ProgressListener
    ) -> Measurement:
        """Return the energy of the step, measured again, under other settings where some are given."""
        self.begin()
        with self.change(settings):
            return self._measure(self.step, seconds, wait_s, listener)

    def measure_without_sync(
        self, file: str, line: int, *, seconds: float, wait_s: float, listener: ProgressListener
    ) -> Measurement:
        """Return the energy of the step if a line of it does not wait for what it reads from a device."""
        with self.trial_runner.without_sync(self.step, file=file, line=line) as step:
            self.begin()
            return self._measure(step, seconds, wait_s, listener)

    def _measure(self, step: Step, seconds: float, wait_s: float, listener: ProgressListener) -> Measurement:
        return measure(
            step,
            label=self.run.label,
            seconds=seconds,
            meter=self.meter,
            wait_s=wait_s,
            clock=self.clock,
            listener=listener,
        )

    def measure_job(self, job: Job, *, window_s: float = WINDOW_S, at: Measurement | None = None) -> JobCost:
        """Return what a job costs; with a note instead of joules where it cannot be run.

        A device runs as it did in the program, or in another one: `at` is what was measured there.
        """
        load_meter = self.load_meter if at is None else self.load_meter.under(at)
        try:
            with closing(self.trial_runner.open_piece(job)) as piece, self.change(job.settings):
                rows = load_meter.measure_job(0, piece.device, piece.load, window_s)
                time_s = piece.load.call_s or piece.load.burst_s / max(1, piece.load.calls)
                notes = dict.fromkeys(row.note for row in rows if row.note)
                return JobCost(
                    self._gross(rows, time_s), time_s, piece.kernels, piece.difference, "; ".join(notes) or None
                )
        except JoulediffError as error:
            return JobCost(None, None, note=error.what)

    def trace_lines(self, target: Target) -> LineTrace | None:
        """Return the lines of a function that the step takes, with the values that decide them."""
        return watch_lines(self.step, target, begin=self.begin, root=self.root, hints=source_hints())

    def _gross(self, rows: list[Replay], time_s: float) -> Energy | None:
        """Return the joules in the domains that count, with the resting power of the time."""
        found = self.run.measurement
        parts = []
        for row in rows:
            net = row.energy
            if net is None or found is None or not found.domains[row.domain].counted:
                continue
            rest_j = (row.rest_w or 0.0) * time_s
            energy = to_energy(net.joules + rest_j, net.low + rest_j, net.high + rest_j, net.source)
            if energy is not None and math.isfinite(energy.joules):
                parts.append((row.domain, energy))
        return add(parts)
