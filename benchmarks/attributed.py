"""Compare attributed energies with replayed ones, of operators whose replay is left out of a recording.

    python benchmarks/attributed.py RUN.jd [RUN.jd ...] [--leave 0.5] [--times 20]

Takes recordings in which nearly all operators were replayed (tests/golden/closure has four), removes the replays of a
random share of the distinct operators, and opens the books again: those operators are then attributed. Prints, for
each recording and for all, the sum of the attributed joules over that of the replayed ones, the 5th and 95th
percentile of replayed over attributed, and how many replayed energies lie within the attributed interval.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path

import numpy as np

from joulediff.archive.reader import load
from joulediff.energy.ledger import open_books


def kernels_by_replay(run):
    """Return the kernels of each replay on a GPU, by the index of the replay."""
    groups = {}
    for number, kernel in enumerate(run.kernels):
        place = None if kernel.op is None else run.ops[kernel.op].replay
        if kernel.device.startswith("cuda") and place is not None and run.replays[place].energy_j is not None:
            groups.setdefault(place, []).append(number)
    return groups


def forget(run, places):
    """Return a run as if these operators had not been replayed."""
    rows = tuple(
        replace(row, energy_j=None, low_j=None, high_j=None, how=None, note="left out") if place in places else row
        for place, row in enumerate(run.replays)
    )
    return replace(run, replays=rows)


def compare(run, leave, times, chance):
    """Return (replayed, attributed) joules a step for each operator that was left out."""
    groups, whole, pairs = kernels_by_replay(run), open_books(run), []
    for _ in range(times):
        places = {place for place in groups if chance.random() < leave}
        books = open_books(forget(run, places))
        pairs += [(whole.total(groups[place]), books.total(groups[place])) for place in places]
    return pairs


def show(label, pairs):
    ratios = [replayed.joules / attributed.joules for replayed, attributed in pairs]
    inside = np.mean([b.low <= a.joules <= b.high for a, b in pairs])
    total = sum(b.joules for _, b in pairs) / sum(a.joules for a, _ in pairs)
    low, high = np.percentile(ratios, [5, 95])
    print(
        f"{label:24} {len(pairs):5d} left out, attributed sum {total:6.1%} of the replayed one; replayed over"
        f" attributed {low:.2f} to {high:.2f} for nine in ten; {inside:.0%} within the interval"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.jd")
    parser.add_argument("--leave", type=float, default=0.5, metavar="SHARE")
    parser.add_argument("--times", type=int, default=20, metavar="N")
    options = parser.parse_args()
    chance, every = random.Random(0), []
    for path in options.runs:
        pairs = compare(load(path), options.leave, options.times, chance)
        show(path.stem, pairs)
        every += pairs
    show("all", every)


if __name__ == "__main__":
    main()
