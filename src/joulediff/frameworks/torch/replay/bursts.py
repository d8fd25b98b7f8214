"""Runs one operator many times: as a CUDA graph if it can be captured, else launch by launch, or on the host.

Gaps between launches would lower the mean power of small operators, so a burst is one graph of many calls. Outputs are
kept for a while, as in a program: memory that is freed at once would be written in the cache only.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from joulediff.frameworks.torch.replay.loops import OperatorLoop
from joulediff.model.errors import JoulediffError
from joulediff.model.run import How, Inputs

Call = Callable[[], object]

# A matrix product of 33 us costs 24.7 mJ in bursts of 4 calls, 26.4 in 16 and 26.7 in 31; operators of less power
# change by 2 to 5 % (H200, `benchmarks/additivity.py`). Longer bursts spread the power samples, which come every 20 ms.
BURST_S = 1e-3
MAX_CALLS = 1000
# A burst of calls on the host this long makes the marks between bursts cheap.
HOST_BURST_S = 2e-3
# Calling an operator from Python costs 0.5 to 2 µs, and 0.15 µs for each tensor of a list: too much for shorter calls
# (`benchmarks/small_ops.py`). Longer ones are called from Python.
LOOP_BELOW_S = 1e-3
# No call takes less: a shorter time is an error of the clock.
SHORTEST_S: dict[How, float] = {"calls": 1e-7, "loop": 1e-8}
# A loop around calls that takes a smaller share of a burst is not worth measuring alone.
EMPTY_SHARE = 0.003
# Chosen: longer calls compute far longer than they read, so the cache state of their inputs does not matter.
HOST_TURNS_S = 0.3
# Inputs that an operator writes to are restored so rarely that it costs a third of a percent.
RENEW_SHARE = 1 / 300
_TIMINGS = 3
_TRAIN = 4
# A burst that is too short is lengthened at most this many times.
_LONGER = 2
_LONG_ENOUGH = 0.8
_SPIN_CYCLES = 2_000_000


@contextmanager
def as_recorded() -> Iterator[None]:
    """Run operators below autograd and autocast, as they are recorded, regardless of the program's settings."""
    import torch

    with torch.inference_mode(), torch._C._DisableAutocast():  # noqa: SLF001
        yield


