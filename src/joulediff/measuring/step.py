"""Measure one callable.

The work never stops while the meters speak: it settles, then runs through windows until their
interval is narrow or the time is spent. Joules per step come from the curve and the marks alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.idle import wait_until_quiet
from joulediff.measuring.meters import MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.repeater import Repeater, Step
from joulediff.measuring.result import floor_share, make_measurement
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.sensor_cache import Memory
from joulediff.measuring.windows import cpu_per_step, mean_clocks
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Condition, DeviceState, Measurement, Quiet
from joulediff.model.options import MeasureOptions
from joulediff.model.progress import ProgressListener

# Half width of the interval at which more repeats are not worth their time.
AIM_SHARE = 0.01
# More windows cannot beat the spread between runs; this close to it they are not worth their time either.
FLOOR_FACTOR = 1.02
# After so many windows, and twice as many each time, look whether the interval is narrow enough.
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
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    clock_offset_s: float = MeasureOptions.clock_offset_s,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
    read_cpu_s: Callable[[], float] | None = None,
) -> Measurement:
    """Return the energy of one call of `step`, measured for at most `seconds` after warm-up.

    Repeats end early once the interval is within 1 % (or `precision`). `wait_s` bounds the wait
    for a quiet machine; `idle`, from `measure_idle`, skips it. Exceptions of `step` pass through;
    what was measured before is handed to `watch.kept`. `read_cpu_s` returns the CPU seconds of the
    program so far: by default, on a real clock, those of this process without the sampling.
    """
    if not 0 < seconds < float("inf"):
        raise JoulediffError(f"cannot measure for {seconds:g} seconds", fix="give a positive number of seconds")
    if not 0 <= wait_s < float("inf"):
        raise JoulediffError(f"cannot wait {wait_s:g} seconds for quiet", fix="give a number of seconds, 0 or more")
    if precision is not None and not 0 < precision < float("inf"):
        raise JoulediffError(f"a precision of {precision:g} means nothing", fix="give a share such as 0.02, for 2%")
    clock, listener = clock or RealClock(), listener or ProgressListener()
    with ExitStack() as stack:
        if not isinstance(meter, MeterSet):
            meter = open_meters(meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, memory=Memory())
            stack.enter_context(meter)
        repeater = Repeater(step, clock=clock)
        listener.stage("warming up")
        _warm_up(repeater, listener)
        sampler = stack.enter_context(Sampler(meter.meters, clock=clock))
        quiet = idle or _wait(sampler, clock=clock, wait_s=wait_s, listener=listener)
        if read_cpu_s is None and isinstance(clock, RealClock):
            read_cpu_s = _cpu_beside(sampler)
        result = _Run(label, sampler, repeater, quiet, precision, clock, read_cpu_s).measure(seconds, listener)
        return replace(result, warnings=(*result.warnings, *meter.remarks))


def _cpu_beside(sampler: Sampler) -> Callable[[], float]:
    return lambda: time.process_time() - sampler.cpu_s


def _warm_up(repeater: Repeater, listener: ProgressListener) -> None:
    try:
        repeater.warm_up()
    except BaseException:
        _tell_failure(repeater, listener)
        raise


def _tell_failure(repeater: Repeater, listener: ProgressListener) -> None:
    if repeater.failure is not None:
        listener.failed(repeater.failure, repeater.calls)


def measure_idle(meters: MeterSet, *, wait_s: float = MeasureOptions.wait_s, clock: Clock | None = None) -> Quiet:
    """Return the idle power and conditions of this machine, to be shared by several `measure` calls."""
    clock = clock or RealClock()
    with Sampler(meters.meters, clock=clock) as sampler:
        return _wait(sampler, clock=clock, wait_s=wait_s, listener=ProgressListener())


def resting(measured: Measurement) -> Quiet:
    """Return the idle power that a measurement found, for another one of the same program soon after."""
    idle = {name: domain.idle for name, domain in measured.domains.items() if domain.idle is not None}
    return Quiet(quiet=True, conditions=(), idle=idle)


def _wait(sampler: Sampler, *, clock: Clock, wait_s: float, listener: ProgressListener) -> Quiet:
    listener.stage("looking for a quiet second")
    # Other programs' CPU work is in a package's energy and a wall plug's; a GPU and the estimate do not see it.
    sees_cpu = any(d.source == "metered" and not d.name.startswith("gpu") for d in sampler.primary_domains())
    return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, listener=listener, look_at_cpu=sees_cpu)


@dataclass(slots=True)
class _Run:
    """One measurement under way; `stretches` are its windows so far, by their edges.

    `clocks_mhz` and `spent_s` are what the devices and the program showed at these edges.
    """

    label: str
    sampler: Sampler
    repeater: Repeater
    quiet: Quiet
    precision: float | None
    clock: Clock
    read_cpu_s: Callable[[], float] | None
    stretches: list[list[float]] = field(default_factory=list)
    clocks_mhz: list[Mapping[str, float]] = field(default_factory=list)
    spent_s: list[list[float]] = field(default_factory=list)

    def measure(self, seconds: float, listener: ProgressListener) -> Measurement:
        self.sampler.check()
        try:
            states, states_after = self._run_windows(seconds, listener)
            self.sampler.check()
            self.repeater.drain()
        except BaseException:
            self._keep_partial(listener)
            _tell_failure(self.repeater, listener)
            raise
        self.sampler.catch_up(self.clock.now())
        conditions = [*judge_devices(states, states_after, idle=False), *self._judge_time(seconds)]
        return self._result(self.stretches, conditions, states_after)

    def _judge_time(self, seconds: float) -> list[Condition]:
        slowest = max(self.sampler.primary_domains(), key=lambda d: d.window_s + d.settle_s)
        needed_s = slowest.window_s + slowest.settle_s
        advice = f"{seconds:g} s are too short for {slowest.name}: give --seconds {needed_s:.2g} or more"
        return [Condition("time", seconds >= needed_s, f"{seconds:g} s", slowest.name, advice)]

    def _run_windows(self, seconds: float, listener: ProgressListener) -> tuple[list[DeviceState], list[DeviceState]]:
        domains = self.sampler.primary_domains()
        settle_s = min(max(d.settle_s for d in domains), seconds / 2)
        count = max(1, int((seconds - settle_s) / max(d.window_s for d in domains)))
        window_s = (seconds - settle_s) / count
        begin_s, done, next_look = self.clock.now(), 0, FIRST_LOOK
        self._begin_stretch(settle_s)
        states = self.sampler.states()
        while True:
            self.repeater.run_until(self.stretches[-1][-1] + window_s)
            self._add_edge()
            done += 1
            spent_s = self.clock.now() - begin_s
            listener.stage("measuring", min(1.0, spent_s / seconds))
            if spent_s + window_s / 2 >= seconds:
                break
            if done == next_look:
                if self._is_narrow():
                    break
                next_look *= 2
                self._begin_stretch(min(settle_s, window_s / 2))
        return states, self.sampler.states()

    def _begin_stretch(self, settle_s: float) -> None:
        """Let the work settle, then begin to measure; what Python did before is not in the windows."""
        self.repeater.run_until(self.clock.now() + settle_s)
        self.stretches.append([])
        self.spent_s.append([])
        self._add_edge()

    def _add_edge(self) -> None:
        """End a window and begin the next where the meters have just spoken, a moment before."""
        self.clocks_mhz.append(self.sampler.clocks())  # first, while queued work still keeps the device busy
        self.sampler.edge()
        self.stretches[-1].append(self.clock.now())
        if self.read_cpu_s is not None:
            self.spent_s[-1].append(self.read_cpu_s())

    def _is_narrow(self) -> bool:
        try:
            found = self._result(self.stretches)
        except JoulediffError:
            return False  # a meter that speaks late will have spoken at the end
        aim = self.precision or max(AIM_SHARE, FLOOR_FACTOR * floor_share(self.sampler, found.domains))
        return found.energy.half_width_share <= aim

    def _keep_partial(self, listener: ProgressListener) -> None:
        """Hand over what was measured before the program broke off; a failure here must not hide why."""
        marks_s = self.repeater.progress.time_s
        if len(marks_s) < 2:
            return
        stretches = [edges for edges in self.stretches if edges and edges[0] < marks_s[-1]] or [[marks_s[0]]]
        if marks_s[-1] > stretches[-1][-1]:
            stretches = [*stretches[:-1], [*stretches[-1], marks_s[-1]]]
        broken = Condition("complete", False, "", advice="the program broke off before the measurement was complete")
        with suppress(Exception):
            self.sampler.edge()
            self.sampler.catch_up(marks_s[-1])
            listener.kept(self._result(stretches, [broken]))

    def _result(
        self,
        stretches: Sequence[Sequence[float]],
        conditions: Sequence[Condition] = (),
        states: Sequence[DeviceState] = (),
    ) -> Measurement:
        return make_measurement(
            label=self.label,
            sampler=self.sampler,
            progress=self.repeater.progress,
            stretches=stretches,
            quiet=self.quiet,
            precision=self.precision,
            conditions=conditions,
            states=states,
            clocks_mhz=mean_clocks(self.clocks_mhz),
            cpu_s=cpu_per_step(self.stretches, self.spent_s, self.repeater.progress),
        )
