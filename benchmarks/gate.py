"""Gates of programs with a known extra cost: no false failure, and no extra cost of 10 % that passes.

    python benchmarks/gate.py                          # 40 diffs, here
    python benchmarks/gate.py --count 12 --device cpu  # one of each kind and extra cost, without a GPU

A has 20 equal units of work, B 20, 21, 22 or 24: an extra cost of 0, 5, 10 or 20 % in operators, in Python, or in
operators on other tensors. Each is one `joulediff diff A B --fail-above 5%`. Exactly at the limit any verdict is right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "benchmarks" / "gate_programs.py"
KINDS = ("operators", "host", "unmatched")
EXTRA_PERCENT = (0, 5, 10, 20)
LIMIT_PERCENT = 5
VERDICTS = ("passed", "failed", "cannot tell")
CODES = {"passed": 0, "failed": 3, "cannot tell": 2}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--count", type=int, default=40)
    arguments.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--seconds", default="0.5")
    arguments.add_argument("--replay-seconds", default="0.5")
    arguments.add_argument("--wait", default="2")
    arguments.add_argument("--settle", default="40")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="Write the results there after each diff.")
    chosen = arguments.parse_args()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    if chosen.device == "cpu":
        environ["CUDA_VISIBLE_DEVICES"] = ""
    options = ["--seconds", chosen.seconds, "--replay-seconds", chosen.replay_seconds]
    options += ["--wait", chosen.wait, "--settle", chosen.settle]
    rows: list[dict[str, Any]] = []
    for kind, percent in islice(_combinations(chosen.kinds), chosen.count):
        rows.append(_diff(kind, percent, options, environ, needs_gpu=chosen.device == "cuda"))
        _print_row(len(rows), rows[-1])
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(rows, indent=1))
    _print_table(rows)
    bad = [row for row in rows if is_wrong(row)]
    false_failures = sum(row["verdict"] == "failed" for row in bad)
    missed = sum(row["verdict"] == "passed" for row in bad)
    took_s = sum(row["seconds"] for row in rows)
    print(f"{len(rows)} diffs in {took_s:.0f} s: {false_failures} false failures, {missed} missed", end="")
    print(f", {len(bad) - false_failures - missed} without a verdict by fault")
    return 1 if bad else 0


def is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a diff failed to run, or its verdict contradicts the known extra cost or its exit code."""
    if row["code"] != CODES.get(row["verdict"]):
        return True
    if row["percent"] == LIMIT_PERCENT:
        return False
    return bool(row["verdict"] == ("failed" if row["percent"] < LIMIT_PERCENT else "passed"))


def _combinations(kinds: Sequence[str]):
    while True:
        yield from product(kinds, EXTRA_PERCENT)


def _diff(kind: str, percent: int, options: list[str], environ: dict[str, str], *, needs_gpu: bool) -> dict[str, Any]:
    begin_s = time.monotonic()
    words = ["diff", f"{PROGRAMS}:{kind}_0", f"{PROGRAMS}:{kind}_{percent}", "--fail-above", f"{LIMIT_PERCENT}%"]
    done = subprocess.run(
        [sys.executable, "-m", "joulediff", *words, *options, "--json", "-"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    row = {"kind": kind, "percent": percent, "code": done.returncode, "seconds": time.monotonic() - begin_s}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {**row, "verdict": None, "error": done.stderr[-500:]}
    if needs_gpu and "cpu" in [each["domain"] for each in found["ledger_a"]["domains"] if each["counted"]]:
        raise SystemExit("the energy is not that of a GPU; leave out --device cuda")
    return {**row, **found["gate"], "device": found["a"]["device"]}


def _print_row(number: int, row: dict[str, Any]) -> None:
    ratio = row.get("ratio")
    shown = row.get("error") if ratio is None else f"{ratio['value']:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})"
    rounds = f"{row.get('rounds', 0)} pairs of processes, {row['seconds']:.0f} s"
    mark = "  WRONG" if is_wrong(row) else ""
    print(f"{number:3} {row['kind']:10} +{row['percent']:2} %  {row['verdict']}  {shown}  {rounds}{mark}", flush=True)


def _print_table(rows: list[dict[str, Any]]) -> None:
    counts = Counter((row["kind"], row["percent"], row["verdict"]) for row in rows)
    print(f"\n{'extra cost':20}" + "".join(f"{verdict:>14}" for verdict in VERDICTS))
    for kind, percent in dict.fromkeys((row["kind"], row["percent"]) for row in rows):
        cells = "".join(f"{counts[kind, percent, verdict]:14}" for verdict in VERDICTS)
        print(f"{kind:10} {percent:6} % {cells}")


if __name__ == "__main__":
    sys.exit(main())
