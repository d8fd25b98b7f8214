"""Measure the time to diagnose the recordings of all cases without a device: `joulediff diff A.jd B.jd`.

    OMP_NUM_THREADS=1 python benchmarks/golden_cases.py              # recordings of this repository
    OMP_NUM_THREADS=1 python benchmarks/golden_cases.py KEPT         # recordings of `joulediff cases run --keep`

Each diff runs in its own process, as it does for a user; the time includes the start of the process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from joulediff.cases.run import RUNS

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "cases"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folders", nargs="*", type=Path, default=sorted(path for path in GOLDEN.iterdir()))
    chosen = arguments.parse_args()
    pairs = [file.parent for folder in chosen.folders for file in sorted(folder.glob(f"*/{RUNS['a']}"))]
    begin_s = time.monotonic()
    for pair in pairs:
        took_s = time_diff(pair)
        sys.stdout.write(f"{took_s:6.2f} s  {pair.parent.name}/{pair.name}\n")
    sys.stdout.write(f"{time.monotonic() - begin_s:6.2f} s  {len(pairs)} pairs\n")
    return 0


def time_diff(pair: Path) -> float:
    """Return the seconds of one diff. A failed diff ends the benchmark."""
    command = [sys.executable, "-m", "joulediff", "diff", *(str(pair / name) for name in RUNS.values())]
    begin_s = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin_s


if __name__ == "__main__":
    sys.exit(main())
