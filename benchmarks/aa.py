"""Compare programs with themselves: there must be no finding.

    python benchmarks/aa.py --count 50                # ten of each of five programs, here
    python benchmarks/aa.py --count 6 --seconds 2     # fewer, on a GPU

Each diff records the program twice, in two processes, as `joulediff diff A A` does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("gpt2", "conv", "train", "encoder", "elementwise")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--count", type=int, default=50)
    arguments.add_argument("--seconds", default="0.5")
    arguments.add_argument("--replay-seconds", default="4")
    arguments.add_argument("--wait", default="0")
    arguments.add_argument("--budget", type=float, default=float("inf"), help="Seconds after which no diff is begun.")
    arguments.add_argument("--out", type=Path, default=Path(".pairs/aa.json"))
    chosen = arguments.parse_args()
    file = Path(__file__).resolve().parent / "aa_programs.py"
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    begin_s, rows = time.monotonic(), []
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for number in range(chosen.count):
        if time.monotonic() - begin_s > chosen.budget:
            break
        name = PROGRAMS[number % len(PROGRAMS)]
        command = [sys.executable, "-m", "joulediff", "diff", f"{file}:{name}", f"{file}:{name}", "--json", "-"]
        command += ["--seconds", chosen.seconds, "--replay-seconds", chosen.replay_seconds, "--wait", chosen.wait]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 2):
            print(name, "failed:", done.stderr[-500:])
            rows.append({"name": name, "failed": done.stderr[-500:]})
            continue
        found = json.loads(done.stdout)
        told = [(each["region"], each["kind"], each["delta_j"]) for each in found["findings"]]
        rows.append({"name": name, "ratio": found["ratio"], "findings": told, "notes": found["notes"]})
        ratio = found["ratio"]
        print(
            f"{number + 1:3} {name:12} ratio {ratio['value']:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})  {told}"
        )
        chosen.out.write_text(json.dumps(rows, indent=1))
    bad = [row for row in rows if row.get("findings") or "failed" in row]
    held = [row for row in rows if "ratio" in row and row["ratio"]["low"] <= 1 <= row["ratio"]["high"]]
    print(f"{len(rows)} diffs, {len(bad)} with a finding or failed; the ratio's interval contains 1 in {len(held)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
