"""Joins the segments of a program with the readings of the meters, again and again while the program runs.

What is joined is added up by node and forgotten, so that memory does not grow with the number of calls. The sums of a
domain reach to the same moment for all nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from joulediff.instrument.recorder import BETWEEN, FIELDS, CallRecorder, Segment
from joulediff.instrument.slices import Divided, Points, Work, divide
from joulediff.measuring.blocks.stretch_energy import MOST_POWER
from joulediff.measuring.energy_curve import GAP_PERIODS, STILL_PERIODS, TICK_JITTER, curve_from_start
from joulediff.measuring.meters.estimated import ProcessTime
from joulediff.measuring.meters.meter import Clock, Meter
from joulediff.measuring.sampler import Sampler
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Domain, IdlePower

if TYPE_CHECKING:
    from typing_extensions import Self

# Segments are joined after this time.
JOIN_S = 1.0
# The code between two calls is joined once it has ended, so that its next call is known, but not later than this, nor
# when there are this many segments, of other threads.
LONGEST_GAP_S = 60.0
MOST_SEGMENTS = 50_000
# Readings are kept for this long after they were used: a counter's earlier ones tell how well its next change is known.
KEPT_S = 6.0
# A read of an H200's energy counter takes 4.6 ms of a core, so this is a quarter of a percent of it.
CHECK_S = 2.0
# At least as many as a poll may bring.
KEPT_SAMPLES = 500
_FIELDS = 5
_NODE, _START, _END = (Segment._fields.index(name) for name in ("node", "start_s", "end_s"))
_CPU_DOMAINS = ("cpu", "dram", "psys")


class WorkSampler(Sampler):
    """A sampler that also notes the CPU time of the program and of its children whenever meters are polled."""

    def __init__(
        self,
        meters: Sequence[Meter],
        *,
        clock: Clock,
        own_s: Callable[[], float] = time.process_time,
        all_s: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(meters, clock=clock)
        self._own_s = own_s
        self._all_s = all_s or ProcessTime(clock=clock)
        self.ticks: list[tuple[float, float, float]] = []
        self.kept_from_s = float("inf")
        """Readings from this moment on are kept."""
        self._gap_s: dict[str, float] = {}
        self._checked_s = float("-inf")
        self.after_beat: Callable[[], None] | None = None

    def _beat(self) -> float:
        pause_s = super()._beat()
        self.tick()
        self._check_after_gaps()
        if self.after_beat is not None:
            self.after_beat()
        return pause_s

    def _check_after_gaps(self) -> None:
        """Read the second sensors from time to time, and after samples were lost: what they counted closes the gap.

        A program that keeps the interpreter's lock for seconds, as an import of large libraries does, delays the polls.
        """
        if self._clock.now() > self._checked_s + CHECK_S:
            self._check_now()
        for domain in self.check_domains():
            first = next((each for each in self.primary_domains() if each.name == domain.name), None)
            if first is None or first.kind != "power":
                continue
            stamps_s = [each.time_s for each in self.readings(first)[-KEPT_SAMPLES:]]
            new = [b for a, b in pairwise(stamps_s) if b - a > GAP_PERIODS * first.period_s]
            if new and new[-1] > self._gap_s.get(first.name, float("-inf")):
                self._gap_s[first.name] = new[-1]
                self._check_now()

    def _check_now(self) -> None:
        self.check()
        self._checked_s = self._clock.now()

    def tick(self) -> None:
        """Note the CPU time now."""
        all_s, own_s = self._all_s(), self._own_s()
        self.ticks.append((self._clock.now(), own_s, max(0.0, all_s - own_s)))

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def edge(self) -> None:
        """Poll every meter now."""
        super().edge()
        self.tick()


@dataclass(slots=True)
class DomainTally:
    """The energy of one domain, joined up to `until_s`."""

    domain: Domain
    idle: IdlePower | None
    until_s: float
    own: np.ndarray = field(default_factory=lambda: np.zeros((0, _FIELDS)))
    total: np.ndarray = field(default_factory=lambda: np.zeros((0, _FIELDS)))
    floor_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    children: np.ndarray = field(default_factory=lambda: np.zeros((1, _FIELDS)))
    inside_j: float = 0.0
    inside_s: float = 0.0
    metered_j: float = 0.0
    """From readings alone: the energy from the begin of the program to `until_s`, or its end."""
    metered_variance_j2: float = 0.0
    highest_w: float = 0.0
    failure: str | None = None
    """Why it is not known."""

    @property
    def floor_w(self) -> float:
        """The power that is divided by time, and not by work."""
        return 0.0 if self.idle is None else self.idle.power_w

    @property
    def is_of_cpu(self) -> bool:
        """Whether its energy follows the CPU time of the program."""
        return self.domain.name.startswith(_CPU_DOMAINS)

    def most_w(self, points: Points) -> float:
        """Return the most power above the floor that a part of the time can have, from the highest seen so far."""
        step_s, step_j = np.diff(points.time_s), np.diff(points.energy_j)
        usual = step_s > 0.5 * np.median(step_s)
        self.highest_w = max(self.highest_w, float((step_j[usual] / step_s[usual]).max()))
        return max(0.0, MOST_POWER * self.highest_w - self.floor_w)

    def add(self, found: Divided, points: Points, until_s: float, program_s: tuple[float, float]) -> None:
        """Add what was joined from `until_s` so far to a later moment."""
        count = len(found.own)
        self.own = _grown(self.own, count) + found.own
        self.total = _grown(self.total, count) + found.total
        self.floor_s = _grown(self.floor_s, count) + found.floor_s
        self.children = self.children + found.children
        self.inside_j += found.inside_j
        self.inside_s += found.inside_s
        ends_s = np.clip([self.until_s, until_s], *program_s)
        self.metered_j += float(np.diff(np.interp(ends_s, points.time_s, points.energy_j))[0])
        is_inside = (points.time_s > ends_s[0]) & (points.time_s <= ends_s[1])
        self.metered_variance_j2 += float((points.error_j[is_inside] ** 2).sum())
        self.until_s = until_s


class CallTally:
    """The sums of all domains. `join` is called from the thread that reads the meters, and once at the end."""

    def __init__(
        self, sampler: WorkSampler, recorder: CallRecorder, *, idle: Mapping[str, IdlePower], start_s: float
    ) -> None:
        self._sampler = sampler
        self._recorder = recorder
        self.start_s = start_s
        self.end_s = float("inf")
        self.domains = [
            DomainTally(domain, idle.get(domain.name), float("-inf")) for domain in sampler.primary_domains()
        ]
        self._segments = np.zeros((0, FIELDS))
        self._joined_s = start_s
        self.self_s = np.zeros(0)
        self.self_cpu_s = np.zeros(0)

    @property
    def is_due(self) -> bool:
        """Whether it is time to join."""
        return self._sampler.ticks[-1][0] > self._joined_s + JOIN_S

    def join(self) -> None:
        """Join what has happened since the last time."""
        taken = self._recorder.take()
        now_s = self._sampler.ticks[-1][0]
        self._joined_s = now_s
        self._add_times(taken.ended)
        self._segments = np.concatenate([self._segments, taken.ended])
        limit_s = self._limit_s(taken.open, now_s)
        segments = np.concatenate([self._segments, taken.open])
        work = self._work(segments)
        for tally in self.domains:
            if tally.failure is None:
                try:
                    self._join_domain(tally, segments, work, limit_s)
                except JoulediffError as error:
                    tally.failure = error.what
        self._forget()

    def _limit_s(self, opened: np.ndarray, now_s: float) -> float:
        """Return the moment up to which segments are joined: an open gap has no name before its next call begins."""
        gaps_s = opened[opened[:, _NODE] == BETWEEN, _START]
        if not len(gaps_s) or now_s - gaps_s[0] > LONGEST_GAP_S or len(self._segments) > MOST_SEGMENTS:
            return now_s
        return float(gaps_s[0])

    def _join_domain(self, tally: DomainTally, segments: np.ndarray, work: Work, limit_s: float) -> None:
        is_over = self.end_s < float("inf")
        known_to_s = self.end_s if is_over else limit_s if self._sampler.has_failed(tally.domain) else float("-inf")
        points = _points(tally.domain, self._sampler, known_to_s, joined_s=tally.until_s)
        if tally.until_s == float("-inf"):
            before = points.time_s[points.time_s <= self.start_s]
            tally.until_s = float(before[-1] if len(before) else points.time_s[0])
        until_s = _first_point(points, self.end_s) if is_over else _last_point(points, limit_s)
        if until_s <= tally.until_s:
            return
        points = _with_point(points, tally.until_s)
        program_s = (self.start_s, min(self.end_s, until_s))
        found = divide(
            segments[segments[:, _END] > tally.until_s],
            self._recorder.nodes,
            points,
            work,
            start_s=tally.until_s,
            end_s=until_s,
            program_s=program_s,
            floor_w=tally.floor_w,
            most_w=tally.most_w(points),
            by_cpu=tally.is_of_cpu,
            is_exact=tally.domain.source == "estimated",
        )
        tally.add(found, points, until_s, program_s)

    def _work(self, table: np.ndarray) -> Work:
        ticks = np.array(self._sampler.ticks)
        time_s = np.concatenate([ticks[:, 0], table[:, 1], table[:, 2]])
        own_s = np.concatenate([ticks[:, 1], table[:, 3], table[:, 4]])
        order = np.argsort(time_s, kind="stable")
        time_s, own_s = time_s[order], np.maximum.accumulate(own_s[order])
        return Work(time_s, own_s, np.interp(time_s, ticks[:, 0], np.maximum.accumulate(ticks[:, 2])))

    def _add_times(self, table: np.ndarray) -> None:
        node, count = table[:, 0].astype(int), len(self._recorder.nodes)
        self.self_s = _grown(self.self_s, count) + np.bincount(node, table[:, 2] - table[:, 1], minlength=count)
        self.self_cpu_s = _grown(self.self_cpu_s, count) + np.bincount(node, table[:, 4] - table[:, 3], minlength=count)

    def _forget(self) -> None:
        oldest_s = min((each.until_s for each in self.domains if each.failure is None), default=float("inf"))
        self._segments = self._segments[self._segments[:, _END] > oldest_s]
        if oldest_s == float("-inf"):
            return
        self._sampler.forget(min(oldest_s - KEPT_S, self._sampler.kept_from_s))
        ticks = self._sampler.ticks
        kept = next((at for at, tick in enumerate(ticks) if tick[0] > oldest_s), len(ticks))
        del ticks[: max(0, kept - 2)]


def _points(domain: Domain, sampler: Sampler, known_to_s: float, *, joined_s: float) -> Points:
    """Return the energy of a domain at its readings; of a counter that stands still, also at its last one.

    If the last reading is before `known_to_s`, as of a meter that has failed, its last power goes on until then, with
    all of that in doubt. Up to `joined_s` it was joined before.
    """
    readings = sampler.readings(domain)
    curve = curve_from_start(domain, readings)
    time_s, energy_j, error_j = curve.time_s, curve.energy_j, curve.error_j
    last_s = readings[-1].time_s
    if domain.kind == "power":
        energy_j, error_j = _close_gaps(domain, sampler, time_s, energy_j, error_j)
    if domain.kind == "counter" and last_s - time_s[-1] > STILL_PERIODS * domain.period_s:
        time_s, energy_j, error_j = np.append(time_s, last_s), np.append(energy_j, energy_j[-1]), np.append(error_j, 0)
    if time_s[-1] < known_to_s and len(time_s) > 1:
        power_w = (energy_j[-1] - energy_j[-2]) / (time_s[-1] - time_s[-2])
        missing_j = power_w * (known_to_s - time_s[-1])
        joined_j = power_w * max(0.0, min(joined_s, known_to_s) - time_s[-1])
        time_s, energy_j = np.append(time_s, known_to_s), np.append(energy_j, energy_j[-1] + missing_j)
        # Variances of joins are added, and their sum is that of all that is missing.
        error_j = np.append(error_j, np.sqrt(missing_j**2 - joined_j**2))
    return Points(time_s, energy_j, error_j)


def _close_gaps(
    domain: Domain, sampler: Sampler, time_s: np.ndarray, energy_j: np.ndarray, error_j: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give gaps between samples the energy that a counter of the same device saw meanwhile, where it was read."""
    counter = next((each for each in sampler.check_domains() if each.name == domain.name), None)
    gaps = np.flatnonzero(np.diff(time_s) > GAP_PERIODS * domain.period_s)
    if counter is None or not len(gaps):
        return energy_j, error_j
    checks = sampler.readings(counter)
    energy_j, error_j = energy_j.copy(), error_j.copy()
    for at in gaps:
        before = [each for each in checks if each.time_s <= time_s[at]]
        after = [each for each in checks if each.time_s >= time_s[at + 1]]
        if not before or not after:
            continue
        first, last = before[-1], after[0]
        inside = (time_s[gaps] >= first.time_s) & (time_s[gaps + 1] <= last.time_s)
        if inside.sum() != 1:
            continue
        tick_s = TICK_JITTER * counter.period_s
        ends_s = np.array([first.time_s, last.time_s]) - tick_s / 2
        if ends_s[0] < time_s[0]:
            continue
        around_j = np.interp([ends_s[0], time_s[at], time_s[at + 1], ends_s[1]], time_s, energy_j)
        found_j = max(0.0, last.value - first.value - (around_j[1] - around_j[0]) - (around_j[3] - around_j[2]))
        power_w = found_j / (time_s[at + 1] - time_s[at])
        energy_j[at + 1 :] += found_j - (energy_j[at + 1] - energy_j[at])
        # Each end of the counter is known to within one of its ticks.
        error_j[at + 1] = power_w * tick_s / np.sqrt(6)
    return energy_j, error_j


def _last_point(points: Points, limit_s: float) -> float:
    before = points.time_s[points.time_s <= limit_s]
    return float(before[-1]) if len(before) else float("-inf")


def _first_point(points: Points, end_s: float) -> float:
    after = points.time_s[points.time_s >= end_s]
    return float(after[0] if len(after) else points.time_s[-1])


def _with_point(points: Points, time_s: float) -> Points:
    """Return the points with one at `time_s`: a counter that stood still then may have changed since."""
    at = int(np.searchsorted(points.time_s, time_s))
    if at == len(points.time_s) or points.time_s[at] == time_s:
        return points
    energy_j = float(np.interp(time_s, points.time_s, points.energy_j))
    return Points(
        np.insert(points.time_s, at, time_s),
        np.insert(points.energy_j, at, energy_j),
        np.insert(points.error_j, at, 0.0),
    )


def _grown(array: np.ndarray, count: int) -> np.ndarray:
    """Return an array with zeros added up to `count` rows."""
    missing = count - len(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]))]) if missing > 0 else array
