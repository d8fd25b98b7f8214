"""Compare programs that can still be tried: record them, diagnose, and run each whole program with its fix."""

from __future__ import annotations

from collections.abc import Mapping

from joulediff.child.served import Served
from joulediff.diagnosis.confirm import confirm_findings
from joulediff.diagnosis.diagnose import diagnose
from joulediff.diagnosis.live import Program, recorded
from joulediff.diffs import Diff, Thresholds
from joulediff.findings import SideName
from joulediff.runs import Run
from joulediff.stability.watch import Watch


def compare_programs(
    programs: Mapping[SideName, Program],
    runs: Mapping[SideName, Run],
    *,
    thresholds: Thresholds,
    tolerance: float,
    confirm: bool,
    watch: Watch,
    ahead: Mapping[SideName, Served] | None = None,
) -> Diff:
    """Return the diff of two sides: those of `programs` are recorded now, those of `runs` are taken as they are.

    `ahead` are their processes, where they were started before. With `confirm`, each whole program is measured again
    with every fix that can be put in force from outside.
    """
    with recorded(programs, runs, watch=watch, ahead=ahead) as found:
        diff = diagnose(
            found.runs["a"],
            found.runs["b"],
            thresholds=thresholds,
            tolerance=tolerance,
            labs=found.labs,
            watch=watch,
            interleaved=found.interleaved,
        )
        return confirm_findings(diff, programs, watch=watch) if confirm else diff
