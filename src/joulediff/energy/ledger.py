"""The books of a run: the metered energy of a step in each domain, split into its parts.

The parts of a domain always sum to the metered energy. The difference that no part explains is a part too, and may be
negative.

- GPU: operators + idle. A replayed operator costs its replayed energy + the rest power × its own part of the busy
  time; the idle part is the rest power × the time in which nothing ran. So the rest power counts once for every second
  of the step. The sum of the operators is less certain than each of them: in a program they run side by side.
- Host: operators + idle + waits + host. Operators and idle share the rest power of the step in the same way. The
  metered energy above rest, divided by the CPU time of the process, is the power of a CPU second. `waits` is the time
  that the host waited for a device × that power. `host` (Python, launches) is the remaining CPU time × that power.
  Operators that were only attributed count with the CPU time that corresponds to their energy.
- Without replays the operators of a GPU are the metered energy less the idle part, so nothing is unexplained.
- A meter of the whole machine includes the others: its energy is not split.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from joulediff.energy.attribution import attribute_rest, idle_energy
from joulediff.energy.device_time import Work, find_replays, find_work, is_gpu
from joulediff.model.energy import Energy, Source, add, add_common, joules_of, scale, subtract, to_energy, widen
from joulediff.model.measurement import Account, DomainEnergy
from joulediff.model.run import Run, Wait

Split = Literal["replayed", "attributed"]

# Books with a larger unexplained share are not closed. Replay came within 3.1 % for seven programs on an H200
# (docs/how-energy-is-split.md).
LIMIT_SHARE = 0.10
# The error of the sum of operators measured alone: a layer of a model on an H200 cost between 3.0 % less and 0.6 % more
# than the sum of its operators (`benchmarks/additivity.py`).
ALONE_SHARE = 0.04
# On a CPU, sums of large operators were 93 to 104 % of the meter, since the speed of a virtual machine drifts between
# the metered pass and the replay (12 recordings of three programs, `benchmarks/small_ops.py`).
HOST_ALONE_SHARE = 0.04
# The parts sum to the metered energy within rounding.
_ROUNDING = 1e-9
# Attributed energies err together: they are based on one power.
_ATTRIBUTED = "attributed"


@dataclass(frozen=True, slots=True)
class Books:
    """The accounts of a run's domains, and the energy of each of its kernels."""

    accounts: tuple[Account, ...] = ()
    kernels: Mapping[str, tuple[Energy | None, ...]] = field(default_factory=dict)
    """By domain, the energy of each kernel of the run in one step; None for another device's, or if not known."""
    replays: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """By domain, the index of the replay that measured each kernel; None if it was attributed."""
    attributed: Mapping[str, Energy] = field(default_factory=dict)
    """By domain, the sum over its kernels if all of them are attributed and sum to a metered energy."""
    rested: frozenset[str] = frozenset()
    """The domains of GPUs that the program did not use."""

    @property
    def split(self) -> Split | None:
        """Return how the energy was split among operators: `replayed` if some were; None if it was not split."""
        counted = [name for name in self._counted() if any(self.kernels.get(name, ()))]
        if not counted:
            return None
        return "replayed" if any(i is not None for name in counted for i in self.replays[name]) else "attributed"

    @property
    def unexplained_share(self) -> float | None:
        """Return the unexplained energy, of either sign, as a share of the metered one; None if not known."""
        counted = [account for account in self.accounts if account.counted]
        metered_j = sum(account.metered.joules for account in counted)
        unknown = any(account.unexplained is None for account in counted)
        if unknown or not (math.isfinite(metered_j) and metered_j > 0.0):
            return None
        return sum(abs(a.unexplained.joules) for a in counted if a.unexplained is not None) / metered_j

    @property
    def least_explained(self) -> Account | None:
        """Return the counted account with the most unexplained energy, of either sign; None if none is known."""
        known = [account for account in self.accounts if account.counted and account.unexplained is not None]
        return max(known, key=lambda account: abs(joules_of(account.unexplained)), default=None)

    @property
    def exceeds_meter(self) -> bool:
        """Return whether the parts of a domain of the host sum to more than was metered and all errors allow."""
        return any(exceeds_meter(account) for account in self.accounts if account.counted)

    @property
    def is_closed(self) -> bool | None:
        """Return whether the parts explain the metered energy; None if not known."""
        share = self.unexplained_share
        return None if share is None else share <= LIMIT_SHARE

    def total(self, kernels: Iterable[int]) -> Energy | None:
        """Return the sum of the known energies of some kernels in the counted domains.

        Errors of one replay add up, as those of attributed energies do; different replays add in quadrature.
        """
        indices = list(kernels)
        parts: list[tuple[object, Energy]] = []
        for name in self._counted():
            energies = self.kernels.get(name)
            if energies is None:
                continue
            replays = self.replays[name]
            found = [
                (_ATTRIBUTED if replays[i] is None else (name, replays[i]), energy)
                for i in indices
                if (energy := energies[i]) is not None
            ]
            parts += self._conserve(name, found) if found and name in self.attributed else found
        return add(parts)

    def replayed_share(self, kernels: Iterable[int]) -> float | None:
        """Return the share of the energy of some kernels that was replayed; None without energy."""
        pairs = [
            (self.replays[name][i] is not None, energy.joules)
            for i in kernels
            for name in self._counted()
            if (energy := self._energy(name, i)) is not None
        ]
        total_j = sum(joules for _, joules in pairs)
        return sum(joules for replayed, joules in pairs if replayed) / total_j if 0.0 < total_j < math.inf else None

    def _counted(self) -> list[str]:
        return [account.domain for account in self.accounts if account.counted]

    def _energy(self, domain: str, kernel: int) -> Energy | None:
        found = self.kernels.get(domain)
        return None if found is None else found[kernel]

    def _conserve(self, domain: str, found: Sequence[tuple[object, Energy]]) -> list[tuple[object, Energy]]:
        """Return the sum of attributed energies with its interval limited: all of the domain sum to a known energy."""
        part, every = add(found), self.attributed[domain]
        operators = next(account.operators for account in self.accounts if account.domain == domain)
        if part is None or operators is None:
            return list(found)
        low = max(part.low, operators.low - (every.high - part.high))
        high = min(part.high, operators.high - (every.low - part.low))
        return [(_ATTRIBUTED, to_energy(part.joules, low, high, part.source) or part)]


