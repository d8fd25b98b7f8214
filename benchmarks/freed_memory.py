"""How much do processes of the same program differ, with the memory that they free returned or kept?

    python benchmarks/freed_memory.py                      # eight temporary tensors of 16 MB in each step
    python benchmarks/freed_memory.py FILE.py              # any program with build()
    python benchmarks/freed_memory.py --processes 8 --turns 2

Processes of one program run their steps in turns of a second. A row has the CPU time and the page faults of one step in
each process: `returned` as glibc does by itself, `kept` as in every program that joulediff starts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from joulediff.measuring.freed_memory import keep_freed_memory
from joulediff.pysource.programs import load_step

WAYS = ("returned", "kept")
WARM_UP = 20
TURN_S = 1.0


def build() -> Callable[[], Any]:
    """Return a step that makes and frees tensors of 16 MB."""
    import torch

    x = torch.randn(4_000_000)

    def step() -> Any:
        parts = [x + number for number in range(8)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total.sum()

    return step


def run_turns(program: str, way: str) -> None:
    """Run the step for a turn at each line of standard input, and print what one step took."""
    if way == "kept":
        keep_freed_memory()
    step = load_step(program)
    for _ in range(WARM_UP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin_s, cpu_s, faults, count = time.perf_counter(), time.process_time(), _faults(), 0
        while time.perf_counter() - begin_s < TURN_S:
            step()
            count += 1
        print((time.process_time() - cpu_s) / count, (_faults() - faults) / count, flush=True)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@contextmanager
def started(program: str, way: str, count: int) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """Yield processes that have built the program."""
    command = [sys.executable, __file__, program, "--way", way]
    found = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for each in found:
            if _ask(each, "").strip() != "ready":
                raise SystemExit(f"{program} cannot be built")
        yield found
    finally:
        for each in found:
            each.kill()
            each.wait()


def _ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def main() -> None:
    """Print a table for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default=f"{__file__}:build")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way:
        run_turns(chosen.program, chosen.way)
        return
    for way in WAYS:
        print(f"freed memory {way}: CPU ms and page faults of a step, a column for each process")
        with started(chosen.program, way, chosen.processes) as processes:
            for _ in range(chosen.turns):
                rows = [tuple(map(float, _ask(each, "\n").split())) for each in processes]
                print("".join(f"{1e3 * cpu_s:12.2f} {faults:7.0f}" for cpu_s, faults in rows), flush=True)


if __name__ == "__main__":
    main()
