"""Measure whether work on the host is found with its line, and the overhead of the sampled pass.

    python benchmarks/host.py [--device cpu|cuda] [--seconds 4] [--programs]

On a CPU: a step with 20 % more pure Python time. On a GPU: a synchronization in each of 12 blocks, counted if it costs
at least 3 %. The recordings are compared without running the programs again, and with `--programs` live as well. The
same program twice must have no finding. Exits with 1 if a line is not the first finding, if the same program has a
finding, or if sampling slows a step by more than 10 %. Use a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXTRA_SHARE = 0.2
LEAST_COST = 0.03
MAX_OVERHEAD = 0.10
MARK = "# the waste"

MLP = """\
import torch


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).eval()
    x = torch.randn(64, 256)

    @torch.no_grad()
    def step():
{extra}        return model(x)

    return step
"""
LOOP = f"        for number in range({{count}}):  {MARK}\n            number * number\n"

# A block keeps the device busy for longer than the host takes to start it. Otherwise the device waits for the host
# anyway, and a synchronization costs little.
BLOCKS = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
{extra}        return x + y


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Block() for _ in range(12)]).eval().cuda().half()
    x = torch.randn(2048, 1024, device="cuda", dtype=torch.float16)

    @torch.no_grad()
    def step():
        return model(x)

    return step
"""
SYNC = f"        torch.cuda.synchronize()  {MARK}\n"


@dataclass(frozen=True)
class Row:
    """One comparison: what it is, the ratio of energies, the first finding, and whether that is right."""

    name: str
    ratio: str
    found: str
    proof: str
    is_right: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=4.0, help="time to measure each program for")
    parser.add_argument("--programs", action="store_true", help="compare the programs live as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pair(folder, options.device)
        rows, overheads = measure(folder, options)
    print(f"{'comparison':34}{'ratio':>21}  {'first finding':44}{'proof':18}right")
    for row in rows:
        print(f"{row.name:34}{row.ratio:>21}  {row.found:44}{row.proof:18}{'yes' if row.is_right else 'NO'}")
    overhead = statistics.median(overheads)
    print(f"overhead of sampling: {overhead:+.1%} (median of {len(overheads)}: {min(overheads):+.1%} .. ", end="")
    print(f"{max(overheads):+.1%}); at most {MAX_OVERHEAD:.0%}")
    sys.exit(0 if all(row.is_right for row in rows) and overhead <= MAX_OVERHEAD else 1)


def write_pair(folder: Path, device: str) -> None:
    if device == "cuda":
        extra, text = SYNC, BLOCKS
    else:
        text = MLP
        extra = LOOP.format(count=calibrate())
        print(f"the wasteful step has: {extra.strip().splitlines()[0]}", flush=True)
    (folder / "lean.py").write_text(text.format(extra=""))
    (folder / "wasteful.py").write_text(text.format(extra=extra))


def calibrate() -> int:
    """Return the iterations of an empty loop that take the extra share of the step's time."""
    namespace: dict[str, Any] = {}
    exec(MLP.format(extra=""), namespace)
    step = namespace["build"]()
    count = 20_000

    def loop() -> None:
        for number in range(count):
            number * number

    return max(1, round(EXTRA_SHARE * _median_s(step) / (_median_s(loop) / count)))


def _median_s(call: Callable[[], object], repeats: int = 200) -> float:
    times = []
    for _ in range(repeats):
        begin_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin_s)
    return statistics.median(times)


def measure(folder: Path, options: argparse.Namespace) -> tuple[list[Row], list[float]]:
    from joulediff import load

    runs = {}
    for name, program in {"wasteful": "wasteful", "lean": "lean", "again": "lean"}.items():
        print(f"recording {name}", flush=True)
        runs[name] = folder / f"{name}.jd"
        _joulediff(folder, "record", f"{program}.py", "-o", f"{name}.jd", "--seconds", f"{options.seconds:g}")
    line = next(at for at, text in enumerate((folder / "wasteful.py").read_text().splitlines(), 1) if MARK in text)
    rows = [
        judge("recordings", _diff(folder, "wasteful.jd", "lean.jd"), line),
        judge("recordings, the other way round", _diff(folder, "lean.jd", "wasteful.jd"), line),
        judge("the same program, recordings", _diff(folder, "again.jd", "lean.jd"), None),
    ]
    if options.programs:
        seconds = ("--seconds", f"{options.seconds:g}")
        print("comparing the programs", flush=True)
        rows.append(judge("programs", _diff(folder, "wasteful.py", "lean.py", *seconds), line))
        rows.append(judge("the same program, live", _diff(folder, "lean.py", "lean.py", *seconds), None))
    samplings = [load(path).sampling for path in runs.values()]
    return rows, [each.overhead_share for each in samplings if each is not None]


def judge(name: str, diff: dict[str, Any], line: int | None) -> Row:
    """Return whether the first finding is the line; without a line there must be no finding."""
    findings, ratio = diff["findings"], diff.get("ratio")
    value = None if ratio is None else ratio["value"]
    text = "?" if ratio is None else f"{value:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})"
    first = findings[0] if findings else None
    if first is None:
        is_cheap = value is not None and max(value, 1 / value) < 1 + LEAST_COST
        return Row(name, text, "none", "", line is None or is_cheap)
    place = first["cause"][f"location_{first['expensive']}"] or {}
    found = f"{first['cause']['key']} ({place.get('file')}:{place.get('line')})"
    is_right = line is not None and (place.get("file"), place.get("line")) == ("wasteful.py", line)
    return Row(name, text, found, first["proof"], is_right)


def _diff(folder: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_joulediff(folder, "diff", *arguments, "--json", "-"))
    return found


def _joulediff(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "joulediff", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 2):  # 2: measured on a machine that is not quiet
        raise SystemExit(f"joulediff {' '.join(arguments)}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
