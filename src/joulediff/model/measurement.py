"""Records of meters and measurements: domains, readings, states of devices, and the energy of one step.

They are frozen and hold no device handles or live tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from joulediff.model.display import Displayed
from joulediff.model.energy import Amount, Energy, ManySteps, Scale, Source, many_steps, to_energy
from joulediff.model.units import format_time

Kind = Literal["counter", "power"]
# The reason for throttling that is normal at work: the device is at its power limit.
POWER_CAP = "power cap"


@dataclass(frozen=True, slots=True)
class Domain:
    """One part of a machine whose energy a meter measures, with the properties of the sensor.

    `name` and `kind` together are unique: a GPU may have a counter and power samples.
    """

    name: str
    kind: Kind
    device: str
    key: str
    """Identifies the sensor (card UUID, sysfs path) in the cache of measured properties."""
    period_s: float
    """Seconds between two new values; nominal until `doctor.probe` has measured them."""
    resolution_j: float
    """The smallest difference of energy that the sensor shows."""
    repeat_share: float
    """Spread (one sigma) between repeated measurements of the same work, as a share; more time does not reduce it."""
    window_s: float
    """The shortest window worth measuring in."""
    settle_s: float = 0.0
    """Seconds that the device and the sensor need after a change of load."""
    source: Source = "metered"
    whole: bool = False
    """Includes other domains (`psys`, a wall plug), so it is never added to a total."""
    wrap_j: float | None = None
    note: str | None = None
    """A limitation to report with every result: a fallback sensor, a shared GPU."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a domain: joules so far (counter) or watts (power).

    The value was taken between `time_s - within_s` and `time_s`.
    """

    domain: str
    kind: Kind
    time_s: float
    value: float
    within_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The state of a device now; None for properties that its driver does not report."""

    domain: str
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None
    throttle: tuple[str, ...] = ()
    """Why the clock is limited: `POWER_CAP`, or the driver's other reasons."""
    other_pids: tuple[int, ...] = ()

    @property
    def at_power_limit(self) -> bool:
        """Return whether the power limit lowers the clock."""
        return POWER_CAP in self.throttle


@dataclass(frozen=True, slots=True)
class IdlePower:
    """The power of a resting domain in one window, with its interval and spread."""

    power_w: float
    low_w: float
    high_w: float
    spread_share: float
    window_s: float

    def over(self, seconds: float, source: Source) -> Energy | None:
        """Return the energy of a domain that rests for some seconds."""
        return to_energy(self.power_w * seconds, self.low_w * seconds, self.high_w * seconds, source)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition that was checked. `domain` is None for the whole machine."""

    name: str
    ok: bool
    value: str
    domain: str | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Quiet:
    """Whether a machine is quiet, with the idle power of the same window that was judged."""

    quiet: bool
    conditions: tuple[Condition, ...]
    idle: Mapping[str, IdlePower]
    states: tuple[DeviceState, ...] = ()
    waited_s: float = 0.0

    @property
    def advice(self) -> tuple[str, ...]:
        """Return the advice for each condition that does not hold, without repetition."""
        texts = [c.advice or f"{c.name}: {c.value}" for c in self.conditions if not c.ok]
        return tuple(dict.fromkeys(texts))


@dataclass(frozen=True, slots=True)
class DomainEnergy:
    """Energy of one step in one domain, gross and net of idle."""

    energy: Energy
    net_energy: Energy | None
    power_w: float
    idle: IdlePower | None
    kind: Kind
    device: str
    counted: bool
    """False for a domain that is not in the total: it includes others, is only an estimate, or rested."""
    rested: bool = False
    """A GPU whose power does not differ from idle while another GPU works."""
    note: str | None = None


def cost_text(energy: Energy | None, seconds: float | None) -> str:
    """Return the energy with its interval and the time: `16.90 mJ ± 4% in 2.450 ms`."""
    shown = "energy unknown" if energy is None else energy.interval_text
    return shown if seconds is None else f"{shown} in {format_time(seconds)}"


@dataclass(frozen=True, slots=True)
class Measurement(Displayed):
    """Energy, time and power of one step of a program."""

    label: str
    step_s: float
    repeats: int
    """How many windows were measured."""
    steps: int
    """How many steps ran in those windows."""
    energy: Energy
    net_energy: Energy | None
    domains: Mapping[str, DomainEnergy]
    trustworthy: bool
    warnings: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    states: tuple[DeviceState, ...] = ()
    """The states of the devices at the end of the windows."""
    sampling_share: float = 0.0
    """CPU time of the sampling thread as a share of one core."""
    clocks_mhz: Mapping[str, float] = field(default_factory=dict)
    """The mean clock of each device at work, read at the edges of the windows."""
    cpu_s: float | None = None
    """CPU time of the program's process in one step, without the sampling."""
    profiles: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Watts in equal parts of a step, by domain, if steps are long enough for the meter to resolve them."""
    minor_faults: float | None = None
    """Page faults of the program's process in one step that took a page of memory."""
    major_faults: float | None = None
    """Page faults of the program's process in one step that read from a disk."""
    wide: str | None = None
    """The warning about a wide interval, if this is the only reason not to trust the measurement."""

    def __repr__(self) -> str:
        doubt = "" if self.trustworthy else ", not trustworthy"
        return f"<Measurement {self.label}: {cost_text(self.energy, self.step_s)}, {self.repeats} windows{doubt}>"


