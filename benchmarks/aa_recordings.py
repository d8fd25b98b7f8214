"""Compare recordings of one program with each other, without a device: there must be no finding.

    joulediff cases run --all --keep one; joulediff cases run --all --keep two
    python benchmarks/aa_recordings.py one two

Every two recordings of the same program in the folders are a pair; they come from different processes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from joulediff.archive.reader import load
from joulediff.diagnosis.compare import diagnose
from joulediff.model.run import Run


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folders", nargs="+", type=Path)
    chosen = arguments.parse_args()
    programs: defaultdict[str | None, list[Run]] = defaultdict(list)
    for folder in chosen.folders:
        for path in sorted(folder.rglob("*.jd")):
            run = load(path)
            programs[run.program].append(run)
    count = bad = held = 0
    for program, runs in sorted(programs.items(), key=str):
        for a, b in combinations(runs, 2):
            diff = diagnose(a, b)
            count, bad = count + 1, bad + bool(diff.findings)
            held += diff.ratio is not None and diff.ratio.low <= 1.0 <= diff.ratio.high
            for found in diff.findings:
                print(f"{program}: {found.kind} {found.cause.key} in {found.region}")
    print(f"{count} pairs, {bad} with a finding; the ratio's interval contains 1 in {held}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
