"""A recorded program in this process: measured again, changed, traced line by line, or run in part.

Everything is measured with the meters, and at the clock, of the recording. The program is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path

from joulediff.energy.load_energy import LoadMeter
from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.jobs import WINDOW_S, Job, JobCost, LiveProgram, TrialRunner
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.repeater import Step
from joulediff.measuring.step import measure
from joulediff.model.energy import Energy, add_known, shift
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run, Setting
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.line_tracer import watch_lines


@dataclass(slots=True)
class LocalProgram(LiveProgram):
    """A recorded program in this process."""

    run: Run
    step: Step
    options: RecordOptions
    trial_runner: TrialRunner
    load_meter: LoadMeter
    meter: MeterSet
    clock: Clock
    begin: Callable[[], None]
    """Restores the initial state of the step."""
    root: Path
    change: Callable[[Mapping[str, Setting]], AbstractContextManager[None]]
    """Applies settings within the context."""
    listener: ProgressListener = field(default_factory=ProgressListener)
    other: Run | None = None
    """The recording that this one is compared with."""

    def take_other(self, run: Run) -> None:
        self.other = run
        self.trial_runner.take_other(run)

    def measure(
        self,
        *,
        seconds: float | None = None,
        wait_s: float | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> Measurement:
        self.begin()
        with self.change(settings or {}):
            return self._measure(self.step, seconds, wait_s)

    def measure_without_sync(
        self, file: str, line: int, *, seconds: float | None = None, wait_s: float | None = None
    ) -> Measurement:
        with self.trial_runner.without_sync(self.step, file=file, line=line) as step:
            self.begin()
            return self._measure(step, seconds, wait_s)

    def _measure(self, step: Step, seconds: float | None, wait_s: float | None) -> Measurement:
        return measure(
            step,
            label=self.run.label,
            seconds=self.options.seconds if seconds is None else seconds,
            meter=self.meter,
            wait_s=self.options.wait_s if wait_s is None else wait_s,
            clock=self.clock,
            listener=self.listener,
        )

    def measure_job(self, job: Job, *, window_s: float = WINDOW_S, as_other: bool = False) -> JobCost:
        load_meter = self.load_meter
        if as_other and self.other is not None and self.other.measurement is not None:
            load_meter = load_meter.under(self.other.measurement)
        try:
            with closing(self.trial_runner.prepare_job(job)) as prepared, self.change(job.settings):
                rows = load_meter.measure_job(0, prepared.device, prepared.load, window_s)
                time_s = prepared.load.call_s or prepared.load.burst_s / max(1, prepared.load.calls)
                notes = dict.fromkeys(row.note for row in rows if row.note)
                return JobCost(
                    self._gross(rows, time_s), time_s, prepared.kernels, prepared.difference, "; ".join(notes) or None
                )
        except JoulediffError as error:
            return JobCost(None, None, note=error.what)

    def compare_job(self, job: Job) -> JobCost:
        try:
            with closing(self.trial_runner.prepare_job(job)) as prepared:
                return JobCost(None, None, prepared.kernels, prepared.difference)
        except JoulediffError as error:
            return JobCost(None, None, note=error.what)

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        return self.trial_runner.capture(settings)

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        self.trial_runner.export_tensors(ops, values, path)

    def import_tensors(self, path: Path) -> None:
        self.trial_runner.import_tensors(path)

    def trace_lines(self, target: Target) -> LineTrace | None:
        return watch_lines(self.step, target, begin=self.begin, root=self.root, hints=source_hints())

    def _gross(self, rows: list[Replay], time_s: float) -> Energy | None:
        """Return the energy in the counted domains, with that of the idle device over the time."""
        found = self.run.measurement
        if found is None:
            return None
        counted = [row for row in rows if row.is_measured and found.domains[row.domain].counted]
        return add_known(shift(row.energy, (row.rest_w or 0.0) * time_s) for row in counted)