@dataclass(frozen=True, slots=True)
class BlockMeasurement(Displayed):
    """Energy and time of a block of a program, or of all calls of a function, while the program ran.

    Unlike a step, it was not repeated: the interval is that of the meters. Time in which several calls ran at once, in
    threads or tasks, counts once.
    """

    name: str
    calls: int
    """How often the block was run, or the function called from outside of itself."""
    seconds: float
    """The time in which it was open, in all calls."""
    shortest_s: float
    longest_s: float
    """The shortest and the longest call."""
    energy: Energy | None
    """In the counted domains; None if no meter gave a number."""
    domains: Mapping[str, DomainEnergy]
    """Without idle power, which is not known here."""
    cpu_s: float
    """CPU time of the program's process meanwhile, in all threads, without that of reading the meters."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        return f"<BlockMeasurement {self.name}: {cost_text(self.energy, self.seconds)}, {calls}>"


@dataclass(frozen=True, slots=True)
class Account:
    """The energy of one step in one domain, and its parts.

    The parts sum to `metered`. A part is None if it is not known; without a trace all of them are.
    """

    domain: str
    metered: Energy
    operators: Energy | None
    idle: Energy | None
    host: Energy | None
    """Python and launches; None for a GPU."""
    waits: Energy | None
    """The host waiting for a device; None for a GPU."""
    unexplained: Energy | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Unseen:
    """Work of the traced step that belongs to no captured operator, such as that of a thread that was not reached."""

    kernels: int
    kernel_s: float
    time_share: float | None
    """Its share of the time of all kernels; on a CPU, of all operators."""
    energy: Energy | None
    share: float | None
    """Its share of the energy of the step; None if that is not known."""
    name: str
    """The kernel with the most time."""

    @property
    def weight(self) -> float:
        """Return the share of the energy, or if that is not known, of the time."""
        return self.share if self.share is not None else self.time_share or 0.0


@dataclass(frozen=True, slots=True)
class Learned:
    """The properties of one sensor, measured by polling it."""

    key: str
    period_s: float
    resolution_j: float
    call_s: float
    """Wall time of one poll."""
    overhead_share: float
    """CPU time of polling at the meter's own rate, as a share of one core."""


@dataclass(frozen=True, slots=True)
class MeterReport:
    """One meter in a checkup: its domains, or why it has none and how to fix that."""

    name: str
    available: bool
    domains: tuple[Domain, ...] = ()
    learned: tuple[Learned, ...] = ()
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Checkup(Displayed):
    """The result of `doctor` for this machine."""

    meters: tuple[MeterReport, ...]
    quiet: Quiet
    verdict: str
    exit_code: int
    advice: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<Checkup: {self.verdict}>"


def scale_measurement(found: Measurement, scale: Scale) -> ManySteps:
    """Return what many measured steps take."""
    step = found.energy
    domains = tuple(name for name, domain in found.domains.items() if domain.counted and not domain.rested)
    return many_steps(Amount(step.joules, step.low, step.high), scale, (step.source,), domains)
