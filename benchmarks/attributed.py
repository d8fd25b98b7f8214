"""How far off is attribution? Operators replayed in one recording, against the same attributed in another.

    python benchmarks/attributed.py RUN.jd AGAIN.jd [RUN.jd AGAIN.jd ...]

`benchmarks/closure.py --keep FOLDER --again 10` makes such pairs: the second replay is too short for most operators,
so their joules are attributed there. Prints, for each pair and for all, the sum of the attributed joules over that of
the replayed ones, the 5th and 95th percentile of replayed over attributed, and how many lie within the interval.
"""

from __future__ import annotations

import argparse

import numpy as np

from joulediff.archive import load
from joulediff.energy.ledger import open_books


def energies(run):
    """Return the joules a step of each distinct operator on a GPU, and whether they were replayed."""
    books, groups = open_books(run), {}
    for number, kernel in enumerate(run.kernels):
        if kernel.device.startswith("cuda") and kernel.op is not None and run.ops[kernel.op].replay is not None:
            groups.setdefault(run.ops[kernel.op].replay, []).append(number)
    found = {}
    for place, kernels in groups.items():
        op = run.ops[run.replays[place].op]
        forms = str([(run.values[value].shape, run.values[value].strides) for value in op.inputs])
        key = (op.name, op.arguments, forms, len(kernels))
        found[key] = (books.total(kernels), run.replays[place].energy_j is not None)
    return found


def compare(first, second):
    """Return (replayed, attributed) for each operator that the first run replayed and the second did not."""
    a, b = energies(load(first)), energies(load(second))
    return [(a[key][0], b[key][0]) for key in a if key in b and a[key][1] and not b[key][1]]


def show(name, pairs):
    replayed, attributed = (np.array([each.joules for each in column]) for column in zip(*pairs, strict=True))
    low, high = np.percentile(replayed / attributed, [5, 95])
    inside = np.mean([guess.low <= truth.joules <= guess.high for truth, guess in pairs])
    print(
        f"{name}: {len(pairs)} operators, sum {attributed.sum() / replayed.sum():.3f} of replayed, "
        f"replayed / attributed {low:.2f} to {high:.2f} (5 to 95%), {100 * inside:.0f}% within the interval"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN.jd AGAIN.jd")
    files = parser.parse_args().runs
    every = []
    for first, second in zip(files[::2], files[1::2], strict=True):
        pairs = compare(first, second)
        show(first, pairs)
        every += pairs
    show("all", every)


if __name__ == "__main__":
    main()
