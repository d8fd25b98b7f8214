"""How long a run takes to save and to load, and how large its file is.

    python benchmarks/archive.py [RUN.jd] [--rounds 9]

Without a file: the recording of GPT-2 on an H200 that the tests keep. Prints medians; reading and writing both check
everything they read or write.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from joulediff.archive import load, save

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "h200_gpt2.jd"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recorded", nargs="?", type=Path, default=GOLDEN)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    times = {"save": [], "load": []}
    run = load(options.recorded)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run.jd"
        for _ in range(options.rounds):
            begin_s = time.perf_counter()
            save(run, place)
            saved_s = time.perf_counter()
            assert load(place) == run
            times["save"].append(saved_s - begin_s)
            times["load"].append(time.perf_counter() - saved_s)
        size = place.stat().st_size
    saved_s, loaded_s = (statistics.median(times[name]) for name in ("save", "load"))
    print(f"{len(run.ops)} operators, {len(run.values)} values: {size / 1e3:.1f} kB, "
          f"saved in {saved_s * 1e3:.0f} ms, loaded in {loaded_s * 1e3:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
