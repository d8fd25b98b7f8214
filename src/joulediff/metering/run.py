"""Measure one callable.

The work never stops while the meters speak: it settles, then runs through windows until their
interval is narrow or the time is spent. Joules per step come from the curve and the marks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from joulediff.errors import JoulediffError
from joulediff.metering.result import make_measurement
from joulediff.meters import MeterSet, open_meters
from joulediff.meters.memory import Memory
from joulediff.meters.meter import Clock, RealClock
from joulediff.meters.sampler import Sampler
from joulediff.records import Condition, DeviceState, Measurement, Quiet
from joulediff.stability.conditions import judge_devices
from joulediff.stability.idle import WAIT_S, wait_until_quiet
from joulediff.stability.repeats import Repeater, Step
from joulediff.stability.watch import Watch

SECONDS = 4.0
# Half width of the interval at which more repeats are not worth their time.
AIM_SHARE = 0.01
# Windows before the repeats may be called narrow enough.
MIN_WINDOWS = 3


def measure(
    step: Step,
    *,
    label: str = "step",
    seconds: float = SECONDS,
    meter: str | MeterSet = "auto",
    precision: float | None = None,
    wait_s: float = WAIT_S,
    idle: Quiet | None = None,
    cpu_watts: float | None = None,
    clock_offset_s: float = 0.0,
    clock: Clock | None = None,
    watch: Watch | None = None,
) -> Measurement:
    """Return the energy of one call of `step`, measured for at most `seconds` after warm-up.

    Repeats end early once the interval is within 1 % (or `precision`). `wait_s` bounds the wait
    for a quiet machine; `idle`, from `measure_idle`, skips it. Exceptions of `step` pass through;
    what was measured before is handed to `watch.kept`.
    """
    if not 0 < seconds < float("inf"):
        raise JoulediffError(f"cannot measure for {seconds:g} seconds", fix="give a positive number of seconds")
    clock, watch = clock or RealClock(), watch or Watch()
    with ExitStack() as stack:
        if not isinstance(meter, MeterSet):
            meter = open_meters(meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, memory=Memory())
            stack.enter_context(meter)
        repeater = Repeater(step, clock=clock)
        watch.stage("warming up")
        _warm_up(repeater, watch)
        sampler = stack.enter_context(Sampler(meter.meters, clock=clock))
        quiet = idle or _wait(sampler, clock=clock, wait_s=wait_s, watch=watch)
        result = _Run(label, sampler, repeater, quiet, precision, clock).measure(seconds, watch)
        return replace(result, warnings=(*result.warnings, *meter.remarks))


def _warm_up(repeater: Repeater, watch: Watch) -> None:
    try:
        repeater.warm_up()
    except BaseException:
        _tell_failure(repeater, watch)
        raise


def _tell_failure(repeater: Repeater, watch: Watch) -> None:
    if repeater.failure is not None:
        watch.failed(repeater.failure, repeater.calls)


def measure_idle(meters: MeterSet, *, wait_s: float = WAIT_S, clock: Clock | None = None) -> Quiet:
    """Return the idle power and conditions of this machine, to be shared by several `measure` calls."""
    clock = clock or RealClock()
    with Sampler(meters.meters, clock=clock) as sampler:
        return _wait(sampler, clock=clock, wait_s=wait_s, watch=Watch())


def _wait(sampler: Sampler, *, clock: Clock, wait_s: float, watch: Watch) -> Quiet:
    watch.stage("looking for a quiet second")
    # Other programs' CPU work is in a package's energy and a wall plug's; a GPU and the estimate do not see it.
    sees_cpu = any(d.source == "metered" and not d.name.startswith("gpu") for d in sampler.primary_domains())
    return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, watch=watch, look_at_cpu=sees_cpu)


@dataclass(slots=True)
class _Run:
    """One measurement under way; `edges_s` are the ends of its windows so far."""

    label: str
    sampler: Sampler
    repeater: Repeater
    quiet: Quiet
    precision: float | None
    clock: Clock
    edges_s: list[float] = field(default_factory=list)

    def measure(self, seconds: float, watch: Watch) -> Measurement:
        try:
            states, states_after = self._run_windows(seconds, watch)
            self.repeater.drain()
        except BaseException:
            self._keep_partial(watch)
            _tell_failure(self.repeater, watch)
            raise
        self.sampler.catch_up(self.clock.now())
        conditions = judge_devices(states, states_after, idle=False)
        return self._result(self.edges_s, conditions, states_after)

    def _run_windows(self, seconds: float, watch: Watch) -> tuple[list[DeviceState], list[DeviceState]]:
        domains = self.sampler.primary_domains()
        settle_s = min(max(d.settle_s for d in domains), seconds / 2)
        count = max(1, int((seconds - settle_s) / max(d.window_s for d in domains)))
        window_s = (seconds - settle_s) / count
        self.repeater.run_until(self.clock.now() + settle_s)
        self.sampler.check()
        states = self.sampler.states()
        self._add_edge()
        for index in range(count):
            watch.stage("measuring", index / count)
            self.repeater.run_until(self.edges_s[-1] + window_s)
            self._add_edge()
            if index + 1 < count and self._is_narrow():
                break
        states_after = self.sampler.states()
        self.sampler.check()
        return states, states_after

    def _add_edge(self) -> None:
        """End a window and begin the next where the meters have just spoken, a moment before."""
        self.sampler.edge()
        self.edges_s.append(self.clock.now())

    def _is_narrow(self) -> bool:
        if len(self.edges_s) <= MIN_WINDOWS:
            return False
        try:
            energy = self._result(self.edges_s).energy
        except JoulediffError:
            return False  # a meter that speaks late will have spoken at the end
        return energy.half_width_share <= (self.precision or AIM_SHARE)

    def _keep_partial(self, watch: Watch) -> None:
        """Hand over what was measured before the program broke off; a failure here must not hide why."""
        marks_s = self.repeater.progress.time_s
        if len(marks_s) < 2:
            return
        end_s = marks_s[-1]
        edges_s = [e for e in self.edges_s if e < end_s] or [marks_s[0]]
        broken = Condition("complete", False, "", advice="the program broke off before the measurement was complete")
        try:
            self.sampler.catch_up(end_s)
            watch.kept(self._result([*edges_s, end_s], [broken]))
        except JoulediffError:
            return

    def _result(
        self,
        edges_s: Sequence[float],
        conditions: Sequence[Condition] = (),
        states: Sequence[DeviceState] = (),
    ) -> Measurement:
        return make_measurement(
            label=self.label,
            sampler=self.sampler,
            progress=self.repeater.progress,
            edges_s=edges_s,
            quiet=self.quiet,
            precision=self.precision,
            conditions=conditions,
            states=states,
        )
