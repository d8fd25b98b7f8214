"""Compare the speed of this checkout with another one on this machine, in one run.

    python benchmarks/speed.py OTHER_CHECKOUT [--rounds 5] [--only NAME] [--json FILE]

Each job runs in a process of its own with one checkout's `src` on the path, in the order other, this, this, other, so
that a drift of the machine cancels in a round. A ratio is that of a round: above 1, this checkout is slower. The jobs:

- capture: the captured pass of GPT-2 small on one thread, 1 x 128 tokens; the fastest of five.
- diff: load the two recordings in `examples/h200`, compare them and print the report; the fastest of three.
- help: `joulediff --help`, from the start of Python to its end.

Times are CPU seconds of one thread: other programs on the machine disturb them less than the clock on the wall. The
jobs use the same Python, the same recordings (this checkout's) and compiled bytecode in a folder of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "examples" / "h200"

CAPTURE = """
import importlib, sys, time
import torch
from transformers import GPT2Config, GPT2LMHeadModel

capture_step = importlib.import_module(sys.argv[1]).capture_step
torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config()).eval()
ids = torch.randint(0, model.config.vocab_size, (1, 128))

def step():
    with torch.no_grad():
        return model(ids).logits

def timed():
    begin_s = time.process_time()
    capture_step(step)
    return time.process_time() - begin_s

timed()
print(min(timed() for _ in range(5)))
"""
DIFF = """
import sys, time
import joulediff

def timed():
    begin_s = time.process_time()
    a, b = (joulediff.load(path) for path in sys.argv[1:3])
    joulediff.render(joulediff.diff(a, b), "terminal")
    return time.process_time() - begin_s

timed()
print(min(timed() for _ in range(3)))
"""
HELP = """
import sys
sys.argv = ["joulediff", "--help"]
from joulediff.cli import main
main()
"""


@dataclass(frozen=True)
class Tree:
    """A checkout, and the environment in which Python runs its code."""

    root: Path
    environment: dict[str, str]

    def run(self, text: str, *words: str) -> str:
        command = [sys.executable, "-c", text, *words]
        # From its root: Python puts the working folder of `-c` first on the path.
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.root}: a job failed with exit code {done.returncode}\n{done.stderr}")
        return done.stdout


@dataclass(frozen=True)
class Result:
    job: str
    other_s: float
    this_s: float
    ratio: float
    low: float
    high: float
    rounds: int


def open_tree(root: Path, folder: Path) -> Tree:
    """Return the checkout at `root`; its bytecode goes below `folder`."""
    own = {"PYTHONPATH": str(root / "src"), "PYTHONPYCACHEPREFIX": str(folder), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    tree = Tree(root, environment | own)
    used = Path(tree.run("import joulediff; print(joulediff.__file__)").strip())
    if not used.resolve().is_relative_to(root):
        raise SystemExit(f"{root}: Python loads joulediff from {used}; give the root of a checkout")
    return tree


def find_module(root: Path, definition: str) -> str:
    """Return the module of the checkout that has `definition`; it moved between versions."""
    for path in sorted((root / "src").rglob("*.py")):
        if f"\n{definition}" in path.read_text(encoding="utf-8"):
            return ".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__")
    raise SystemExit(f"{root}: no module has {definition!r}")


def time_capture(tree: Tree) -> float:
    return float(tree.run(CAPTURE, find_module(tree.root, "def capture_step(")))


def time_diff(tree: Tree) -> float:
    return float(tree.run(DIFF, str(RECORDINGS / "wasteful.jd"), str(RECORDINGS / "lean.jd")))


def time_help(tree: Tree) -> float:
    begin_s = children_cpu_s()
    tree.run(HELP)
    return children_cpu_s() - begin_s


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


JOBS: dict[str, Callable[[Tree], float]] = {"capture": time_capture, "diff": time_diff, "help": time_help}


def compare(job: str, other: Tree, this: Tree, *, rounds: int) -> Result:
    """Return the ratio of the times of one job, with its range over the rounds."""
    timed = JOBS[job]
    for tree in (other, this):  # writes bytecode and fills the file cache
        timed(tree)
    others, ours = [], []
    for _ in range(rounds):
        first, second, third, last = timed(other), timed(this), timed(this), timed(other)
        others.append((first + last) / 2)
        ours.append((second + third) / 2)
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    return Result(
        job,
        statistics.median(others),
        statistics.median(ours),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        rounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(JOBS), action="append", help="run only this job; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        other = open_tree(arguments.other.resolve(), Path(folder) / "other")
        this = open_tree(ROOT, Path(folder) / "this")
        print(f"{'job':10}{'other':>12}{'this':>12}{'ratio':>9}   range over {arguments.rounds} rounds")
        for job in arguments.only or JOBS:
            found = compare(job, other, this, rounds=arguments.rounds)
            print(
                f"{job:10}{found.other_s * 1e3:9.1f} ms{found.this_s * 1e3:9.1f} ms{found.ratio:8.2f}x"
                f"   {found.low:.2f}x .. {found.high:.2f}x",
                flush=True,
            )
            results.append(asdict(found))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
