"""How long a run takes to save, to load, and to send after each pass, and how large its file is.

    python benchmarks/archive.py [RUN.jd] [--rounds 9]

Without a file: the recording of GPT-2 on an H200 that the tests keep. Prints medians; reading, writing and sending all
check everything. A recording has four checkpoints (metered, traced, captured, replayed), at which the program's process
sends it and the parent saves it. "whole" does so with the whole run, "changed" with a snapshot of what changed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from joulediff.archive.reader import load
from joulediff.archive.snapshot import Snapshot, from_wire, to_wire
from joulediff.archive.tables import RECORDS
from joulediff.archive.writer import save

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "h200_gpt2.jd"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recorded", nargs="?", type=Path, default=GOLDEN)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    times = {"save": [], "load": [], "whole": [], "changed": []}
    run = load(options.recorded)
    growing = checkpoints(run)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run.jd"
        for _ in range(options.rounds):
            begin_s = time.perf_counter()
            save(run, place)
            saved_s = time.perf_counter()
            assert load(place) == run
            times["save"].append(saved_s - begin_s)
            times["load"].append(time.perf_counter() - saved_s)
            for name, send in (("whole", send_whole), ("changed", send_changed)):
                begin_s = time.perf_counter()
                found, sent_bytes = send(growing, place)
                times[name].append(time.perf_counter() - begin_s)
                assert found == load(place) == growing[-1]
                times[f"{name} bytes"] = sent_bytes
        save(run, place)
        size = place.stat().st_size
    ms = {name: statistics.median(times[name]) * 1e3 for name in ("save", "load", "whole", "changed")}
    print(f"{len(run.ops)} operators, {len(run.values)} values: {size / 1e3:.1f} kB, "
          f"saved in {ms['save']:.0f} ms, loaded in {ms['load']:.0f} ms")  # fmt: skip
    for name in ("whole", "changed"):
        print(f"{len(growing)} checkpoints, {name}: {ms[name]:.0f} ms, {times[f'{name} bytes'] / 1e3:.0f} kB sent")


def checkpoints(run):
    """Return the run as it is after each of its passes."""
    metered = replace(run, spans=(), **dict.fromkeys(RECORDS, ()))
    traced = replace(metered, kernels=tuple(replace(each, op=None) for each in run.kernels))
    captured = replace(run, replays=(), ops=tuple(replace(op, replay=None) for op in run.ops))
    return [metered, traced, captured, run]


def send_whole(growing, place):
    sent_bytes = 0
    for run in growing:
        wire = to_wire(run)
        found = from_wire(wire)
        save(found, place)
        sent_bytes += len(wire)
    return found, sent_bytes


def send_changed(growing, place):
    sent_bytes, here, there = 0, None, None
    for run in growing:
        made = Snapshot.of(run, since=here)
        wire = made.to_wire(since=here)
        there = Snapshot.from_wire(wire, since=there)
        save(there, place)
        here, sent_bytes = made, sent_bytes + len(wire)
    return there.run, sent_bytes


if __name__ == "__main__":
    main()
