"""Measure the sensors of an NVIDIA GPU: periods, call times, and traces of work that starts from rest.

    python benchmarks/sensor.py [--traces FILE.json]

Needs an NVIDIA GPU and torch. `--traces` writes a file like `tests/golden/h200_operators.json`: for each
operator a run of 4.6 s and three of 1.1 s from rest, with power samples, counter ticks and finished steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path

import torch

from accuracy import operators
from joulediff.measuring.doctor import probe
from joulediff.measuring.meters.meter import RealClock
from joulediff.measuring.meters.nvml import NvmlMeter, open_nvml
from joulediff.measuring.repeater import Repeater

CLOCK = RealClock()
REST_S = 0.3


class Tracer:
    """Keeps the samples and the counter's ticks of `gpu0` in the background."""

    def __init__(self, meter: NvmlMeter) -> None:
        self._meter = meter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[tuple[float, float]] = []
        self.ticks: list[tuple[float, float, float]] = []

    def __enter__(self) -> Tracer:
        self._meter.poll()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._take_samples()

    def _run(self) -> None:
        before, next_poll_s = self._meter.read_counter("gpu0"), CLOCK.now()
        while not self._over.is_set():
            if CLOCK.now() >= next_poll_s:
                self._take_samples()
                next_poll_s = CLOCK.now() + 0.5
            now = self._meter.read_counter("gpu0")
            if now.value != before.value:
                self.ticks.append((before.time_s - before.within_s, now.time_s, now.value))
                self._over.wait(0.085)
            before = now

    def _take_samples(self) -> None:
        self.samples += [(r.time_s, r.value) for r in self._meter.poll() if r.domain == "gpu0"]


def trace(step, meter: NvmlMeter, seconds: float) -> dict:
    time.sleep(REST_S)
    repeater = Repeater(step, clock=CLOCK)
    repeater.warm_up()
    time.sleep(REST_S)
    with Tracer(meter) as tracer:
        time.sleep(REST_S)
        start_s = CLOCK.now()
        repeater.run_until(start_s + seconds)
        repeater.drain()
        time.sleep(0.25)
    first_j = tracer.ticks[0][2]
    marks = list(zip(repeater.log.time_s, repeater.log.steps, strict=True))
    return {
        "samples": [[round(t - start_s, 4), round(w, 2)] for t, w in tracer.samples],
        "ticks": [[round(a - start_s, 4), round(b - start_s, 4), round(j - first_j, 3)] for a, b, j in tracer.ticks],
        "marks": [[round(t - start_s, 5), steps] for t, steps in [*marks[:-1:5], marks[-1]]],
    }


def summary(name: str, run: dict) -> str:
    sample_ms = [1e3 * (b[0] - a[0]) for a, b in pairwise(run["samples"])]
    tick_ms = [1e3 * (b[1] - a[1]) for a, b in pairwise(run["ticks"])]
    powers_w = [[w for t, w in run["samples"] if a <= t < a + 0.2] for a in (0.2, 0.4, 0.6, 0.8, 1.0)]
    course = " ".join(f"{statistics.mean(w):.0f}" for w in powers_w if w)
    samples, ticks = (
        f"every {statistics.median(gaps):.1f} ms ({min(gaps):.0f} to {max(gaps):.0f})" for gaps in (sample_ms, tick_ms)
    )
    return f"{name:11} samples {samples}, ticks {ticks}, W from 0.2 s on in steps of 0.2 s: {course}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path)
    arguments = parser.parse_args()
    steps = operators()
    for step in steps.values():
        step()
    torch.cuda.synchronize()
    with open_nvml(clock=CLOCK) as meter:
        for learned in probe(meter, clock=CLOCK):
            print(f"{learned.key.rpartition('/')[2]:8} a new value every {1e3 * learned.period_s:.1f} ms, ", end="")
            print(f"a look takes {1e3 * learned.call_s:.2f} ms")
        traces = {}
        for name, step in steps.items():
            traces[name] = [trace(step, meter, seconds) for seconds in (4.6, 1.1, 1.1, 1.1)]
            print(summary(name, traces[name][0]), flush=True)
    if arguments.traces:
        what = f"Traces of five bf16 operators on one {torch.cuda.get_device_name()}, torch {torch.__version__}"
        arguments.traces.write_text(json.dumps({"what": what, "operators": traces}, separators=(",", ":")))


if __name__ == "__main__":
    main()
