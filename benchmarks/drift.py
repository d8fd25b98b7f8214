"""How the speed of a machine drifts: the CPU time of one step in blocks, and the error of a ratio from such blocks.

    python benchmarks/drift.py --seconds 12

The blocks are taken as turns of two programs in the order A, B, B, A. Both are the same program here, so every ratio
but 1 is an error. Short turns leave less of a drift than long ones.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from joulediff.measuring.freed_memory import keep_freed_memory
from joulediff.pysource.programs import load_step

BLOCKS_S = (0.1, 0.25, 0.5, 1.0, 2.0)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    file = Path(__file__).with_name("gate_programs.py")
    arguments.add_argument("programs", nargs="*", default=[f"{file}:operators_0", f"{file}:host_0"])
    arguments.add_argument("--seconds", type=float, default=12.0)
    chosen = arguments.parse_args()
    keep_freed_memory()
    for target in chosen.programs:
        step = load_step(target)
        step()
        steps_s = []
        end_s = time.monotonic() + chosen.seconds
        while time.monotonic() < end_s:
            begin_s = time.process_time()
            step()
            steps_s.append(time.process_time() - begin_s)
        print(f"{target.rpartition(':')[2]}: {1e3 * np.mean(steps_s):.2f} ms a step")
        for block_s in BLOCKS_S:
            _print_blocks(np.array(steps_s), block_s)


def _print_blocks(steps_s: np.ndarray, block_s: float) -> None:
    length = max(1, round(block_s / steps_s.mean()))
    count = len(steps_s) // length // 4
    if count < 2:
        return
    turns = steps_s[: 4 * count * length].reshape(count, 4, length).mean(axis=2)
    ratios = np.log((turns[:, 1] + turns[:, 2]) / (turns[:, 0] + turns[:, 3]))
    spread, error = turns.std() / turns.mean(), ratios.std(ddof=1) / np.sqrt(count)
    print(
        f"  turns of {block_s:.2f} s: they spread by {100 * spread:.1f} %, their ratio is known to {100 * error:.2f} %"
    )


if __name__ == "__main__":
    main()
