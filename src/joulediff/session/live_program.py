"""A recorded program in this process: measured again, changed, traced line by line, or run in part.

Everything is measured with the meters, and at the clock, of the recording. The program is left as it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from joulediff.energy.load_energy import LoadMeter
from joulediff.frameworks.framework import is_read, source_hints
from joulediff.frameworks.jobs import WINDOW_S, Job, JobCost, LiveProgram, TrialRunner, Variant, VariantCost
from joulediff.frameworks.plain.recorder import PlainRecorder, capture_step
from joulediff.frameworks.recorder import open_recorder
from joulediff.frameworks.state_leaves import leaves_set
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.repeater import Step
from joulediff.measuring.result import combine
from joulediff.measuring.step import measure, resting
from joulediff.model.energy import Energy, add_known, ratio, shift
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.options import RecordOptions
from joulediff.model.outputs import result_distance
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run, Setting
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.programs import is_file, split_target
from joulediff.pysource.source_files import ProgramSource
from joulediff.pysource.tracing.line_tracer import watch_lines
from joulediff.pysource.variants import build_variant, read_own_files
from joulediff.session.loop_step import NOT_BUILT_AGAIN
from joulediff.session.time_limit import time_limit

# A changed program may wait or loop for ever. Its step is captured within this time, or this many times the step's.
STEP_LIMIT_S, SLOWER = 30.0, 100.0
BUILD_LIMIT_S = 180.0
# Two turns of the same program differ by no more than this share.
MOST_DRIFT = 0.25
# A change that saves or costs more than this share needs no second turn: MOST_DRIFT does not explain it.
CLEAR_SHARE = 0.33


@dataclass(frozen=True, slots=True)
class _Changed:
    """A changed program; `active` makes the change, `begin` restores its initial state if that is known."""

    step: Step
    active: Callable[[], AbstractContextManager[None]]
    begin: Callable[[], None] | None
    settings: Mapping[str, Setting]


def is_clear(before: Energy, after: Energy) -> bool:
    """Return whether a change saves so much energy, or costs so much, that a drift of the machine cannot explain it."""
    share = ratio(after, before)
    return share is not None and (share.high < 1 - CLEAR_SHARE or share.low > 1 + CLEAR_SHARE)


def _with_costs(cost: VariantCost, before: Measurement, after: Measurement) -> VariantCost:
    return replace(
        cost,
        before=before.energy,
        after=after.energy,
        before_s=before.step_s,
        after_s=after.step_s,
        is_measured=True,
    )


def _do_nothing() -> None:
    pass


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
    ) -> VariantCost:
        with self.trial_runner.without_sync(self.step, file=file, line=line) as step:
            recorder = open_recorder(step, names=self.step, root=self.root, source=False, cpp=False)
            difference = None
            if recorder is not None:
                run = recorder.capture(self._empty_run(), self.begin)
                difference = result_distance(self.run, run, is_read=is_read, needed=self.other)
            self.begin()
            found = self._measure(step, seconds, wait_s)
        return VariantCost(after=found.energy, after_s=found.step_s, difference=difference, is_measured=True)

    def _empty_run(self) -> Run:
        empty = Run(self.run.label, self.run.program, self.run.created, self.run.tool)
        return replace(empty, settings=self.run.settings)

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

    def read_source(self) -> ProgramSource:
        target = self._target()
        return ProgramSource(split_target(target)[1], read_own_files(target, root=self.root, hints=source_hints()))

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        self.trial_runner.refuse_change()
        try:
            return self._try_variant(variant, seconds)
        finally:
            gc.collect()  # a model is part of cycles, and holds device memory

    def _try_variant(self, variant: Variant, seconds: float) -> tuple[VariantCost, Run]:
        found = self.run.measurement
        limit_s = STEP_LIMIT_S if found is None else max(STEP_LIMIT_S, SLOWER * found.step_s)
        # Building the program again may change what both share, so it is measured before as well.
        first = [self._measure_own(seconds)] if seconds > 0 else []
        with ExitStack() as stack:
            self.listener.stage("building the changed program")
            with time_limit(BUILD_LIMIT_S, "the changed program was not built"):
                changed = self._build_variant(variant) if variant.files else self._set_variant(variant, stack)
            self.listener.stage("capturing the changed step")
            with changed.active(), time_limit(limit_s, "the changed step did not end"):
                step, root = changed.step, self.root
                recorder = open_recorder(step, names=step, root=root, source=False, cpp=False)
                recorder = recorder or PlainRecorder(step, names=step, root=root, source=False)
                begin = changed.begin or stack.enter_context(recorder.seeded(ran=False))
                step()  # a cache that only the first step fills is no work of a step
                run = capture_step(recorder, self._empty_run(), begin, step=step, names=step, root=root, source=False)
            difference = result_distance(self.run, run, is_read=is_read, needed=self.other)
            cost = VariantCost(difference=difference, settings=tuple(changed.settings))
            if seconds > 0:
                cost = self._measure_in_turns(cost, first[0], changed, begin, seconds)
            return cost, run

    def _build_variant(self, variant: Variant) -> _Changed:
        left: dict[str, Setting] = {}

        def build(make: Callable[[], Step]) -> Step:
            step, settings = self.trial_runner.build_again(make, variant.first)
            left.update(settings)
            return step

        built = build_variant(
            self._target(),
            variant.files,
            root=self.root,
            hints=source_hints(),
            build=build,
            is_step=self.options.is_step,
        )

        @contextmanager
        def active() -> Iterator[None]:
            with built.active(), self.change(left):
                yield

        return _Changed(built.step, active, None, left)

    def _set_variant(self, variant: Variant, stack: ExitStack) -> _Changed:
        set_all: Callable[[], None] = _do_nothing

        @contextmanager
        def active() -> Iterator[None]:
            nonlocal set_all
            with leaves_set(self.step, variant.state) as set_all, self.change(variant.settings):
                yield

        def begin() -> None:
            self.begin()
            set_all()

        stack.callback(self.begin)
        return _Changed(self.step, active, begin, variant.settings)

    def _measure_in_turns(
        self, cost: VariantCost, first: Measurement, changed: _Changed, begin: Callable[[], None], seconds: float
    ) -> VariantCost:
        def measure_changed(*, is_warm: bool) -> Measurement:
            with changed.active():
                begin()
                return self._measure_at_once(changed.step, seconds, is_warm=is_warm)

        after = measure_changed(is_warm=False)
        if is_clear(first.energy, after.energy):
            return _with_costs(cost, first, after)
        after = combine(after, measure_changed(is_warm=True))
        last = self._measure_own(seconds)
        is_same = max(first.energy.joules, last.energy.joules) <= (1 + MOST_DRIFT) * min(
            first.energy.joules, last.energy.joules
        )
        # A program that the other build has changed is measured by its first turn.
        before = combine(first, last) if is_same else first
        return _with_costs(cost, before, after)

    def _measure_own(self, seconds: float) -> Measurement:
        self.begin()
        return self._measure_at_once(self.step, seconds, is_warm=True)

    def _measure_at_once(self, step: Step, seconds: float, *, is_warm: bool) -> Measurement:
        """Measure a step with the idle power of the recording, without a wait."""
        found = self.run.measurement
        return measure(
            step,
            label=self.run.label,
            seconds=seconds,
            meter=self.meter,
            idle=None if found is None else resting(found),
            is_warm=is_warm,
            clock=self.clock,
            listener=self.listener,
        )

    def _target(self) -> str:
        """Return the program with a full path: it may have changed the current folder."""
        if self.run.program is None:
            raise JoulediffError("the program is a function, which cannot be built again from its file")
        if self.options.loop is not None:
            raise JoulediffError(NOT_BUILT_AGAIN)
        place, name = split_target(self.run.program)
        return f"{self.root / place}:{name}" if is_file(place) else f"{place}:{name}"

    def trace_lines(self, target: Target) -> LineTrace | None:
        return watch_lines(self.step, target, begin=self.begin, root=self.root, hints=source_hints())

    def _gross(self, rows: list[Replay], time_s: float) -> Energy | None:
        """Return the energy in the counted domains, with that of the idle device over the time."""
        found = self.run.measurement
        if found is None:
            return None
        counted = [row for row in rows if row.is_measured and found.domains[row.domain].counted]
        return add_known(shift(row.energy, (row.rest_w or 0.0) * time_s) for row in counted)
