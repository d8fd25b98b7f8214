"""Compare the energy of a layer with the sum of its operators alone, in short and long bursts.

    python benchmarks/additivity.py [--window S] [--json FILE]

Replay measures an operator in bursts of a millisecond, and takes the energy of a program as the sum of its calls and
its idle time. Here each operator of a BERT layer runs in bursts of one call up to a millisecond, with rests as long as
the bursts. Then all operators of the layer run in turn, without gaps and with a rest after each call, and are compared
with the sum of their energies alone. Energies are above the resting GPU. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from joulediff.energy.load_energy import BurstMeter
from joulediff.frameworks.torch.replay.bursts import spin, time_on_device
from joulediff.measuring.meters import open_meters
from joulediff.measuring.meters.meter import RealClock

DEVICE = "cuda:0"
# Inputs rotate through copies, so that each call reads them from memory, not from the cache.
COPIES = 8
GRAPH_S = 1e-3
COUNTS = (1, 4, 8, 16)


def make_operators():
    """Return the operators of a layer of BERT base, fp16, 16x256 tokens: name -> call(number)."""
    half = {"device": DEVICE, "dtype": torch.half}
    narrow = [torch.randn(4096, 768, **half) for _ in range(COPIES)]
    wide = [torch.randn(4096, 3072, **half) for _ in range(COPIES)]
    heads = [torch.randn(16, 12, 256, 64, **half) for _ in range(COPIES)]
    up, down, square = (torch.randn(shape, **half) * 0.02 for shape in ((768, 3072), (3072, 768), (768, 768)))
    bias, gain = torch.zeros(3072, **half), torch.ones(768, **half)
    functional = torch.nn.functional
    return {
        "up 768x3072": lambda i: torch.addmm(bias, narrow[i % COPIES], up),
        "down 3072x768": lambda i: torch.addmm(bias[:768], wide[i % COPIES], down),
        "square 768x768": lambda i: torch.addmm(bias[:768], narrow[i % COPIES], square),
        "gelu": lambda i: functional.gelu(wide[i % COPIES]),
        "layer_norm": lambda i: functional.layer_norm(narrow[i % COPIES], (768,), gain, bias[:768]),
        "attention": lambda i: functional.scaled_dot_product_attention(*(heads[(i + n) % COPIES] for n in range(3))),
        "add": lambda i: narrow[i % COPIES] + narrow[(i + 1) % COPIES],
    }


# One layer, in its order.
LAYER = [
    *("square 768x768",) * 3,
    "attention",
    "square 768x768",
    "add",
    "layer_norm",
    "up 768x3072",
    "gelu",
    "down 3072x768",
    "add",
    "layer_norm",
]


@dataclass
class Row:
    """A pattern of calls, with the energy of one round above rest."""

    name: str
    calls: int
    rest_us: float
    energy_mj: float
    half_share: float
    round_us: float
    clock_mhz: float | None


def capture(work, rounds):
    """Return a graph of many rounds; memory allocated by its calls lives as long as the graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work(0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(rounds):
            work(number)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def time_call(call):
    held = []

    def work(number):
        held.append(call(number))
        del held[:-4]

    rounds = 64
    graph = capture(work, rounds)
    return min(time_on_device(graph.replay, DEVICE) for _ in range(5)) / rounds


def measure(burst_meter, rest_w, window_s, name, calls, busy_s, rest_s):
    """Return the joules of a round: `calls` and then a rest; `rest_s` may be one for each call."""
    held = []
    rests = rest_s if isinstance(rest_s, list) else [0.0] * (len(calls) - 1) + [rest_s]

    def work(number):
        for at, call in enumerate(calls):
            held.append(call(number * len(calls) + at))
            del held[:-4]
            if rests[at] > 0:
                spin(DEVICE, rests[at])

    # Every copy is used equally often.
    rounds = COPIES * max(1, round(GRAPH_S / (busy_s + sum(rests)) / COPIES))
    graph = capture(work, rounds)
    found = burst_meter.measure(graph.replay, {"gpu0": rest_w}, window_s=window_s)
    burst = found.domains["gpu0"]
    return Row(
        name,
        len(calls),
        1e6 * sum(rests),
        1e3 * burst.energy.joules / rounds,
        burst.energy.half_width_share,
        1e6 * burst.step_s / rounds,
        found.clocks_mhz.get("gpu0"),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", type=float, default=0.8, metavar="S")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = []
    with torch.inference_mode(), open_meters("auto", clock=RealClock()) as meters:
        burst_meter = BurstMeter(meters.meters, clock=RealClock())
        rest = burst_meter.measure(lambda: spin(DEVICE, 1e-3), {"gpu0": 0.0}, window_s=options.window)
        rest_w = rest.domains["gpu0"].power_w
        print(f"rest {rest_w:.1f} W")
        operators = make_operators()
        times_s = {name: time_call(call) for name, call in operators.items()}
        alone = {}
        for name, call in operators.items():
            most = max(1, round(GRAPH_S / times_s[name]))
            counts = [*(count for count in COUNTS if count < most), most]
            print(f"\n{name}, {1e6 * times_s[name]:.1f} us a call")
            for count in counts:
                row = measure(burst_meter, rest_w, options.window, name, [call] * count, *[count * times_s[name]] * 2)
                rows.append(row)
                alone[name, count == most] = row.energy_mj / count
                print(
                    f"  {count:4d} calls a burst: {row.energy_mj / count:8.3f} mJ a call ±{row.half_share:.1%}", end=""
                )
                print(f"  {row.clock_mhz:.0f} MHz, round {row.round_us:.1f} us", flush=True)
                if count == 1:
                    alone[name, "single"] = row.energy_mj
        calls = [operators[name] for name in LAYER]
        layer_s = sum(times_s[name] for name in LAYER)
        burst_mj = sum(alone[name, True] for name in LAYER)
        single_mj = sum(alone[name, "single"] for name in LAYER)
        print(f"\nlayer: {burst_mj:.2f} mJ as the sum of long bursts, {single_mj:.2f} of single calls")
        for title, rest_s in (
            ("no gaps, then rest for half of the time", layer_s),
            ("rest of 5 us after each call", [5e-6] * len(calls)),
            ("rest of 20 us after each call", [2e-5] * len(calls)),
            ("rest of 60 us after each call", [6e-5] * len(calls)),
        ):
            row = measure(burst_meter, rest_w, 2 * options.window, f"layer, {title}", calls, layer_s, rest_s)
            rows.append(row)
            print(
                f"  {title}: {row.energy_mj:.2f} mJ ±{row.half_share:.1%}, {row.energy_mj / burst_mj - 1:+.1%} against",
                end="",
            )
            print(f" the sum; {row.clock_mhz:.0f} MHz, round {row.round_us:.0f} us", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
