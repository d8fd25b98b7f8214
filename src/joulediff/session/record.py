"""Records a program in several passes.

Instrumentation changes the energy and the time of a program. So energy and time are measured in a pass without any,
the host's time by line is sampled, kernels are recorded under the framework's profiler, operators in a pass that
captures every tensor, and joules per operator by running each again alone. Each pass ends with a call of `checkpoint`,
however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from joulediff.archive.snapshot import Snapshot
from joulediff.archive.writer import save, why_unwritable
from joulediff.energy.load_energy import BurstMeter, LoadMeter
from joulediff.energy.replay import Replaying
from joulediff.frameworks.plain.recorder import PlainRecorder, capture_step
from joulediff.frameworks.recorder import Recorder, open_recorder
from joulediff.frameworks.state_leaves import fitting_leaves, read_leaves, steady_leaves
from joulediff.measuring.meters import MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.repeater import Step
from joulediff.measuring.result import combine
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.measuring.stack_sampler import why_not_sampled
from joulediff.measuring.step import measure, resting
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.measurement import Measurement, Quiet
from joulediff.model.options import TURN_SHARE, RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import PASSES, Pass, PassName, PassStatus, Run
from joulediff.pysource.programs import check_step, describe
from joulediff.session.sample_host import SHARE_OF_METERED, HostTimes, add_samples, sample_host
from joulediff.version import __version__

if TYPE_CHECKING:
    from joulediff.session.live_program import LocalProgram

Checkpoint = Callable[[Run], None]
# A turn apart from the recording begins with this many windows of the slowest meter, and is as short as the meters
# allow: the speed of a virtual machine drifts by 5 % within seconds. In 12 s, turns of 0.25 s in the order A, B, B, A
# give a ratio to 0.4 %, turns of 2 s to 4 % (`benchmarks/drift.py`, Python on a 2-core virtual machine).
APART_WINDOWS = 3.05
# A turn that was too short for its meter is measured again in twice the time, up to so often.
APART_TRIES = 6


class MeasureTurn(Protocol):
    """Measures the step once more."""

    def __call__(self, seconds: float | None = None) -> Measurement:
        """Return the energy of the step, measured for `seconds` and combined with the recording's.

        Without `seconds` it is measured apart from the recording, in a turn as short as the meters allow.
        """


@dataclass(frozen=True, slots=True)
class Again:
    """What another program's turn may ask of a recording whose step was measured and not yet watched.

    Calling it measures the step once more.
    """

    measure: MeasureTurn
    sample: Callable[[], None]
    """Runs the sampled pass now. A profiler of the other program would slow it down later."""
    begin: Callable[[], None]
    """Restores the state that the step first started from."""

    def __call__(self, seconds: float | None = None) -> Measurement:
        return self.measure(seconds)


Between = Callable[[Again], Run | None]

NO_FRAMEWORK = (
    "the program has loaded no framework that joulediff records: its energy is split by functions, not by operators"
)


def record(
    step: Step,
    *,
    label: str = RecordOptions.label,
    program: str | None = None,
    seconds: float = RecordOptions.seconds,
    meter: str | MeterSet = RecordOptions.meter,
    wait_s: float = RecordOptions.wait_s,
    cpu_watts: float | None = RecordOptions.cpu_watts,
    clock_offset_s: float = RecordOptions.clock_offset_s,
    source: bool = RecordOptions.source,
    cpp: bool = RecordOptions.cpp,
    replay: bool = RecordOptions.replay,
    replay_seconds: float = RecordOptions.replay_seconds,
    path: str | Path | None = None,
    root: Path | None = None,
    checkpoint: Checkpoint | None = None,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
    between: Between | None = None,
    then: Callable[[LocalProgram], None] | None = None,
) -> Run:
    """Return the record of one step of a program.

    `seconds` bounds the metered pass. `replay_seconds` bounds the replay of single operators, which `replay` turns off;
    operators with the most time come first. `source` stores the lines around recorded ones; `cpp` stores C++ frames.
    Paths of the user's files are relative to `root`, by default the current folder.
    Each instrumented pass begins with the state that the step first started from. Afterwards the program has the state
    that the metered pass left. After each pass the run so far is saved at `path` and passed to `checkpoint`. Exceptions
    of `step` pass through.
    `between` is called after the metered pass, with a function that measures the step again for a number of seconds. It
    may return another recording of this machine, whose operators need not be replayed again.
    `then` is called with the recorded program while its meters are still open.
    """
    check_step(step, "the step")
    options = RecordOptions(
        label=label,
        seconds=seconds,
        meter=meter if isinstance(meter, str) else RecordOptions.meter,
        wait_s=wait_s,
        cpu_watts=cpu_watts,
        clock_offset_s=clock_offset_s,
        source=source,
        cpp=cpp,
        replay=replay,
        replay_seconds=replay_seconds,
    )
    return record_step(
        step,
        options,
        program=program,
        meters=meter if isinstance(meter, MeterSet) else None,
        path=path,
        root=root,
        checkpoint=checkpoint,
        clock=clock,
        listener=listener,
        between=between,
        then=then,
    )


def record_step(
    step: Step,
    options: RecordOptions,
    *,
    program: str | None = None,
    meters: MeterSet | None = None,
    path: str | Path | None = None,
    root: Path | None = None,
    checkpoint: Checkpoint | None = None,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
    between: Between | None = None,
    then: Callable[[LocalProgram], None] | None = None,
    idle: Quiet | None = None,
    held: ExitStack | None = None,
    notes: tuple[str, ...] = (),
) -> Run:
    """Return the record of a step, as `record` does. `meters` are open ones to use instead of those in the options.

    `idle` is the idle power of this machine, known from a moment ago. `held` keeps the step's initial state, so that
    the program given to `then` can be run until the stack is closed; without it, until `then` returns. The run begins
    with `notes`.
    """
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run = Run(options.label, program, created, __version__, notes=notes)
    place = _check_path(path) if path is not None else None

    saved: Snapshot | None = None

    def keep(run: Run) -> None:
        nonlocal saved
        if place is not None:
            saved = Snapshot.of(run, since=saved)
            save(saved, place)
        if checkpoint is not None:
            checkpoint(run)

    session = _Session(run, _CountedStep(step), listener or ProgressListener(), keep)
    folder = root or Path.cwd()  # before the step can change it

    def open_step_recorder() -> Recorder | None:
        return open_recorder(session.step, names=step, root=folder, source=options.source, cpp=options.cpp)

    def open_plain_recorder() -> Recorder:
        return PlainRecorder(session.step, names=step, root=folder, source=options.source)

    options.check_replay()
    clock = clock or RealClock()
    with ExitStack() as own:
        stack = held or own
        meters = meters or stack.enter_context(open_meters_for(options, clock))
        recorder = open_step_recorder() or open_plain_recorder()
        begin = session.seed(recorder, stack)
        session.apart_s = _shortest_turn_s(meters)

        def measure_turn(seconds: float | None = None) -> Measurement:
            # The idle power is known from the first turn. The heat that the other program left is meant to count.
            measured = session.run.measurement

            def measure_step(keeper: ProgressListener, seconds: float) -> Measurement:
                return measure(
                    step,
                    label=options.label,
                    seconds=seconds,
                    meter=meters,
                    wait_s=options.wait_s,
                    idle=idle if measured is None else resting(measured),
                    is_warm=measured is not None,
                    is_turn=between is not None,
                    clock=clock,
                    listener=keeper,
                )

            if seconds is None:
                return session.meter_apart(measure_step)
            return session.meter(lambda keeper: measure_step(keeper, seconds))

        leaves = read_leaves(step)
        measure_turn(options.seconds if between is None else TURN_SHARE * options.seconds)

        def sample() -> None:
            session.sample(begin, root=folder, seconds=SHARE_OF_METERED * options.seconds, source=options.source)

        known = between(Again(measure_turn, sample, lambda: begin())) if between is not None else None
        late = open_step_recorder() if isinstance(recorder, PlainRecorder) else None
        if late is not None:  # a step may load its framework itself
            recorder, begin = late, stack.enter_context(late.seeded(ran=True))
        if not session.is_sampled:
            sample()
        state = fitting_leaves(steady_leaves(leaves, read_leaves(step)))
        session.run = replace(session.run, settings=recorder.settings(), state=state)
        capture = partial(capture_step, recorder, step=session.step, names=step, root=folder, source=options.source)
        if isinstance(recorder, PlainRecorder):
            session.skip_trace(NO_FRAMEWORK)
        else:
            session.trace(recorder, begin)
        session.capture(recorder, lambda run: capture(run, begin), source=options.source)
        if options.replay and not isinstance(recorder, PlainRecorder):
            burst_meter = BurstMeter(meters.meters, clock=clock)
            session.replay(recorder, begin, burst_meter, known, clock=clock, seconds=options.replay_seconds)
        if then is not None:
            then(_open_program(session, step, options, recorder, begin, meters, clock, folder))
    return session.run


def _shortest_turn_s(meters: MeterSet) -> float:
    return max(d.settle_s + APART_WINDOWS * d.window_s for meter in meters.meters for d in meter.domains)


def open_meters_for(options: RecordOptions, clock: Clock) -> MeterSet:
    """Return the open meters that the options name."""
    return open_meters(
        options.meter,
        clock=clock,
        cpu_watts=options.cpu_watts,
        clock_offset_s=options.clock_offset_s,
        cache=SensorCache(),
    )


def _open_program(
    session: _Session,
    step: Step,
    options: RecordOptions,
    recorder: Recorder,
    begin: Callable[[], None],
    meter: MeterSet,
    clock: Clock,
    root: Path,
) -> LocalProgram:
    from joulediff.session.live_program import LocalProgram

    run = session.run
    load_meter = LoadMeter(
        run.measurement, BurstMeter(meter.meters, clock=clock), clock, recorder.replayer(run, begin).open_rest
    )
    return LocalProgram(
        run,
        step,
        options,
        recorder.trial_runner(run, begin),
        load_meter,
        meter,
        clock,
        begin,
        root,
        recorder.changed,
        session.listener,
    )


def _check_path(path: str | Path) -> Path:
    """Return the full path to save at, since the step may change the folder; raises if it cannot be written."""
    if (why := why_unwritable(path)) is not None:
        raise JoulediffError(f"cannot write {path} ({why})", fix="give another path, in a folder that can be written")
    return Path(path).absolute()


class _CountedStep:
    """Counts the calls of a step in a pass, and keeps its exception to distinguish it from errors of joulediff."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.calls = 0
        self.failure: BaseException | None = None

    def __call__(self) -> object:
        self.calls += 1
        try:
            return self._step()
        except BaseException as error:
            self.failure = error
            raise


