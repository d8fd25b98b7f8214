"""A simulated GPU that knows the energy of every call, and programs to run on it: replay without a device.

At full clock a call draws its watts for its seconds. A governor lowers the clock where the mean power exceeds the
limit: a call then takes longer, and its energy above rest falls with the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fakes import GPU, DeviceMeter, FakeDevice
from joulediff.energy.distinct_ops import Distances
from joulediff.energy.gpu_clock import ProgramGpu
from joulediff.energy.load_energy import BurstMeter, GpuMeter
from joulediff.energy.replay import Replaying
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import DeviceState, Domain, DomainEnergy, Measurement, Reading
from joulediff.model.progress import ProgressListener
from joulediff.model.run import How, Inputs, Op, Replay, Run
from run_builders import RunBuilder, domain_energy, measurement

REST_W, LIMIT_W, FULL_MHZ = 120.0, 700.0, 1980.0
# As long as a burst of `CudaLoad`.
BURST_S = 1e-3
# How often the governor looks at the power.
GOVERNOR_S = 0.01
# The driver of an H200 keeps so many samples.
KEPT_SAMPLES = 119


@dataclass(frozen=True)
class Work:
    """One call: watts and seconds at full clock; its energy is proportional to the clock to the power of `follows`."""

    power_w: float
    call_s: float
    follows: float = 1.0

    def energy_j(self, clock_mhz: float = FULL_MHZ, *, rest_w: float = REST_W) -> float:
        """Return the energy above rest."""
        return (self.power_w - rest_w) * self.call_s * (clock_mhz / FULL_MHZ) ** self.follows

    def seconds(self, clock_mhz: float = FULL_MHZ) -> float:
        return self.call_s * FULL_MHZ / clock_mhz


MM, ADD = Work(1000.0, 250e-6), Work(450.0, 40e-6)


class FakeCard(FakeDevice):
    """A device with a clock, and a governor that keeps the mean power at the limit."""

    def __init__(self, clock: FakeClock, *, limit_w: float | None = LIMIT_W, rest_w: float = REST_W) -> None:
        super().__init__(clock, idle_w=rest_w)
        self.limit_w, self.clock_mhz = limit_w, FULL_MHZ
        self.others: tuple[int, ...] = ()
        self.temperature_c: float | None = None
        self._governed_s = clock.now()

    def work(self, work: Work, calls: int) -> None:
        self._govern()
        seconds = calls * work.seconds(self.clock_mhz)
        self.set(self.idle_w + calls * work.energy_j(self.clock_mhz, rest_w=self.idle_w) / seconds)
        self.clock.advance(seconds)
        self.set(self.idle_w)

    def mean_w(self, start_s: float, end_s: float) -> float:
        return float((self.energy_at(end_s) - self.energy_at(start_s)) / (end_s - start_s))

    def _govern(self) -> None:
        since_s, now_s = self._governed_s, self.clock.now()
        if self.limit_w is not None and now_s - since_s >= GOVERNOR_S:
            above_w = max(1e-9, self.mean_w(since_s, now_s) - self.idle_w)
            self.clock_mhz = min(FULL_MHZ, self.clock_mhz * math.sqrt((self.limit_w - self.idle_w) / above_w))
            self._governed_s = now_s


class CardMeter(DeviceMeter):
    """Reads a card as NVML does: each power sample is a mean over the time since the one before."""

    def __init__(
        self, card: FakeCard, domain: Domain = GPU, *, tells_clock: bool = True, lag_s: float = 0.0, **options: Any
    ) -> None:
        super().__init__(card, [domain], **options)
        self.name = f"meter of {domain.name}"
        self.card, self.late_s, self._tells_clock = card, lag_s, tells_clock
        self.looks = 0

    def _sample(self, domain: Domain) -> list[Reading]:
        period_s, key = domain.period_s, (domain.name, domain.kind)
        count = max(0, math.floor((self._clock.now() - self.late_s - self._next_s[key]) / period_s + 1e-9) + 1)
        stamps_s = [self._next_s[key] + at * period_s for at in range(count)]
        self._next_s[key] += count * period_s
        return [Reading(domain.name, "power", t, self.card.mean_w(t - period_s, t)) for t in stamps_s[-KEPT_SAMPLES:]]

    def states(self) -> list[DeviceState]:
        self.looks += 1
        card = self.card
        return [
            DeviceState(
                self.domains[0].name,
                self._clock_mhz(),
                FULL_MHZ,
                card.temperature_c,
                power_limit_w=card.limit_w,
                other_pids=card.others,
            )
        ]

    def clocks(self) -> dict[str, float]:
        found = self._clock_mhz()
        return {} if found is None else {self.domains[0].name: found}

    def _clock_mhz(self) -> float | None:
        return self.card.clock_mhz if self._tells_clock else None


class FakeLoad:
    """Bursts of one call. Without work it is the card at rest."""

    how: How = "graph"
    copies = 1
    run_empty: Callable[[], None] | None = None

    def __init__(
        self,
        card: FakeCard,
        work: Work | None,
        *,
        aim_s: float | None = None,
        inputs: Inputs = "real",
        fails: BaseException | None = None,
        gap_s: float = 0.0,
    ) -> None:
        self.card, self.aim_s, self.inputs = card, aim_s, inputs
        self.calls = 0 if work is None else max(1, round(BURST_S / work.call_s))
        self.call_s = None if work is None else work.call_s
        self.burst_s = 0.0 if work is None else self.calls * work.call_s
        self.rests_s: list[float] = []
        self.closed = False
        self._work, self._fails, self._gap_s = work, fails, gap_s

    def run(self, rest_s: float) -> None:
        assert not self.closed
        self.rests_s.append(rest_s)
        if self._fails is not None:
            raise self._fails
        if self._work is not None:
            self.card.work(self._work, self.calls)
        self.card.clock.advance(rest_s + self._gap_s)

    def close(self) -> None:
        self.closed = True


class FakeReplayer:
    """Replays the operators of a run on simulated devices. Failures are set on it, by operator."""

    def __init__(self, run: Run, works: Mapping[str, Work], cards: Mapping[str, FakeCard]) -> None:
        self.run, self._works, self.cards = run, works, cards
        self.addresses: Sequence[int] = ()
        self.refused: dict[str, str] = {}
        self.unopenable: dict[str, str] = {}
        self.failures: dict[str, BaseException] = {}
        self.budget = 1 << 40
        self.alive = self.restful = True
        self.on_collect: Callable[[], None] = lambda: None
        self.collected: list[list[int]] = []
        self.asked: dict[int, Distances] = {}
        self.loads: dict[str, FakeLoad] = {}
        self.rests: list[FakeLoad] = []
        self.closed = 0

    def refusal(self, op: Op) -> str | None:
        return self.refused.get(op.name)

    def budget_bytes(self, device: str) -> int:
        return self.budget

    def collect(self, ops: Sequence[int]) -> None:
        self.collected.append(list(ops))
        self.on_collect()

    def open_load(
        self, op: int, *, inputs: Sequence[float], outputs: float = math.inf, device_s: float | None = None
    ) -> FakeLoad:
        found = self.run.ops[op]
        self.asked[op] = Distances(tuple(inputs), outputs)
        if found.name in self.unopenable:
            raise JoulediffError(self.unopenable[found.name])
        load = FakeLoad(
            self.cards[found.device],
            self._works[found.name],
            aim_s=device_s,
            inputs="real" if op in self.collected[-1] else "drawn",
            fails=self.failures.get(found.name),
        )
        self.loads[found.name] = load
        return load

    def open_rest(self, device: str) -> FakeLoad | None:
        self.rests += [FakeLoad(self.cards[device], None)] if self.restful else []
        return self.rests[-1] if self.restful else None

    def is_alive(self, device: str) -> bool:
        return self.alive

    def close(self) -> None:
        self.closed += 1


class ReplaySetup:
    """A simulated GPU with its meters, and replays of programs on it."""

    def __init__(self, domain: Domain = GPU, *, limit_w: float | None = LIMIT_W, **meter: Any) -> None:
        self.clock = FakeClock()
        self.card = FakeCard(self.clock, limit_w=limit_w)
        self.meter = CardMeter(self.card, domain, **meter)
        self.burst_meter = BurstMeter([self.meter], clock=self.clock)

    def load(self, work: Work, **options: Any) -> FakeLoad:
        return FakeLoad(self.card, work, **options)

    def gpu_meter(self, *, rest_share: float | None = None, open_rest: Any = None, **facts: Any) -> GpuMeter:
        """Return the meter of the card; without `facts`, for a program at full clock."""
        known = {"clock_mhz": FULL_MHZ, "power_w": 400.0, "limit_w": self.card.limit_w, **facts}
        rest = open_rest or (lambda: FakeLoad(self.card, None))
        gpu = ProgramGpu("cuda:0", "gpu0", **known)
        return GpuMeter(gpu, self.burst_meter, open_rest=rest, clock=self.clock, rest_share=rest_share)

    def replay(self, run: Run, works: Mapping[str, Work], **options: Any) -> tuple[Replaying, FakeReplayer]:
        replayer = FakeReplayer(run, works, {"cuda:0": self.card})
        return Replaying(
            run, replayer, self.burst_meter, self.clock, options.pop("listener", ProgressListener()), **options
        ), replayer


def program_clock(works: Sequence[Work], gap_s: float, limit_w: float | None) -> float:
    """Return the clock at which a step of these calls draws no more than the limit."""

    def mean_w(clock_mhz: float) -> float:
        step_s = gap_s + sum(work.seconds(clock_mhz) for work in works)
        return REST_W + sum(work.energy_j(clock_mhz) for work in works) / step_s

    low, high = 0.2 * FULL_MHZ, FULL_MHZ
    if limit_w is None or mean_w(high) <= limit_w:
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_w(middle) <= limit_w else (low, middle)
    return low


def make_program(
    calls: Sequence[str],
    works: Mapping[str, Work],
    *,
    gap_s: float = 0.0,
    limit_w: float | None = LIMIT_W,
    traced_mhz: float = FULL_MHZ,
    **facts: Any,
) -> Run:
    """Return a run of operators by name, in order, with its simulated energy; `gap_s` is the idle part of the step."""
    made, clock_mhz = RunBuilder(), program_clock([works[name] for name in calls], gap_s, limit_w)
    for name in calls:
        op = made.op(name, inputs=[made.value()], outputs=[made.value()])
        made.kernel(f"{name}_kernel", works[name].seconds(traced_mhz), op=op)
    step_s = gap_s + sum(works[name].seconds(clock_mhz) for name in calls)
    joules = REST_W * step_s + sum(works[name].energy_j(clock_mhz) for name in calls)
    known = {"domains": {"gpu0": domain_energy(joules, step_s, REST_W)}, "clocks_mhz": {"gpu0": clock_mhz}}
    states = (DeviceState("gpu0", clock_mhz=clock_mhz, clock_max_mhz=FULL_MHZ, power_limit_w=limit_w),)
    return made.build(measurement=measurement(step_s, **{**known, "states": states, **facts}))


def replay_of(run: Run, name: str) -> Replay:
    """Return the replay of the operator of that name."""
    (found,) = {op.replay for op in run.ops if op.name == name}
    assert found is not None
    return run.replays[found]


def holds(found: Replay, joules: float, *, times: float = 1.0) -> bool:
    """Return whether the interval, so many times as wide, holds an energy."""
    assert found.energy_j is not None and found.low_j is not None and found.high_j is not None
    return abs(joules - found.energy_j) <= times * (found.high_j - found.energy_j)


def with_domains(run: Run, domains: Mapping[str, DomainEnergy]) -> Run:
    """Return the same run with the domains of other meters."""
    assert isinstance(run.measurement, Measurement)
    return replace(run, measurement=replace(run.measurement, domains=domains))
