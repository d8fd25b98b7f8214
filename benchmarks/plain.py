"""Compare pairs of programs without a framework: is the first finding right?

    python benchmarks/plain.py                                    # all pairs
    python benchmarks/plain.py --only history-of-deep-copies      # one
    python benchmarks/plain.py --aa                               # each program with itself: any finding is false

Each pair is a folder of `tests/plain`, in the form of those in `tests/unseen`. All options are those of
`benchmarks/unseen.py`. The expected findings were written before the diagnosis ran on the programs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unseen import main as compare_pairs

PAIRS = Path(__file__).resolve().parents[1] / "tests" / "plain"


def main(words: Sequence[str]) -> int:
    return compare_pairs(["--pairs", str(PAIRS), "--keep", ".plain", "--device", "cpu", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