class _PassListener(ProgressListener):
    """Passes reports on, stages under the name and number of a pass, and keeps a measurement that was cut short."""

    def __init__(self, listener: ProgressListener, name: PassName) -> None:
        self._listener = listener
        self._title = f"{name} {PASSES.index(name) + 1}/{len(PASSES)}"
        self.measurement: Measurement | None = None
        listener.pass_begins(name)

    def stage(self, text: str, share: float | None = None) -> None:
        self._listener.stage(f"{self._title}: {text}", share)

    def failed(self, error: BaseException, call: int) -> None:
        self._listener.failed(error, call)

    def kept(self, measurement: Measurement) -> None:
        self.measurement = measurement


class _SilentListener(ProgressListener):
    """Passes on failures of the step alone: there are several short turns in a second."""

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener

    def failed(self, error: BaseException, call: int) -> None:
        self._listener.failed(error, call)


@dataclass(slots=True)
class _Session:
    """A recording in progress: the run so far, which each pass extends."""

    run: Run
    step: _CountedStep
    listener: ProgressListener
    checkpoint: Checkpoint
    host_times: HostTimes | None = None
    apart_s: float = 0.0
    """The length of a turn apart from the recording."""

    def seed(self, recorder: Recorder, stack: ExitStack) -> Callable[[], None]:
        """Return a function that restores seeds and state before a pass. The step may have to run once for it."""
        _PassListener(self.listener, "metered").stage("saving the initial state of the step")
        try:
            return stack.enter_context(recorder.seeded(ran=False))
        except BaseException as error:
            if error is self.step.failure:
                self.listener.failed(error, self.step.calls)
            raise

    def meter(self, measure_step: Callable[[ProgressListener], Measurement]) -> Measurement:
        """Measure the step and return what was found; the run has its mean with what was measured before."""
        keeper, begin_s = _PassListener(self.listener, "metered"), time.perf_counter()
        before, done = self.run.measurement, [each for each in self.run.passes if each.name == "metered"]
        try:
            found = measure_step(keeper)
        except MeterFailed as error:
            if before is None:
                raise
            warning = f"the second measurement failed: {error.what}"
            found = replace(before, trustworthy=False, warnings=(*before.warnings, warning))
            before = None
        except BaseException as error:
            if keeper.measurement is not None and before is None:
                self.run = replace(self.run, measurement=keeper.measurement)
                self._end(Pass("metered", "partial", time.perf_counter() - begin_s, describe(error)))
            raise
        self.run = replace(self.run, measurement=found if before is None else combine(before, found), passes=())
        self._end(Pass("metered", "done", time.perf_counter() - begin_s + sum(each.seconds for each in done)))
        return found

    def meter_apart(self, measure_step: Callable[[ProgressListener, float], Measurement]) -> Measurement:
        """Measure the step in a short turn, which is no part of the run."""
        for tries in range(APART_TRIES):
            try:
                return measure_step(_SilentListener(self.listener), self.apart_s)
            except MeterFailed:
                if tries == APART_TRIES - 1:
                    raise
                self.apart_s *= 2
        raise AssertionError("a turn is tried at least once")

    @property
    def is_sampled(self) -> bool:
        """Whether the sampled pass has ended, however it did."""
        return any(each.name == "sampled" for each in self.run.passes)

    def sample(self, begin: Callable[[], None], *, root: Path, seconds: float, source: bool) -> None:
        """Sample the host's time, before a profiler can slow the host down."""
        if (why := why_not_sampled()) is not None:
            self._end(Pass("sampled", "skipped", 0.0, why))
            return
        _PassListener(self.listener, "sampled").stage("running the step")

        def sample(run: Run) -> Run:
            begin()
            step_s = None if run.measurement is None else run.measurement.step_s
            self.host_times = sample_host(self.step, root=root, seconds=seconds, step_s=step_s)
            return add_samples(run, self.host_times, source=source)

        self._pass("sampled", sample)

    def trace(self, recorder: Recorder, begin: Callable[[], None]) -> None:
        recorder.listener = _PassListener(self.listener, "traced")
        recorder.listener.stage("running the step")
        self._pass("traced", lambda run: recorder.trace(run, begin))

    def skip_trace(self, why: str) -> None:
        self.run = replace(self.run, notes=(*self.run.notes, why))
        self._end(Pass("traced", "skipped", 0.0, why))

    def capture(self, recorder: Recorder, capture: Callable[[Run], Run], *, source: bool) -> None:
        """Record operators and outputs. A recorder replaces frames and source lines, so samples are added last."""
        recorder.listener = _PassListener(self.listener, "captured")
        recorder.listener.stage("running the step")

        def capture_all(run: Run) -> Run:
            captured = capture(replace(run, host_samples=()))
            return captured if self.host_times is None else add_samples(captured, self.host_times, source=source)

        self._pass("captured", capture_all)

    def replay(
        self,
        recorder: Recorder,
        begin: Callable[[], None],
        burst_meter: BurstMeter,
        known: Run | None,
        *,
        clock: Clock,
        seconds: float,
    ) -> None:
        if not self.run.ops or not self.run.kernels or self.run.measurement is None:
            why = "operators, kernels and the energy of the step are needed first"
            self._end(Pass("replayed", "skipped", 0.0, why))
            return
        listener = _PassListener(self.listener, "replayed")
        replayer = recorder.replayer(self.run, begin)
        replaying = Replaying(self.run, replayer, burst_meter, clock, listener, seconds, known)

        def replay_all(_: Run) -> Run:
            replaying.go()
            return replaying.result()

        def so_far() -> tuple[Run, PassStatus]:
            return replaying.result(), "partial" if replaying.measured else "failed"

        self._pass("replayed", replay_all, so_far=so_far)

    def _pass(
        self,
        name: PassName,
        work: Callable[[Run], Run],
        *,
        so_far: Callable[[], tuple[Run, PassStatus]] | None = None,
    ) -> None:
        """Run a pass; `so_far` returns the run and the status of the pass if it is interrupted."""
        self.step.calls, begin_s = 0, time.perf_counter()
        try:
            self.run = work(self.run)
        except BaseException as error:
            status: PassStatus = "failed"
            if so_far is not None:
                self.run, status = so_far()
            is_ours = isinstance(error, JoulediffError) and error is not self.step.failure
            why = " ".join(str(error).split()) if is_ours else describe(error)
            self._end(Pass(name, status, time.perf_counter() - begin_s, why))
            if error is self.step.failure:
                self.listener.failed(error, self.step.calls)
            elif is_ours:
                return  # this pass is not possible here; the others may be
            raise
        self._end(Pass(name, "done", time.perf_counter() - begin_s))

    def _end(self, done: Pass) -> None:
        self.run = replace(self.run, passes=(*self.run.passes, done))
        self.checkpoint(self.run)
