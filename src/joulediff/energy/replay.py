"""Measure each distinct operator of a run by running it again alone, at the clock the program ran at.

The operators with the most device time come first, so that a budget which runs out costs the least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from joulediff.energy.distinct_ops import Distances, DistinctOp, find_distances, find_distinct_ops
from joulediff.energy.load_energy import BurstMeter, LoadMeter, name_domain
from joulediff.frameworks.recorder import Replayer
from joulediff.measuring.meters.meter import Clock
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run, work_of
from joulediff.model.units import format_time

# Seconds of measuring for each operator: the mean, and the limits for one.
MEAN_WINDOW_S = 0.3
MIN_WINDOW_S, MAX_WINDOW_S = 0.15, 1.0
# Seconds for each operator besides: building its graph, probing its power, settling (about, H200).
AROUND_S = 0.4
# An operator with less than this share of the device time is attributed instead.
NEGLIGIBLE_SHARE = 2e-4
# The step runs again for each batch of operators whose inputs fit into memory; after this many, inputs are drawn.
MAX_BATCHES = 4


# Two programs run an operator alike if the device takes the same time for it: within this share, or these seconds.
SAME_TIME_SHARE, SAME_TIME_S = 0.05, 3e-7
# ... at the same clock.
SAME_CLOCK_SHARE = 0.01
# Kernels of a GPU are named after their implementation; those of the host are not.
_HOST = "cpu"


@dataclass(slots=True)
class Replaying:
    """A replay in progress. `result` is the run with the operators measured so far."""

    run: Run
    replayer: Replayer
    burst_meter: BurstMeter
    clock: Clock
    listener: ProgressListener
    seconds: float = RecordOptions.replay_seconds
    known: Run | None = None
    """Another recording of this machine, made a moment ago: operators with the same work are not measured again."""
    rest_share: float | None = None
    """The same rests for every operator, without control of the clock; to show the effect of the clock."""
    _rows: list[Replay] = field(default_factory=list)
    _row_of: dict[int, int] = field(default_factory=dict)
    _load_meter: LoadMeter = field(init=False)

    def __post_init__(self) -> None:
        self._load_meter = LoadMeter(
            self.run.measurement, self.burst_meter, self.clock, self.replayer.open_rest, self.rest_share
        )

    def go(self) -> None:
        """Replay the operators that can be replayed, within the time given."""
        begin_s, done = self.clock.now(), 0
        end_s = begin_s + self.seconds
        possible = self._unknown(self._possible(find_distinct_ops(self.run)))
        found = sorted(possible, key=lambda each: not self._load_meter.is_counted(each.device))
        windows_s = share_time([each.time_s for each in found], self.seconds)
        distances = find_distances(self.run, [each.ops for each in found], self.replayer.addresses)
        try:
            for batch in self._batches(found, end_s):
                for each in batch:
                    if self.clock.now() >= end_s:
                        break
                    self._report(done, len(found), self.clock.now() - begin_s)
                    rows = self._measure(each, distances[done], windows_s[done])
                    self._add(each, rows)
                    done += 1
                    if not any(row.is_measured for row in rows) and not self.replayer.is_alive(each.device):
                        raise JoulediffError(
                            f"{each.device} does not answer any more since {self.run.ops[each.op].name} was run again"
                        )
            self._give_up(found, f"the {format_time(self.seconds)} for replay were spent")
        except BaseException:
            self._give_up(found, "replay ended before its turn")
            raise
        finally:
            self.replayer.close()

    def result(self) -> Run:
        """Return the run with the operators measured so far."""
        ops = tuple(replace(op, replay=self._row_of[op.id]) if op.id in self._row_of else op for op in self.run.ops)
        return replace(self.run, ops=ops, replays=tuple(self._rows))

    @property
    def measured(self) -> int:
        """How many distinct operators have been measured."""
        return len({row.op for row in self._rows if row.is_measured})

    def _possible(self, distinct: Sequence[DistinctOp]) -> Iterator[DistinctOp]:
        total_s = sum(each.time_s for each in distinct)
        for each in distinct:
            why = self.replayer.refusal(self.run.ops[each.op])
            if any(self.run.kernels[at].join == "fused" for at in self.run.index.kernels[each.op]):
                why = "compiled code computes it together with others"
            if why is None and each.time_s < NEGLIGIBLE_SHARE * total_s:
                why = "too little of the device's time to be worth measuring alone"
            if why is None and not self._load_meter.domains(each.device):
                why = f"no meter sees {each.device}"
            if why is None:
                yield each
            else:
                self._refuse(each, why)

    def _unknown(self, distinct: Iterable[DistinctOp]) -> Iterator[DistinctOp]:
        """Yield the operators to measure; those that the other recording knows get its rows."""
        known = {} if self.known is None else _measured_work(self.known, self.run)
        for each in distinct:
            found = known.get(work_of(self.run, each.op))
            if found is not None and _takes_as_long(each.call_s, found.call_s):
                self._add(each, [replace(row, op=each.op) for row in found.rows])
            else:
                yield each

    def _batches(self, distinct: Sequence[DistinctOp], end_s: float) -> Iterator[Sequence[DistinctOp]]:
        """Yield operators in order, after their inputs have been collected, as many as fit into memory at once."""
        left, count = list(distinct), 0
        while left and self.clock.now() < end_s:
            budget = {device: self.replayer.budget_bytes(device) for device in {each.device for each in left}}
            batch: list[DistinctOp] = []
            for each in left:
                budget[each.device] -= self._inputs_bytes(each)
                if batch and budget[each.device] < 0:
                    break
                batch.append(each)
            count += 1
            if count > MAX_BATCHES:
                batch = left
            left = left[len(batch) :]
            self.listener.stage("running the step for the inputs of its operators", None)
            self.replayer.collect([each.op for each in batch] if count <= MAX_BATCHES else [])
            yield batch

    def _inputs_bytes(self, distinct: DistinctOp) -> int:
        return sum(self.run.values[value].size_bytes for value in set(self.run.ops[distinct.op].inputs))

    def _measure(self, distinct: DistinctOp, far: Distances, window_s: float) -> list[Replay]:
        op, device, load = distinct.op, distinct.device, None
        try:
            load = self.replayer.open_load(op, inputs=far.inputs, outputs=far.outputs, device_s=distinct.call_s)
            return self._load_meter.measure_job(op, device, load, window_s)
        except JoulediffError as error:
            return [Replay(op, name_domain(device), note=error.what)]
        finally:
            if load is not None:
                load.close()

    def _add(self, distinct: DistinctOp, rows: Sequence[Replay]) -> None:
        self._row_of |= dict.fromkeys(distinct.ops, len(self._rows))
        self._rows += rows

    def _refuse(self, distinct: DistinctOp, why: str) -> None:
        self._add(distinct, [Replay(distinct.op, name_domain(distinct.device), note=why)])

    def _give_up(self, distinct: Sequence[DistinctOp], why: str) -> None:
        for each in distinct:
            if each.op not in self._row_of:
                self._refuse(each, why)

    def _report(self, done: int, count: int, spent_s: float) -> None:
        left_s = min(self.seconds - spent_s, (count - done) * (spent_s / done if done else 0.6))
        self.listener.stage(f"{done} of {count} operators, {left_s:.0f} s left", done / count)


@dataclass(frozen=True, slots=True)
class _Known:
    """The rows of one distinct operator in another recording, and the device time of its call."""

    rows: tuple[Replay, ...]
    call_s: float


def _measured_work(known: Run, run: Run) -> dict[object, _Known]:
    """Return the operators that another recording has measured at the same clock, by their work."""
    if not _has_same_clock(known, run):
        return {}
    found: dict[object, _Known] = {}
    for each in find_distinct_ops(known):
        rows = known.replays_of(each.op)
        if each.device != _HOST and rows and all(row.is_measured for row in rows):
            found[work_of(known, each.op)] = _Known(rows, each.call_s)
    return found


def _has_same_clock(a: Run, b: Run) -> bool:
    if a.measurement is None or b.measurement is None:
        return False
    left, right = a.measurement.clocks_mhz, b.measurement.clocks_mhz
    return left.keys() == right.keys() and all(
        abs(left[name] - right[name]) <= SAME_CLOCK_SHARE * left[name] for name in left
    )


def _takes_as_long(one_s: float, other_s: float) -> bool:
    return abs(one_s - other_s) <= max(SAME_TIME_S, SAME_TIME_SHARE * other_s)


def share_time(times_s: Sequence[float], seconds: float = math.inf) -> list[float]:
    """Return how long to measure each operator: longer, the more its error matters in the sum.

    If `seconds` are too few for all of them, each gets less.
    """
    weights = [math.sqrt(max(0.0, time_s)) for time_s in times_s]
    total = sum(weights) or 1.0
    given_s = min(MEAN_WINDOW_S * len(times_s), max(0.0, seconds - AROUND_S * len(times_s)))
    return [min(MAX_WINDOW_S, max(MIN_WINDOW_S, given_s * weight / total)) for weight in weights]
