"""Measure the energy of one step of a program.

The step settles, then runs through windows until the interval is narrow or the time is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.freed_memory import judge_freed_memory
from joulediff.measuring.host_use import CpuUse, CpuWatch, judge_work, read_page_faults
from joulediff.measuring.idle import wait_for_rest
from joulediff.measuring.loop import Next, WindowLoop, Windows
from joulediff.measuring.meters import MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.repeater import WARM_UP_STEPS, Repeater, Step
from joulediff.measuring.result import floor_share, make_measurement
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.measuring.windows import GOVERNOR_S
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Condition, Measurement, Quiet
from joulediff.model.options import MeasureOptions
from joulediff.model.progress import ProgressListener

# Repeats end once the half width of the interval is below this.
AIM_SHARE = 0.01
# No number of windows beats the spread between runs: repeats end this close to it too.
FLOOR_FACTOR = 1.02
# Two turns of a step together have a narrower interval than each, so each may end earlier.
TURN_FLOOR_FACTOR = 1.16
# The interval is checked after this many windows, and then after twice as many each time.
FIRST_LOOK = 4


def measure(
    step: Step,
    *,
    label: str = MeasureOptions.label,
    seconds: float = MeasureOptions.seconds,
    meter: str | MeterSet = MeasureOptions.meter,
    precision: float | None = MeasureOptions.precision,
    wait_s: float = MeasureOptions.wait_s,
    idle: Quiet | None = None,
    is_warm: bool = False,
    is_turn: bool = False,
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    clock_offset_s: float = MeasureOptions.clock_offset_s,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
    read_cpu_s: Callable[[], float] | None = None,
    read_cpu_use: Callable[[], CpuUse] | None = None,
) -> Measurement:
    """Return the energy of one call of `step`, measured for at most `seconds` after warm-up.

    Repeats end early once the interval is within 1 % (or `precision`). `wait_s` bounds the wait
    for a quiet machine; `idle`, from `measure_idle`, skips it. `is_warm`: the step ran before, one call warms it up.
    `is_turn`: the result will be combined with that of another turn. Exceptions of `step` pass through, after
    `listener.kept` was given the measurement so far. `read_cpu_s` returns the CPU seconds of the program so far: by
    default, on a real clock, those of this process without the sampling. `read_cpu_use` returns those of the machine
    too, so that other programs are noticed: by default, on a real clock, `CpuWatch`.
    """
    if not 0 < seconds < float("inf"):
        raise JoulediffError(f"cannot measure for {seconds:g} seconds", fix="give a positive number of seconds")
    if not 0 <= wait_s < float("inf"):
        raise JoulediffError(f"cannot wait {wait_s:g} seconds for quiet", fix="give a number of seconds, 0 or more")
    if precision is not None and not 0 < precision < float("inf"):
        raise JoulediffError(f"a precision of {precision:g} is not a share", fix="give a share such as 0.02, for 2%")
    clock, listener = clock or RealClock(), listener or ProgressListener()
    with ExitStack() as stack:
        if not isinstance(meter, MeterSet):
            meter = open_meters(
                meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, cache=SensorCache()
            )
            stack.enter_context(meter)
        repeater = Repeater(step, clock=clock)
        listener.stage("warming up")
        _warm_up(repeater, listener, least=1 if is_warm else WARM_UP_STEPS)
        sampler = stack.enter_context(Sampler(meter.meters, clock=clock))
        quiet = idle or _wait(sampler, clock=clock, wait_s=wait_s, listener=listener)
        if isinstance(clock, RealClock):
            read_cpu_s = read_cpu_s or _cpu_beside(sampler)
            read_cpu_use = read_cpu_use or CpuWatch(clock=clock)
        loop = WindowLoop(repeater, sampler, clock=clock, read_cpu_s=read_cpu_s, read_faults=read_page_faults)
        factor = TURN_FLOOR_FACTOR if is_turn else FLOOR_FACTOR
        work = _Run(label, sampler, repeater, quiet, precision, clock, loop, factor, read_cpu_use)
        result = work.measure(seconds, listener)
        return replace(result, warnings=(*result.warnings, *meter.remarks))


def _cpu_beside(sampler: Sampler) -> Callable[[], float]:
    return lambda: time.process_time() - sampler.cpu_s


def _warm_up(repeater: Repeater, listener: ProgressListener, *, least: int) -> None:
    try:
        repeater.warm_up(least=least)
    except BaseException:
        _report_failure(repeater, listener)
        raise


def _report_failure(repeater: Repeater, listener: ProgressListener) -> None:
    if repeater.failure is not None:
        listener.failed(repeater.failure, repeater.calls)


def measure_idle(meters: MeterSet, *, wait_s: float = MeasureOptions.wait_s, clock: Clock | None = None) -> Quiet:
    """Return the idle power and conditions of this machine, to be shared by several `measure` calls."""
    clock = clock or RealClock()
    with Sampler(meters.meters, clock=clock) as sampler:
        return _wait(sampler, clock=clock, wait_s=wait_s, listener=ProgressListener())


def resting(measured: Measurement) -> Quiet:
    """Return the idle power found by a measurement, to measure the same program again soon after."""
    idle = {name: domain.idle for name, domain in measured.domains.items() if domain.idle is not None}
    return Quiet(quiet=True, conditions=(), idle=idle)


def _wait(sampler: Sampler, *, clock: Clock, wait_s: float, listener: ProgressListener) -> Quiet:
    listener.stage("looking for a quiet second")
    return wait_for_rest(sampler, clock=clock, wait_s=wait_s, listener=listener)


@dataclass(slots=True)
class _Run:
    """One measurement in progress."""

    label: str
    sampler: Sampler
    repeater: Repeater
    quiet: Quiet
    precision: float | None
    clock: Clock
    loop: WindowLoop
    floor_factor: float
    read_cpu_use: Callable[[], CpuUse] | None

    def measure(self, seconds: float, listener: ProgressListener) -> Measurement:
        self.sampler.check()
        cpu, begin_s = self._cpu_use(), self.clock.now()
        try:
            self._run_windows(seconds, listener)
            self.sampler.check()
            self.repeater.drain()
        except BaseException:
            self._keep_partial(listener)
            _report_failure(self.repeater, listener)
            raise
        host = self._judge_host(cpu, begin_s)
        self.sampler.catch_up(self.clock.now())
        windows = self.loop.windows
        devices = judge_devices(windows.states_before, windows.states_after, idle=False)
        return self._result(windows, [*devices, *host, judge_freed_memory(), self._judge_time(seconds)])

    def _cpu_use(self) -> CpuUse | None:
        return None if self.read_cpu_use is None else self.read_cpu_use()

    def _judge_host(self, before: CpuUse | None, begin_s: float) -> list[Condition]:
        after = self._cpu_use()
        if before is None or after is None:
            return []
        return judge_work(before, after, self.clock.now() - begin_s, self.sampler.primary_domains())

    def _judge_time(self, seconds: float) -> Condition:
        slowest = max(self.sampler.primary_domains(), key=lambda d: d.window_s + d.settle_s)
        needed_s = slowest.window_s + slowest.settle_s
        advice = f"{seconds:g} s are too short for {slowest.name}: give --seconds {needed_s:.2g} or more"
        return Condition("time", seconds >= needed_s, f"{seconds:g} s", slowest.name, advice)

    def _run_windows(self, seconds: float, listener: ProgressListener) -> None:
        domains = self.sampler.primary_domains()
        settle_s = min(max(d.settle_s for d in domains), seconds / 2)
        count = max(1, int((seconds - settle_s) / max(d.window_s for d in domains)))
        window_s = (seconds - settle_s) / count
        begin_s, next_look = self.clock.now(), FIRST_LOOK
        listener.stage("measuring", 0.0)

        def after_window(done: int) -> Next:
            nonlocal next_look
            spent_s = self.clock.now() - begin_s
            listener.stage("measuring", min(1.0, spent_s / seconds))
            if spent_s + window_s / 2 >= seconds:
                return "stop"
            # At the power limit a short interval is wide, and a pause would cut the swings of the governor apart.
            is_swinging = spent_s - settle_s < GOVERNOR_S and self._is_capped()
            if done < next_look or is_swinging:
                return "window"
            if self._is_narrow():
                return "stop"
            next_look *= 2
            # The work stood still while the interval was computed, so it must settle again.
            return "stretch"

        self.loop.run(settle_s=settle_s, window_s=window_s, after_window=after_window)

    def _is_capped(self) -> bool:
        return any(state.at_power_limit for state in self.loop.windows.states_before)

    def _is_narrow(self) -> bool:
        try:
            found = self._result(self.loop.windows)
        except JoulediffError:
            return False  # a meter whose readings come late will have them at the end
        aim = self.precision or max(AIM_SHARE, self.floor_factor * floor_share(self.sampler, found.domains))
        return found.energy.half_width_share <= aim

    def _keep_partial(self, listener: ProgressListener) -> None:
        """Report the measurement before the program failed; an error here must not hide the program's."""
        windows, marks_s = self.loop.windows, self.repeater.log.time_s
        if len(marks_s) < 2:
            return
        stretches = [list(edges) for edges in windows.stretches if edges and edges[0] < marks_s[-1]] or [[marks_s[0]]]
        if marks_s[-1] > stretches[-1][-1]:
            stretches[-1].append(marks_s[-1])
        failed = Condition("complete", False, "", advice="the program ended before the measurement was complete")
        with suppress(Exception):
            self.sampler.edge()
            self.sampler.catch_up(marks_s[-1])
            listener.kept(self._result(replace(windows, stretches=stretches), [failed]))

    def _result(self, windows: Windows, conditions: Sequence[Condition] = ()) -> Measurement:
        return make_measurement(
            label=self.label,
            sampler=self.sampler,
            windows=windows,
            quiet=self.quiet,
            precision=self.precision,
            conditions=conditions,
        )
