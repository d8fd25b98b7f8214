"""Does the first command of the README give a sound result on this machine?

    python benchmarks/first_run.py [--runs 10] [--json FILE] [--keep DIFF.json]

Takes the ten lines and the command from the README, runs them, and prints for each run both intervals, the ratio with
its interval, the findings and the warnings. Sound: each interval is below 8 %, each ratio is within the interval of
the first run's, and nothing is warned of but what the machine lacks (a power sensor).
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
WIDEST_SHARE = 0.08


@dataclass(frozen=True)
class Outcome:
    """One run of the command."""

    code: int
    seconds: float
    half_shares: tuple[float, float]
    joules: tuple[float, float]
    ratio: tuple[float, float, float]
    trustworthy: tuple[bool, bool]
    findings: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def widest(self) -> float:
        """Return the wider half of both intervals."""
        return max(self.half_shares)


def find_example(text: str) -> tuple[str, str, list[str]]:
    """Return the program of the README's first section, its file name, and the arguments of the command."""
    section = text.partition("## Ten lines to the first diff")[2].partition("\n## ")[0]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    name = re.search(r"Write `(\w+\.py)`", section)
    command = re.search(r"^\$ joulediff (diff .*)$", section, re.MULTILINE)
    if program is None or name is None or command is None:
        raise SystemExit(f"{README} has no example to run")
    return program.group(1), name.group(1), shlex.split(command.group(1), comments=True)


def run_once(folder: Path, arguments: list[str]) -> Outcome:
    """Run the command in a folder and return its result."""
    begin_s = time.monotonic()
    command = [sys.executable, "-m", "joulediff", *arguments, "--json", "diff.json"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode == 1:
        raise SystemExit(done.stderr)
    found = json.loads((folder / "diff.json").read_text(encoding="utf-8"))
    sides = [found["a"], found["b"]]
    energies = [side["step"]["energy"] for side in sides]
    ratio = found["ratio"]
    return Outcome(
        done.returncode,
        time.monotonic() - begin_s,
        tuple(max(e["high"] - e["joules"], e["joules"] - e["low"]) / e["joules"] for e in energies),
        tuple(e["joules"] for e in energies),
        (ratio["value"], ratio["low"], ratio["high"]),
        tuple(side["trustworthy"] for side in sides),
        tuple(f"{each['kind']}: {each['proof']}" for each in found["findings"]),
        tuple(dict.fromkeys(warning for side in sides for warning in side["warnings"])),
    )


def main() -> None:
    """Run the example, print a row for each run, and exit with 1 if a run was not sound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=float, nargs=2, metavar=("LOW", "HIGH"), help="ratio of an earlier first run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    parser.add_argument("--keep", type=Path, metavar="DIFF.json", help="keep the last diff, for docs/pictures")
    parser.add_argument("--readme", type=Path, default=README, help="take the example from this file")
    chosen = parser.parse_args()
    program, name, arguments = find_example(chosen.readme.read_text(encoding="utf-8"))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / name).write_text(program, encoding="utf-8")
        for _ in range(chosen.runs):
            found = run_once(folder, arguments)
            outcomes.append(found)
            show(found)
            if chosen.keep is not None:
                shutil.copy(folder / "diff.json", chosen.keep)
    low, high = chosen.first or outcomes[0].ratio[1:]
    inside = sum(low <= each.ratio[0] <= high for each in outcomes)
    narrow = sum(each.widest < WIDEST_SHARE for each in outcomes)
    sound = sum(all(each.trustworthy) and each.code == 0 for each in outcomes)
    print(
        f"of {len(outcomes)} runs: {narrow} with both intervals below ±{100 * WIDEST_SHARE:g}%, {inside} with a ratio"
    )
    print(f"within {low:.3f} .. {high:.3f}, {sound} trustworthy with exit code 0")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if min(inside, narrow, sound) == len(outcomes) else 1)


def show(found: Outcome) -> None:
    """Print one run."""
    sides = "  ".join(
        f"{1e3 * joules:.3f} mJ ±{100 * half:.1f}%"
        for joules, half in zip(found.joules, found.half_shares, strict=True)
    )
    ratio = f"{found.ratio[0]:.3f}x ({found.ratio[1]:.3f} .. {found.ratio[2]:.3f})"
    print(f"{sides}  {ratio}  {found.seconds:.0f} s  exit {found.code}  {'; '.join(found.findings)}", flush=True)
    for warning in found.warnings:
        print(f"    ! {warning}", flush=True)


if __name__ == "__main__":
    main()
