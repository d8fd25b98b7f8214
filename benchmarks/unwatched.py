"""Compare the step time of the metered pass with that of a plain loop, in turns.

    python benchmarks/unwatched.py [--rounds 15] [--seconds 1] [--json FILE]

GPT-2 small, random weights: fp16 16x512 on a GPU (so that the GPU takes longer than the host), fp32 1x32 on a CPU with
one thread. Prints the ratio of each round, and that of the medians. A plain loop timed twice shows the noise of the
machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from joulediff.measuring.meters import open_meters
from joulediff.measuring.step import measure, measure_idle


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available()
    device, shape = ("cuda", (16, 512)) if on_gpu else ("cpu", (1, 32))
    model = GPT2LMHeadModel(GPT2Config()).eval().to(device)
    model = model.half() if on_gpu else model
    ids = torch.randint(0, 50257, shape, device=device)

    def step():
        with torch.inference_mode():
            return model(ids).logits

    return step


def time_loop(step, seconds):
    """Return the seconds of a step in a loop that waits for the device at its end only."""
    sync = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    count = 5
    while True:
        sync()
        begin_s = time.perf_counter()
        for _ in range(count):
            step()
        sync()
        took_s = time.perf_counter() - begin_s
        if took_s > seconds / 2:
            return took_s / count
        count = max(count + 1, round(count * seconds / took_s))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json")
    options = parser.parse_args()
    step, rows = build(), []
    with open_meters("auto") as meters:
        idle = measure_idle(meters, wait_s=5.0)
        for _ in range(options.rounds):
            before_s = time_loop(step, options.seconds)
            metered_s = measure(step, meter=meters, idle=idle, seconds=options.seconds).step_s
            after_s = time_loop(step, options.seconds)
            rows.append({"plain_s": (before_s + after_s) / 2, "metered_s": metered_s, "twice": after_s / before_s})
            print(f"plain {rows[-1]['plain_s'] * 1e3:8.3f} ms   metered {metered_s * 1e3:8.3f} ms   "
                  f"ratio {metered_s / rows[-1]['plain_s']:.4f}   plain twice {rows[-1]['twice']:.4f}")  # fmt: skip
    plain_s, metered_s = (statistics.median(row[name] for row in rows) for name in ("plain_s", "metered_s"))
    moves = statistics.median(abs(row["twice"] - 1) for row in rows)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{device}: metered / plain {metered_s / plain_s:.4f} (medians); plain against itself ±{moves:.4f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"device": device, "rounds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
