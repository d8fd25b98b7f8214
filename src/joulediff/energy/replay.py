"""Joules of each distinct operator, by running it again alone at the clock the program ran at.

A call's energy is what a burst takes above the resting device, divided by the calls in it. The operators that took
the most device time come first, so that a budget which runs out costs the least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from joulediff.energy.burst_meter import BurstMeter
from joulediff.energy.distinct_ops import Distances, Kind, find_distances, find_kinds
from joulediff.energy.gpu_clock import Pace
from joulediff.energy.load_energy import LoadMeter, name_domain
from joulediff.frameworks.recorder import Replayer
from joulediff.measuring.meters.meter import Clock
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Replay, Run
from joulediff.model.units import format_time

# Measuring takes this long for each operator on average, and at least and at most so long.
MEAN_WINDOW_S = 0.3
MIN_WINDOW_S, MAX_WINDOW_S = 0.15, 1.0
# What each takes besides: its graph, a look at its power, settling (H200, about).
AROUND_S = 0.4
# An operator with less than this share of the device time is not worth measuring: it is attributed.
NEGLIGIBLE_SHARE = 2e-4
# The step is run again for each lot of inputs that fits into memory; beyond this many lots, values are drawn.
MAX_LOTS = 4


@dataclass(slots=True)
class Replaying:
    """A replay under way. `result` is the run with what has been measured so far."""

    run: Run
    replayer: Replayer
    bench: BurstMeter
    clock: Clock
    listener: ProgressListener
    seconds: float = RecordOptions.replay_seconds
    pace: Pace | None = None
    """The same pace for all, whatever clock that gives; to show what it costs."""
    _rows: list[Replay] = field(default_factory=list)
    _row_of: dict[int, int] = field(default_factory=dict)
    _scales: LoadMeter = field(init=False)

    def __post_init__(self) -> None:
        self._scales = LoadMeter(self.run.measurement, self.bench, self.clock, self.replayer.open_rest, self.pace)

    def go(self) -> None:
        """Replay everything that can be, within the time there is."""
        begin_s, done = self.clock.now(), 0
        end_s = begin_s + self.seconds
        kinds = sorted(self._possible(find_kinds(self.run)), key=lambda kind: not self._scales.is_counted(kind.device))
        windows_s = share_time([kind.time_s for kind in kinds], self.seconds)
        distances = find_distances(self.run, [kind.ops for kind in kinds], self.replayer.addresses)
        try:
            for lot in self._lots(kinds, end_s):
                for kind in lot:
                    if self.clock.now() >= end_s:
                        break
                    self._tell(done, len(kinds), self.clock.now() - begin_s)
                    found = self._measure(kind, distances[done], windows_s[done])
                    self._add(kind, found)
                    done += 1
                    if all(row.energy_j is None for row in found) and not self.replayer.is_alive(kind.device):
                        raise JoulediffError(
                            f"{kind.device} does not answer any more since {self.run.ops[kind.op].name} was run again"
                        )
            self._give_up(kinds, f"the {format_time(self.seconds)} for replay were spent")
        except BaseException:
            self._give_up(kinds, "replay ended before its turn")
            raise
        finally:
            self.replayer.close()

    def result(self) -> Run:
        """Return the run with what has been measured so far."""
        ops = tuple(replace(op, replay=self._row_of[op.id]) if op.id in self._row_of else op for op in self.run.ops)
        return replace(self.run, ops=ops, replays=tuple(self._rows))

    @property
    def measured(self) -> int:
        """How many distinct operators have been measured."""
        return len({row.op for row in self._rows if row.energy_j is not None})

    def _possible(self, kinds: Sequence[Kind]) -> Iterator[Kind]:
        total_s = sum(kind.time_s for kind in kinds)
        for kind in kinds:
            why = self.replayer.refusal(self.run.ops[kind.op])
            if why is None and kind.time_s < NEGLIGIBLE_SHARE * total_s:
                why = "too little of the device's time to be worth measuring alone"
            if why is None and not self._scales.domains(kind.device):
                why = f"no meter sees {kind.device}"
            if why is None:
                yield kind
            else:
                self._add(kind, [Replay(kind.op, name_domain(kind.device), note=why)])

    def _lots(self, kinds: Sequence[Kind], end_s: float) -> Iterator[Sequence[Kind]]:
        """Yield kinds in order, after their inputs have been collected, as many as fit into memory at once."""
        left, lots = list(kinds), 0
        while left and self.clock.now() < end_s:
            budget = {device: self.replayer.budget_bytes(device) for device in {kind.device for kind in left}}
            lot: list[Kind] = []
            for kind in left:
                budget[kind.device] -= self._inputs_bytes(kind)
                if lot and budget[kind.device] < 0:
                    break
                lot.append(kind)
            lots += 1
            if lots > MAX_LOTS:
                lot = left
            left = left[len(lot) :]
            self.listener.stage("replayed: running the step for the inputs of its operators", None)
            self.replayer.collect([kind.op for kind in lot] if lots <= MAX_LOTS else [])
            yield lot

    def _inputs_bytes(self, kind: Kind) -> int:
        return sum(self.run.values[value].size_bytes for value in set(self.run.ops[kind.op].inputs))

    def _measure(self, kind: Kind, far: Distances, window_s: float) -> list[Replay]:
        load = None
        try:
            load = self.replayer.open_load(kind.op, inputs=far.inputs, outputs=far.outputs, device_s=kind.call_s)
            return self._scales.measure_job(kind.op, kind.device, load, window_s)
        except JoulediffError as error:
            return [Replay(kind.op, name_domain(kind.device), note=error.what)]
        finally:
            if load is not None:
                load.close()

    def _add(self, kind: Kind, rows: Sequence[Replay]) -> None:
        self._row_of |= dict.fromkeys(kind.ops, len(self._rows))
        self._rows += rows

    def _give_up(self, kinds: Sequence[Kind], why: str) -> None:
        for kind in kinds:
            if kind.op not in self._row_of:
                self._add(kind, [Replay(kind.op, name_domain(kind.device), note=why)])

    def _tell(self, done: int, count: int, spent_s: float) -> None:
        left_s = min(self.seconds - spent_s, (count - done) * (spent_s / done if done else 0.6))
        self.listener.stage(f"replayed: {done} of {count} operators, {left_s:.0f} s left", done / count)


def share_time(times_s: Sequence[float], seconds: float = math.inf) -> list[float]:
    """Return how long to measure each operator: longer, the more its error would weigh in the sum.

    Where `seconds` are too few for all of them to be measured so, each gets less.
    """
    weights = [math.sqrt(max(0.0, time_s)) for time_s in times_s]
    total = sum(weights) or 1.0
    given_s = min(MEAN_WINDOW_S * len(times_s), max(0.0, seconds - AROUND_S * len(times_s)))
    return [min(MAX_WINDOW_S, max(MIN_WINDOW_S, given_s * weight / total)) for weight in weights]
