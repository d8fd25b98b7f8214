"""The record of one run of a script whose library calls were measured while it ran.

Self costs, the code between calls, the other parts of the ledger and nothing else add up to the program, in each
domain. A call that runs inside another one is part of its total, and not of its self cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from joulediff.model.display import Displayed
from joulediff.model.energy import Energy, Source, add, joules_of
from joulediff.model.measurement import Condition, IdlePower, Kind
from joulediff.model.run import SourceText

SCHEMA = "joulediff.apis/1"

Ending = Literal["end", "exit", "exception", "stopped", "killed"]
"""The program ran to its end, called `sys.exit`, raised, was stopped with Ctrl-C, or was killed."""


@dataclass(frozen=True, slots=True)
class DomainCost:
    """The energy of some calls in one domain; net is above the idle power, None where that is not known."""

    energy: Energy | None
    self_energy: Energy | None
    net_energy: Energy | None
    self_net_energy: Energy | None


@dataclass(frozen=True, slots=True)
class CallSite:
    """The calls of one API from one call expression of the program. One expression may call several APIs."""

    file: str
    line: int
    column: int
    """From 0, in characters."""
    text: str
    """The source of the callee: `model.fit`."""
    function: str
    """The function around it: `main`, `Trainer.run`; `<module>` outside of any."""
    calls: int
    energy: Energy | None
    """In the counted domains, gross, with that of the calls inside of it."""
    self_energy: Energy | None
    net_energy: Energy | None
    self_net_energy: Energy | None
    seconds: float
    self_seconds: float
    input_bytes: int | None = None
    """The bytes of the arrays that were passed, in all calls; None if none was seen."""


@dataclass(frozen=True, slots=True)
class ApiCalls:
    """All calls of one API. `energy` has that of the calls inside, once for a recursive call; `self_energy` has not."""

    api: str
    """Its public name: `torch.nn.Linear`, `torch.nn.Module.__call__`."""
    library: str
    calls: int
    energy: Energy | None
    self_energy: Energy | None
    net_energy: Energy | None
    self_net_energy: Energy | None
    domains: Mapping[str, DomainCost]
    share: float | None
    """The share of `self_energy` in the gross energy of the program."""
    seconds: float
    self_seconds: float
    cpu_s: float
    """CPU time of the process meanwhile, in all threads."""
    shortest_s: float
    longest_s: float
    input_bytes: int | None
    sites: tuple[CallSite, ...]
    too_short: bool = False
    """Most of its energy is a share of what the meter saw of several calls: its calls are shorter than the meter's
    period. The energy is an upper bound or a share by time, and its interval says how much of it is certain."""
    isolated_calls: int = 0
    """How many of the calls were measured alone, from rest to rest."""
    isolated_energy: Energy | None = None
    """The mean of those calls in the counted domains, above the idle power just before, with the time after the call
    until the device rested again."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Code of the program between two measured calls of one thread, by the lines of the calls around it."""

    file: str
    after_line: int | None
    """The line of the call before; None at the begin of the program."""
    before_line: int | None
    """The line of the next call; None at the end of the program."""
    count: int
    seconds: float
    energy: Energy | None
    net_energy: Energy | None


@dataclass(frozen=True, slots=True)
class ApiDomain:
    """One domain during the program: its meter and its idle power."""

    device: str
    kind: Kind
    source: Source
    period_s: float
    counted: bool
    """False for a domain that is not in the total: it includes others, or is only an estimate beside a meter."""
    energy: Energy | None
    """Of the whole program, gross."""
    net_energy: Energy | None
    power_w: float | None
    idle: IdlePower | None
    """From the window before the program in which the machine was judged quiet; None if none was."""
    note: str | None = None


PARTS = ("metered", "calls", "between", "idle", "children", "measuring", "unexplained")


@dataclass(frozen=True, slots=True)
class ApiAccount:
    """The books of one domain: the parts sum to `metered`. A part is None if it is not known."""

    metered: Energy | None
    """The whole program, from the meter's first and last reading around it."""
    calls: Energy | None
    """Of the measured calls, above idle; gross if idle is not known."""
    between: Energy | None
    """Of the code between calls, above idle; gross if idle is not known."""
    idle: Energy | None
    """Idle power over the time of the program, without inserted waits."""
    children: Energy | None
    """Of other processes that the program started, such as workers that load data; None if there were none."""
    measuring: Energy | None
    """Of waits that were inserted around calls to measure them alone, gross; None without."""
    unexplained: Energy | None
    counted: bool = True

    @property
    def closure(self) -> float | None:
        """Return the sum of all parts but the unexplained one, as a share of the metered energy."""
        parts = (self.calls, self.between, self.idle, self.children, self.measuring)
        if self.metered is None or not self.metered.joules > 0 or self.calls is None:
            return None
        return sum(map(joules_of, parts)) / self.metered.joules


def add_accounts(accounts: Mapping[str, ApiAccount]) -> ApiAccount | None:
    """Return the sum of the accounts of the domains in the total; None without one. A part is None if none has it."""
    counted = {name: account for name, account in accounts.items() if account.counted}
    if not counted:
        return None

    def total(part: str) -> Energy | None:
        known = ((name, getattr(account, part)) for name, account in counted.items())
        return add((name, energy) for name, energy in known if energy is not None)

    return ApiAccount(**{part: total(part) for part in PARTS}, counted=True)


@dataclass(frozen=True, slots=True)
class CallNode:
    """A node of the call tree: the calls of one site below the same calls. `parent` is an earlier node."""

    parent: int | None
    api: int
    """The place in `ApiRun.apis`."""
    site: int
    """The place in `ApiCalls.sites`."""
    calls: int
    self_seconds: float
    self_energy: Energy | None


@dataclass(frozen=True, kw_only=True)
class ApiRun(Displayed):
    """One run of a script, with the energy of its library calls."""

    schema: str = SCHEMA
    label: str
    program: str
    arguments: tuple[str, ...] = ()
    created: str
    """UTC, ISO 8601."""
    tool: str
    """The version of joulediff that recorded it."""
    python: str = ""
    machine: str = ""
    libraries: tuple[str, ...]
    """The libraries whose calls were measured."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of those that the program imported."""
    seconds: float
    """The program, from its first line to its end, without inserted waits."""
    cpu_s: float
    """CPU time of the process and of the processes that it started, meanwhile."""
    energy: Energy | None
    """The whole program in the counted domains, gross."""
    net_energy: Energy | None
    domains: Mapping[str, ApiDomain]
    ledger: Mapping[str, ApiAccount]
    """By domain."""
    apis: tuple[ApiCalls, ...]
    """The highest `self_energy` first."""
    gaps: tuple[Gap, ...] = ()
    """The highest energy first."""
    tree: tuple[CallNode, ...] = ()
    sources: tuple[SourceText, ...] = ()
    """The files of the program with a call that was measured, whole; empty if not wanted."""
    ending: Ending = "end"
    exit_code: int = 0
    error: str | None = None
    """The exception that ended the program; of a call of `sys.exit` whose code is not known, why not."""
    synchronised: bool = True
    """Whether devices were waited for at the begin and the end of each call."""
    isolated: bool = False
    trustworthy: bool = True
    warnings: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def calls(self) -> int:
        """Return how many calls were measured."""
        return sum(each.calls for each in self.apis)

    def __repr__(self) -> str:
        energy = "energy unknown" if self.energy is None else self.energy.interval_text
        return f"<ApiRun {self.label}: {energy}, {self.calls:,} calls of {len(self.apis):,} APIs>"
