"""What programs at the edge cost: 100,000 operators in a step, and an output of 2 GB.

    python benchmarks/large.py [--ops 100000] [--output-gb 2] [--only ops|output] [--json FILE]

Records a program of so many operators, twice, and compares the recordings; then records a step that returns one tensor
of the given size. Each command is a process of its own; its time is the wall time, its memory the largest resident
size of all its processes together (proportional size, so that shared pages count once). Goals: record under 60 s,
diff under 30 s, 2 GB of memory, and at most twice the size of the output beside the program's own memory. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

PERIOD_S = 0.1
MANY = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

def build():
    layers = [torch.nn.Linear(16, 16) for _ in range(50)]
    x = torch.randn(4, 16)
    def step():
        y = x
        with torch.no_grad():
            for at in range({ops} // 4):
                layer = layers[at % 50]
                y = torch.tanh(torch.nn.functional.linear(y, layer.weight, layer.bias)) * 0.9 + x
        return y
    return step
"""
OUTPUT = """
import torch
torch.set_num_threads(1)

def build():
    x = torch.randn(1 << 20)
    rows = {floats} // (1 << 20)
    return lambda: x.expand(rows, -1) + 1.0
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one command."""

    name: str
    seconds: float
    memory_gb: float
    code: int
    goal: str
    reached: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--output-gb", type=float, default=2.0)
    parser.add_argument("--only", choices=["ops", "output"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only != "output":
            (folder / "many.py").write_text(MANY.format(ops=options.ops))
            for label in ("a", "b"):
                costs.append(
                    run(folder, f"record {options.ops} operators", 60.0, 2.0, "record", "many.py", "-o", f"{label}.jd")
                )
            costs.append(run(folder, "diff of the two", 30.0, 2.0, "diff", "a.jd", "b.jd"))
        if options.only != "ops":
            (folder / "output.py").write_text(OUTPUT.format(floats=int(options.output_gb * 2**30) // 4))
            plain_gb = run_plain(folder)
            print(f"the program alone: {plain_gb:.2f} GB")
            limit_gb = plain_gb + options.output_gb
            costs.append(
                run(
                    folder,
                    f"record an output of {options.output_gb:g} GB",
                    None,
                    limit_gb,
                    "record",
                    "output.py",
                    "-o",
                    "o.jd",
                )
            )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in costs], indent=1))
    sys.exit(not all(each.reached for each in costs))


def run(folder: Path, name: str, limit_s: float | None, limit_gb: float, *words: str) -> Cost:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    seconds, memory_gb, code, text = watch([sys.executable, "-m", "joulediff", *words], folder, env)
    goal = f"{limit_gb:.1f} GB" if limit_s is None else f"{limit_s:.0f} s, {limit_gb:.1f} GB"
    reached = (limit_s is None or seconds < limit_s) and memory_gb <= limit_gb and code in (0, 2)
    print(f"{name:28} {seconds:6.1f} s  {memory_gb:5.2f} GB  goal {goal:16} "
          f"{'reached' if reached else 'NOT reached'}  exit code {code}", flush=True)  # fmt: skip
    if code not in (0, 2):
        print(text)
    return Cost(name, seconds, memory_gb, code, goal, reached)


def run_plain(folder: Path) -> float:
    """Return the memory of the program when it runs its step alone."""
    text = "import output; step = output.build(); result = step(); result = step()"
    return watch([sys.executable, "-c", text], folder, dict(os.environ))[1]


def watch(words: list[str], folder: Path, env: dict[str, str]) -> tuple[float, float, int, str]:
    begin_s = time.monotonic()
    most = [0]
    with subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as started:
        done = threading.Event()
        watcher = threading.Thread(target=note_memory, args=(started.pid, most, done))
        watcher.start()
        text, _ = started.communicate()
        done.set()
        watcher.join()
    return time.monotonic() - begin_s, most[0] / 2**30, started.returncode, text


def note_memory(pid: int, most: list[int], done: threading.Event) -> None:
    while not done.wait(PERIOD_S):
        with suppress(psutil.Error):
            parent = psutil.Process(pid)
            total = 0
            for each in (parent, *parent.children(recursive=True)):
                with suppress(psutil.Error):
                    total += each.memory_full_info().pss
            most[0] = max(most[0], total)


if __name__ == "__main__":
    main()