@contextmanager
def as_joulediff_errors() -> Iterator[None]:
    """Turn an exception of an operator into a reason not to measure it; callers handle a lack of memory."""
    try:
        yield
    except JoulediffError:
        raise
    except Exception as error:  # an operator of the program's own may raise anything
        if is_out_of_memory(error):
            raise
        first = str(error).partition("\n")[0][:200]
        raise JoulediffError(f"it failed when run again: {first or type(error).__name__}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. On the host PyTorch has no exception class for that, only a message."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class CudaLoad:
    """Calls on a CUDA device. `ring` is how many outputs are held; `renew` gives inputs their first values back."""

    run_empty: Callable[[], None] | None = None

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        device: str,
        inputs: Inputs,
        ring: int,
        may_capture: bool,
        renew: Call | None = None,
        aim_s: float | None = None,
    ) -> None:
        self._device = device
        self._calls = list(calls)
        self._ring = ring
        self._graph: Any = None
        self.inputs = inputs
        self.copies = len(calls)
        self.calls = self._count_calls(self._warm_up())
        self.how: How = "graph" if may_capture and self._capture() else "launches"
        self.burst_s = self._time_burst()
        for _ in range(_LONGER):
            longer = self._count_calls(self.burst_s / self.calls)
            if longer <= self.calls or self.burst_s > _LONG_ENOUGH * BURST_S:
                break
            self.calls = longer
            if self.how == "graph" and not self._capture():
                raise JoulediffError("a graph of many of its calls cannot be captured")
            self.burst_s = self._time_burst()
        self.call_s = self.burst_s / self.calls if self.how == "graph" else None
        self.aim_s = aim_s
        self._renewal = None if renew is None else _Renewal(renew, time_on_device(renew, device), self.burst_s)

    def run(self, rest_s: float) -> None:
        import torch

        with as_joulediff_errors(), torch.cuda.device(self._device), as_recorded():
            if self._renewal is not None:
                self._renewal.count()
            self._burst()
            spin(self._device, rest_s)

    def close(self) -> None:
        self._graph = self._renewal = None
        self._calls.clear()

    def _burst(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            self._launch()

    def _train(self) -> None:
        """Run several bursts, so that the time before the first one begins does not count."""
        for _ in range(_TRAIN):
            self._burst()

    def _launch(self) -> None:
        held: deque[object] = deque(maxlen=self._ring)
        for number in range(self.calls):
            held.append(self._calls[number % self.copies]())

    def _count_calls(self, call_s: float) -> int:
        """Return how many calls make a burst; each copy takes part equally."""
        return _round_up(min(MAX_CALLS, max(1, round(BURST_S / max(call_s, 1e-7)))), self.copies)

    def _warm_up(self) -> float:
        """Call each copy once, on another stream as a capture wants it, and return the seconds of a call."""
        import torch

        def call_all() -> None:
            for call in self._calls:
                call()

        with torch.cuda.device(self._device), as_recorded():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                call_all()
                seconds = time_on_device(call_all, self._device)
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
        return seconds / self.copies

    def _time_burst(self) -> float:
        """Return the seconds of a burst; a short one is timed among others."""
        once_s = time_on_device(self._burst, self._device)
        if once_s > _TRAIN * BURST_S:
            return once_s
        return max(1e-7, min(time_on_device(self._train, self._device) for _ in range(_TIMINGS)) / _TRAIN)

    def _capture(self) -> bool:
        """Capture a burst; False if the operator cannot be part of a graph."""
        import torch

        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self._device), as_recorded(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # views launch nothing
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self._launch()
                graph.replay()
                torch.cuda.synchronize()
        except RuntimeError:
            return False
        self._graph = graph
        return True


class CudaRest:
    """A device that does nothing but keep its clock."""

    how: How = "graph"
    inputs: Inputs = "real"
    run_empty: Callable[[], None] | None = None

    def __init__(self, device: str) -> None:
        self._device = device
        self.calls = self.copies = 0
        self.burst_s = 0.0
        self.call_s: float | None = None
        self.aim_s: float | None = None

    def run(self, rest_s: float) -> None:
        spin(self._device, rest_s)

    def close(self) -> None:
        pass


class HostLoad:
    """Calls on the CPU, one after the other: from `loop` if they are short and there is one, else from Python."""

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        inputs: Inputs,
        renew: Call | None = None,
        open_loop: Callable[[], OperatorLoop | None] | None = None,
    ) -> None:
        self._calls = list(calls)
        self._loop: OperatorLoop | None = None
        self.inputs = inputs
        with as_recorded():
            self._calls[0]()
            once_s = max(_timed_on_host(self._calls[0]), 1e-7)
            if open_loop is not None and once_s < LOOP_BELOW_S:
                self._loop = open_loop()
            del self._calls[max(1, int(HOST_TURNS_S / once_s)) :]
            self.copies = self.calls = len(self._calls)
            self.how: How = "calls" if self._loop is None else "loop"
            # The first burst of a short call is mostly the start of its loop.
            for _ in range(1 if self._loop is None else _LONGER):
                self._burst()
                call_s = max(_timed_on_host(self._burst) / self.calls, SHORTEST_S[self.how])
                self.calls = _round_up(max(1, round(HOST_BURST_S / call_s)), self.copies)
            self.burst_s = call_s * self.calls
            self.run_empty = self._find_empty()
        self.call_s: float | None = None
        self.aim_s: float | None = None
        self._renewal = None if renew is None else _Renewal(renew, _timed_on_host(renew), self.burst_s)

    def run(self, rest_s: float) -> None:  # noqa: ARG002 - a CPU needs no rest
        with as_joulediff_errors(), as_recorded():
            if self._renewal is not None:
                self._renewal.count()
            self._burst()

    def close(self) -> None:
        self._renewal = self._loop = self.run_empty = None
        self._calls.clear()

    def _find_empty(self) -> Callable[[], None] | None:
        """Return a function that runs a burst without its calls; None if that takes next to no time."""
        loop, rounds = self._loop, self.calls // self.copies
        if loop is None or _timed_on_host(lambda: loop.run_empty(rounds)) < EMPTY_SHARE * self.burst_s:
            return None

        def run_empty() -> None:
            with as_joulediff_errors(), as_recorded():
                loop.run_empty(rounds)

        return run_empty

    def _burst(self) -> None:
        whole, rest = divmod(self.calls, self.copies)
        if self._loop is not None:
            try:
                self._loop.run(whole)
            except RuntimeError:  # TorchScript's message hides the operator's own exception: let it raise that
                for call in self._calls:
                    call()
                raise
            return
        for _ in range(whole):
            for call in self._calls:
                call()
        for call in islice(self._calls, rest):
            call()


class _Renewal:
    """Gives inputs their first values back now and then: at once for a long burst, after many short ones."""

    def __init__(self, renew: Call, takes_s: float, burst_s: float) -> None:
        self._renew = renew
        self._every = max(1, math.ceil(takes_s / (RENEW_SHARE * max(burst_s, 1e-9))))
        self._bursts = 0

    def count(self) -> None:
        if self._bursts % self._every == 0:
            self._renew()
        self._bursts += 1


def spin(device: str, seconds: float) -> None:
    """Keep one thread of a device busy for about this time: the device rests, and its queue does not run dry."""
    import torch

    if seconds > 0:
        with torch.cuda.device(device):
            torch.cuda._sleep(int(seconds * _cycles_per_s(device)))  # noqa: SLF001 - PyTorch's own tests use it


_rates: dict[str, float] = {}


def _cycles_per_s(device: str) -> float:
    """Return how fast a device counts, found out once."""
    import torch

    if device not in _rates:
        with torch.cuda.device(device):
            seconds = min(time_on_device(lambda: torch.cuda._sleep(_SPIN_CYCLES), device) for _ in range(3))  # noqa: SLF001
        if not seconds > 0:
            raise JoulediffError(f"{device} does not report the time of its work")
        _rates[device] = _SPIN_CYCLES / seconds
    return _rates[device]


def _timed_on_host(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def time_on_device(work: Callable[[], object], device: str) -> float:
    """Return the device's seconds between before and after `work`."""
    import torch

    with torch.cuda.device(device), as_recorded():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