@dataclass(frozen=True, slots=True)
class _Page:
    """One domain of the books: its account, and by kernel the energy and the replay that measured it."""

    account: Account
    kernels: Mapping[int, Energy] = field(default_factory=dict)
    replays: Mapping[int, int] = field(default_factory=dict)
    attributed: Energy | None = None


def exceeds_meter(account: Account) -> bool:
    """Return whether the parts of a domain of the host sum to more than was metered, beyond the errors of both.

    On a GPU operators take turns on one device, and `LIMIT_SHARE` is known to hold.
    """
    rest = account.unexplained
    return rest is not None and not is_gpu(account.domain) and rest.high < -_ROUNDING * account.metered.joules


def open_books(run: Run) -> Books:
    """Return the books of a run; empty if it was not metered."""
    domains = {} if run.measurement is None else run.measurement.domains
    pages = [_open_page(run, name, domain) for name, domain in domains.items()]
    every = range(len(run.kernels))
    return Books(
        accounts=tuple(page.account for page in pages),
        kernels={page.account.domain: tuple(map(page.kernels.get, every)) for page in pages},
        replays={page.account.domain: tuple(map(page.replays.get, every)) for page in pages},
        attributed={page.account.domain: page.attributed for page in pages if page.attributed is not None},
        rested=frozenset(name for name, domain in domains.items() if domain.rested),
    )


