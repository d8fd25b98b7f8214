"""Compare one-second measurements with a 4 s reference, a plain window, and Zeus.

    python benchmarks/accuracy.py [--repeats 20] [--json FILE]

Needs an NVIDIA GPU and torch. The reference does not use the estimator under test: the energy counter is read at two of
its ticks 4 s apart, after 0.6 s of settling, and the steps in between are counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from pathlib import Path

import torch

from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import RealClock
from joulediff.measuring.meters.nvml import NvmlMeter, open_nvml
from joulediff.measuring.repeater import Repeater
from joulediff.measuring.step import measure, measure_idle

CLOCK = RealClock()
ONE_SECOND = 0.88  # leaves room in one second for warm-up and the last samples


def operators():
    torch.manual_seed(0)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    f = torch.nn.functional
    return {
        "mm": lambda: x @ w,
        "gelu": lambda: f.gelu(x),
        "layer_norm": lambda: f.layer_norm(x, (4096,)),
        "softmax": lambda: f.softmax(x, -1),
        "add": lambda: x + x,
    }


def reference_j(step, meter: NvmlMeter, seconds: float = 4.0) -> float:
    """Return the joules per step between two ticks of the counter, while the work runs without a pause."""
    repeater = Repeater(step, clock=CLOCK)
    repeater.warm_up()
    ticks: list[tuple[float, float]] = []

    def hunt() -> None:
        last = meter.read_counter("gpu0")
        while True:
            now = meter.read_counter("gpu0")
            if now.value != last.value:
                ticks.append(((last.time_s + now.time_s - now.within_s) / 2, now.value))
                return
            last = now

    begin_s = CLOCK.now()
    repeater.run_until(begin_s + 0.6)
    for end_s in (begin_s + 0.6 + 0.25, begin_s + 0.6 + seconds + 0.25):
        thread = threading.Thread(target=hunt)
        if ticks:
            repeater.run_until(end_s - 0.25)
        thread.start()
        repeater.run_until(end_s)
        thread.join()
    repeater.drain()
    (start_s, start_j), (end_s, end_j) = ticks
    return (end_j - start_j) / float(repeater.log.steps_at(end_s) - repeater.log.steps_at(start_s))


def plain_window_j(step, meter: NvmlMeter, seconds: float = 0.2) -> float:
    """Return the joules per step of a plain window: read the counter, run, synchronize, read it again."""
    before_j = meter.read_counter("gpu0").value
    steps, end_s = 0, CLOCK.now() + seconds
    while CLOCK.now() < end_s:
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        steps += 20
    return (meter.read_counter("gpu0").value - before_j) / steps


def zeus_window(seconds: float):
    """Return a function like `plain_window_j` with Zeus' monitor, or None if it cannot be imported."""
    try:
        from zeus.monitor import ZeusMonitor

        monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], log_file=None)
    except Exception as error:  # noqa: BLE001 - a missing peer must not stop the rest
        print(f"zeus: not measured ({type(error).__name__}: {error})")
        return None

    def window(step) -> float:
        steps, end_s = 0, CLOCK.now() + seconds
        monitor.begin_window("work")
        while CLOCK.now() < end_s:
            for _ in range(20):
                step()
            torch.cuda.synchronize()
            steps += 20
        return monitor.end_window("work").total_energy / steps

    return window


def errors(values: list[float], reference: float) -> dict[str, float]:
    off = [value / reference - 1 for value in values]
    return {"worst": max(off, key=abs), "mean": statistics.mean(off)}


def study(name: str, step, meters: MeterSet, zeus, repeats: int) -> dict:
    meter = meters.meters[0]
    quiet = measure_idle(meters, wait_s=10)
    references = [reference_j(step, meter)]
    found, walls, plain, by_zeus = [], [], [], {k: [] for k in zeus}
    for _ in range(repeats):
        time.sleep(0.2)
        start_s = CLOCK.now()
        found.append(measure(step, seconds=ONE_SECOND, meter=meters, idle=quiet).energy)
        walls.append(CLOCK.now() - start_s)
    for _ in range(min(repeats, 5)):
        time.sleep(0.4)
        plain.append(plain_window_j(step, meter))
        for seconds, window in zeus.items():
            time.sleep(0.4)
            by_zeus[seconds].append(window(step))
    references.append(reference_j(step, meter))
    twice = []
    for _ in range(2):
        time.sleep(1)
        last = measure(step, meter=meters, idle=quiet)
        twice.append(last.energy)
    reference = statistics.mean(references)
    return {
        "op": name,
        "reference_mj": reference * 1e3,
        "references_apart": references[1] / references[0] - 1,
        "joulediff": errors([e.joules for e in found], reference),
        "half_width": statistics.median(e.half_width_share for e in found),
        "held": sum(e.low <= reference <= e.high for e in found),
        "repeats": repeats,
        "wall_s": max(walls),
        "plain_0.2s": errors(plain, reference),
        **{f"zeus_{s}s": errors(v, reference) for s, v in by_zeus.items()},
        "twice_apart": twice[1].joules / twice[0].joules - 1,
        "twice_half_width": twice[1].half_width_share,
        "sampling_share": last.sampling_share,
        "clock_mhz": last.states[0].clock_mhz if last.states else None,
        "values_mj": [e.joules * 1e3 for e in found],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    steps = operators()
    for step in steps.values():
        step()
    torch.cuda.synchronize()
    meters = MeterSet([open_nvml(clock=CLOCK)])
    zeus = {seconds: window for seconds in (0.2, 1.0) if (window := zeus_window(seconds)) is not None}
    print(f"{torch.cuda.get_device_name()}, {arguments.repeats} measurements of at most 1 s each; off = worst (mean)")
    peers = ["joulediff", "plain_0.2s", *(f"zeus_{s}s" for s in zeus)]
    heads = f"{'op':11}{'reference':>11}"
    print(heads + "".join(f"{p:>18}" for p in peers) + f"{'held':>8}{'±':>7}{'twice':>8}{'wall':>7}")
    rows = []
    for name, step in steps.items():
        row = study(name, step, meters, zeus, arguments.repeats)
        rows.append(row)
        off = "".join(f"{100 * row[p]['worst']:+9.2f}% ({100 * row[p]['mean']:+.1f}%)".rjust(18) for p in peers)
        print(
            f"{name:11}{row['reference_mj']:8.2f} mJ{off}{row['held']:5}/{row['repeats']}"
            f"{100 * row['half_width']:6.2f}%{100 * row['twice_apart']:+7.2f}%{row['wall_s']:6.2f}s",
            flush=True,
        )
    print(f"sampling: {100 * max(r['sampling_share'] for r in rows):.2f}% of a core at most")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
