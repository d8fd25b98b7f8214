"""Run a step repeatedly, and log how many steps had finished at which moment.

Work on a device is queued: a few batches are kept in flight, so that the device never waits for Python, and marks
show when each batch was done.
"""

from __future__ import annotations

import functools
import inspect
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from joulediff.frameworks.sync import Sync, open_sync
from joulediff.measuring.meters.meter import Clock
from joulediff.model.errors import JoulediffError

Step = Callable[[], object]

# Batches of this length make marks cheap (10 µs each) and leave hundreds of them in a window.
BATCH_S = 0.002
MAX_BATCH = 100_000
# Batches in flight: with fewer the device idles when Python is late, with more the work ends late.
IN_FLIGHT = 2
# Steps longer than this are waited for one by one: the gap between them is negligible.
LONG_STEP_S = 0.02

WARM_UP_STEPS = 3
WARM_UP_S = 0.05
WARM_UP_LIMIT_S = 3.0


@dataclass(slots=True)
class StepLog:
    """How many steps had finished at which moment: one mark for each batch."""

    time_s: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def steps_at(self, at_s: float | Sequence[float]) -> np.ndarray:
        """Return the steps finished at a moment, interpolated within a batch."""
        return np.asarray(np.interp(at_s, self.time_s, self.steps))

    def steps_between(self, start_s: float, end_s: float) -> float:
        """Return the steps between two moments, interpolated within a batch."""
        return float(self.steps_at(end_s) - self.steps_at(start_s))

    def marks_around(self, start_s: float, end_s: float) -> tuple[float, float] | None:
        """Return the last marks before `start_s` and before `end_s`; None if they are the same mark.

        An edge follows the end of a step closely, so the first step of a window begins at the mark before the edge.
        """
        first, last = (bisect_right(self.time_s, edge_s) - 1 for edge_s in (start_s, end_s))
        first = max(first, 0)
        return (self.time_s[first], self.time_s[last]) if first < last else None


def _refuse_unrun(output: object) -> None:
    if inspect.iscoroutine(output) or inspect.isgenerator(output) or inspect.isasyncgen(output):
        if not inspect.isasyncgen(output):
            output.close()
        raise JoulediffError(
            f"the step returned a {type(output).__name__} that is never run, so there is no work to measure",
            fix="return a function that runs it to the end",
        )
    if inspect.isroutine(output) or isinstance(output, functools.partial):
        raise JoulediffError(
            "the step returned a function that is never called: it is a builder, and its work is not measured",
            fix="give the function that it returns: step = build(), then pass step",
        )


class Repeater:
    """Runs one step repeatedly. Its exceptions pass through unchanged, and `log` keeps the steps before."""

    def __init__(self, step: Step, *, clock: Clock) -> None:
        self._step = step
        self._clock = clock
        self._sync: Sync | None = None
        self._batch = 1
        self._batch_s = 0.0
        self._started = 0
        self.calls = 0
        self.failure: BaseException | None = None
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        self.log = StepLog()

    def start(self, step_s: float) -> None:
        """Begin without warming up: the step has run before, and takes about `step_s`."""
        self._sync = open_sync()
        self._set_batch(step_s)

    def warm_up(self, *, least: int = WARM_UP_STEPS) -> float:
        """Run a few steps that are not measured, `least` or more, and return the seconds of the last.

        The first calls compile, allocate and fill caches. Each is waited for.
        """
        begin_s = self._clock.now()
        count, last_s = 0, 0.0
        while True:
            start_s = self._clock.now()
            output = self._call(1)
            _refuse_unrun(output)
            self._sync = open_sync() if count == 0 else self._sync
            if self._sync is not None:
                self._sync.mark(output)()
            last_s = self._clock.now() - start_s
            count += 1
            spent_s = self._clock.now() - begin_s
            if (count >= least and spent_s >= WARM_UP_S) or spent_s >= WARM_UP_LIMIT_S:
                self._set_batch(last_s)
                return last_s

    def _set_batch(self, step_s: float) -> None:
        self._batch = int(np.clip(BATCH_S / max(step_s, 1e-9), 1, MAX_BATCH))
        self._batch_s = step_s * self._batch

    def run_until(self, end_s: float) -> None:
        """Run whole batches until `end_s` has passed."""
        if not self.log.time_s:
            self._note(self._clock.now(), 0)
        while self._clock.now() < end_s:
            self._run_batch()

    def _run_batch(self) -> None:
        start_s = self._clock.now()
        output = self._call(self._batch)
        self._started += self._batch
        if self._sync is None:
            self._note(self._clock.now(), self._started)
        else:
            self._pending.append((self._started, self._sync.mark(output)))
            while len(self._pending) > (IN_FLIGHT if self._batch_s < LONG_STEP_S else 0):
                self._finish_oldest()
        self._adapt(self._clock.now() - start_s)

    def _call(self, times: int) -> object:
        step, output, done = self._step, None, 0
        try:
            for done in range(times):  # noqa: B007 - read after an exception
                output = None  # a program near its memory limit has room for one output, not two
                output = step()
        except BaseException as error:
            self.calls += done + 1
            self.failure = error
            raise
        self.calls += times
        return output

    def _adapt(self, took_s: float) -> None:
        self._batch_s = took_s if self._batch_s == 0 else 0.8 * self._batch_s + 0.2 * took_s
        if self._batch_s < BATCH_S / 2 and self._batch < MAX_BATCH:
            self._batch *= 2
            self._batch_s *= 2
        elif self._batch_s > 2 * BATCH_S and self._batch > 1:
            self._batch = max(1, self._batch // 2)
            self._batch_s /= 2

    def _finish_oldest(self) -> None:
        steps, wait = self._pending.popleft()
        wait()
        self._note(self._clock.now(), steps)

    def _note(self, time_s: float, steps: int) -> None:
        self.log.time_s.append(time_s)
        self.log.steps.append(steps)

    def drain(self) -> None:
        """Wait for all work that is still queued."""
        while self._pending:
            self._finish_oldest()