def _open_page(run: Run, name: str, domain: DomainEnergy) -> _Page:
    metered, work = domain.energy, find_work(run, name)
    if work is None or not math.isfinite(metered.joules):
        return _Page(Account(name, metered, None, None, None, None, None, domain.counted))
    calls = find_calls(run, name, work)
    replayed = {i: energy for call in calls for i, energy in call.kernels.items()}
    others = attribute_rest(run, name, work, replayed)
    replays = {i: call.replay for call in calls for i in call.kernels}
    spent = add((replays.get(i, _ATTRIBUTED), energy) for i, energy in (*replayed.items(), *others.items()))

    idle = idle_energy(metered, work)
    host, waits = (None, None) if is_gpu(name) else split_host(run, metered, work, calls, others)
    # If all operators are attributed, the parts are fitted to the meter: the unexplained part has no error.
    fitted = bool(others) and not replayed and (is_gpu(name) or host is not None)
    alone_share = ALONE_SHARE if is_gpu(name) else HOST_ALONE_SHARE
    alone_j = sum(energy.joules for energy in replayed.values())
    known = _or_nothing(widen(spent, alone_share * alone_j), work)
    operators = subtract(metered, [idle]) if fitted and is_gpu(name) and idle is not None else known
    unexplained = None if operators is None else subtract(metered, _known(operators, idle, host, waits))
    if fitted and unexplained is not None:
        unexplained = replace(unexplained, low=unexplained.joules, high=unexplained.joules)
    # CPU time that operators did not take is the host's: their errors cancel in the unexplained part, not in `host`.
    if spent is not None and host is not None:
        wider = widen(host, spent.above_j, spent.below_j)
        host = None if wider is None else wider.not_negative()
    account = Account(name, metered, operators, idle, host, waits, unexplained, domain.counted)
    _check(account)
    return _Page(account, {**replayed, **others}, replays, spent if fitted and is_gpu(name) else None)


def _or_nothing(spent: Energy | None, work: Work) -> Energy | None:
    return spent if work.kernels else to_energy(0.0, 0.0, 0.0, "attributed")


def _known(*parts: Energy | None) -> list[Energy]:
    return [part for part in parts if part is not None]


def _check(account: Account) -> None:
    if account.unexplained is None:
        return
    parts = _known(account.operators, account.idle, account.host, account.waits, account.unexplained)
    joules = [part.joules for part in parts]
    metered_j = account.metered.joules
    largest_j = max(abs(each) for each in (*joules, metered_j))
    assert abs(sum(joules) - metered_j) <= _ROUNDING * largest_j, f"the account of {account.domain} does not close"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a replayed operator in a domain."""

    replay: int
    energy: Energy
    """Includes the rest power of its time."""
    kernels: Mapping[int, Energy]
    """The same energy, divided among its kernels by their time."""
    cpu_s: float | None


def find_calls(run: Run, domain: str, work: Work) -> list[Call]:
    """Return the calls of replayed operators that worked in a domain, in the order of their first kernels."""
    replays = find_replays(run, domain)
    calls: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for kernel, time_s in zip(work.kernels, work.times_s, strict=True):
        op = run.kernels[kernel].op
        if op is not None and replays[op] is not None:
            calls[op][kernel] = time_s
    spreads = _spread_of_times(run, replays, calls)
    found = (
        _call(run, replay, calls[op], work, spreads[replay]) for op in calls if (replay := replays[op]) is not None
    )
    return [call for call in found if call is not None]


def _call(run: Run, replay: int, times_s: Mapping[int, float], work: Work, spread: float) -> Call | None:
    net, time_s = run.replays[replay].energy, sum(times_s.values())
    rest = None if net is None or work.rest is None else work.rest.over(time_s, net.source)
    gross = None if net is None or rest is None else add_common((net, rest))
    if gross is None:
        return None
    # The calls of a distinct operator differ a little; the spread of their traced times shows how much.
    wider = widen(gross.not_negative(), spread * max(0.0, gross.joules))
    if wider is None:
        return None
    energy = wider.not_negative()
    shares = {i: part_s / time_s if time_s > 0.0 else 1.0 / len(times_s) for i, part_s in times_s.items()}
    kernels = {i: part for i, share in shares.items() if (part := scale(energy, share)) is not None}
    return Call(replay, energy, kernels, run.replays[replay].cpu_s)


def _spread_of_times(
    run: Run, replays: Sequence[int | None], calls: Mapping[int, Mapping[int, float]]
) -> dict[int, float]:
    """Return the standard deviation of the traced time among the calls of each replay, as a share of their mean."""
    times_s: defaultdict[int, list[float]] = defaultdict(list)
    for op, kernels in calls.items():
        replay = replays[op]
        if replay is not None:
            times_s[replay].append(sum(run.kernels[i].duration_s for i in kernels))
    return {replay: _relative_spread(found) for replay, found in times_s.items()}


def _relative_spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if not (math.isfinite(mean) and mean > 0.0):
        return 0.0
    # Divided before squared, so that neither the largest nor the smallest floats leave the range.
    return math.sqrt(sum((value / mean - 1.0) * (value / mean - 1.0) for value in values) / len(values))


def split_host(
    run: Run, metered: Energy, work: Work, calls: Sequence[Call], others: Mapping[int, Energy]
) -> tuple[Energy | None, Energy | None]:
    """Return the energy of Python and launches, and that of waiting; None if the CPU time is not known."""
    cpu_s = None if run.measurement is None else run.measurement.cpu_s
    if work.rest is None or cpu_s is None or not 0.0 < cpu_s < math.inf:
        return None, None
    source: Source = "estimated" if metered.source == "estimated" else "attributed"
    rest = work.rest.over(work.step_s, source)
    above = None if rest is None else subtract(metered.symmetric(), [rest.symmetric()])
    if above is None:
        return None, None
    above = above.not_negative()
    left_s = max(0.0, cpu_s - _operators_s(work, calls, others, above.joules / cpu_s))
    waits_s = min(_waiting_time(run.waits), work.step_s, left_s)
    return scale(above, (left_s - waits_s) / cpu_s), scale(above, waits_s / cpu_s)


def _operators_s(work: Work, calls: Sequence[Call], others: Mapping[int, Energy], second_w: float) -> float:
    """Return the CPU time of operators: the replayed one, else the time that corresponds to the energy above rest."""
    rest_w = 0.0 if work.rest is None else work.rest.power_w
    times_s = dict(zip(work.kernels, work.times_s, strict=True))

    def equivalent_s(joules: float, kernels: Iterable[int]) -> float:
        net_j = max(0.0, joules - rest_w * sum(times_s[i] for i in kernels))
        return net_j / second_w if second_w > 0.0 else 0.0

    known_s = [call.cpu_s for call in calls if _is_time(call.cpu_s)]
    unknown_s = [equivalent_s(call.energy.joules, call.kernels) for call in calls if not _is_time(call.cpu_s)]
    others_s = [equivalent_s(energy.joules, [i]) for i, energy in others.items()]
    return sum(time_s for time_s in (*known_s, *unknown_s, *others_s) if time_s is not None)


def _waiting_time(waits: Iterable[Wait]) -> float:
    return sum(wait.duration_s for wait in waits if _is_time(wait.duration_s))


def _is_time(time_s: float | None) -> bool:
    return time_s is not None and math.isfinite(time_s) and time_s >= 0.0


class Costs:
    """The costs of groups of operators: joules and device time in one step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.books = open_books(run)
        self.kernels = run.index.kernels
        self._known = any(any(each) for each in self.books.kernels.values())

    def of(self, ops: Iterable[int]) -> Energy | None:
        """Return the sum of the known energies of operators; None if none is known."""
        kernels = [kernel for op in ops for kernel in self.kernels[op]]
        return self.books.total(kernels) if self._known and kernels else None

    def time_s(self, ops: Iterable[int]) -> float | None:
        """Return the device time of operators; None without a trace."""
        times = self._times
        return None if times is None else sum(times.get(kernel, 0.0) for op in ops for kernel in self.kernels[op])

    def names(self, ops: Iterable[int]) -> tuple[str, ...]:
        """Return the kernels of operators by name, in order and each once: one solver launches 6,000 of a few."""
        return tuple(dict.fromkeys(self.run.kernels[kernel].name for op in ops for kernel in self.kernels[op]))

    @property
    def total(self) -> Energy | None:
        """Return the metered energy of a step."""
        return None if self.run.measurement is None else self.run.measurement.energy

    @cached_property
    def _times(self) -> dict[int, float] | None:
        domains = {} if self.run.measurement is None else self.run.measurement.domains
        work = [found for name in domains if (found := find_work(self.run, name)) is not None]
        if not work:
            return None
        return {kernel: time_s for each in work for kernel, time_s in zip(each.kernels, each.times_s, strict=True)}
