"""Compare two runs: match them, diagnose each difference, and return all of it as a diff.

No claim is made without a test: runs that were not measured alike get no verdicts, and a difference that does not show
when both sides are measured again is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.conditions import compare_conditions
from joulediff.diagnosis.diagnose_host import diagnose_busy_wait, diagnose_host, diagnose_lines
from joulediff.diagnosis.diagnose_rows import diagnose_rows
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.evidence.only_difference import find_only_difference
from joulediff.diagnosis.merge import merge_same_causes
from joulediff.diagnosis.significance import compare_rows, step_spread
from joulediff.diagnosis.summary.also_differs import set_aside_settings
from joulediff.diagnosis.summary.assemble import assemble
from joulediff.diagnosis.summary.prices import add_prices, merge_same_functions
from joulediff.diagnosis.suspects.diagnose_suspects import diagnose_suspects
from joulediff.diagnosis.trials.verify_matches import verify_matches
from joulediff.diagnosis.whole_steps.compare import are_whole_steps, compare_whole_steps, judge_by_outputs
from joulediff.frameworks.jobs import LiveProgram
from joulediff.matching.match_runs import TOLERANCE, match_runs
from joulediff.model.diff import Diff, Thresholds
from joulediff.model.outputs import rounding_share
from joulediff.model.pair import SIDES, SideName
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run

PASSES: tuple[Callable[[Investigation], None], ...] = (
    diagnose_suspects,
    diagnose_rows,
    diagnose_host,
    diagnose_busy_wait,
    set_aside_settings,
    merge_same_causes,
    merge_same_functions,
    add_prices,
)
WHOLE_STEP_PASSES: tuple[Callable[[Investigation], None], ...] = (
    diagnose_suspects,
    diagnose_lines,
    merge_same_causes,
    judge_by_outputs,
)


def diagnose(
    a: Run,
    b: Run,
    *,
    thresholds: Thresholds | None = None,
    tolerance: float = TOLERANCE,
    live: Mapping[SideName, LiveProgram] = MappingProxyType({}),
    listener: ProgressListener | None = None,
    interleaved: bool = False,
    same_work_counts: bool = False,
) -> Diff:
    """Return what differs between two runs, and why.

    `live` are the programs that can still be run; without them there are causes and no proofs. Runs that were measured
    in alternation, `interleaved`, need a smaller allowance for the spread between processes. With `same_work_counts`,
    rows with the same work on both sides are tested as well: benchmarks count the false findings that this gives. Steps
    of which one has no operators are compared as a whole, by functions.
    """
    limits, listener = thresholds or Thresholds(), listener or ProgressListener()
    limits = replace(limits, difference=max(limits.difference, rounding_share(a), rounding_share(b)))
    conditions = compare_conditions(a, b)
    if are_whole_steps(a, b):
        passes = WHOLE_STEP_PASSES
        work = compare_whole_steps(a, b, tolerance=tolerance, limits=limits, live=live, listener=listener)
    else:
        passes, match = PASSES, match_runs(a, b, tolerance=tolerance, listener=listener)
        comparison = Comparison(a, b, match.regions, tolerance, match.divergences, match.outputs_agree)
        comparison = verify_matches(comparison, live, listener)
        listener.stage("comparing the rows", None)
        rows = compare_rows(comparison, same_work_counts=same_work_counts)
        work = Investigation(comparison, rows, limits, live, listener)
        work.notes += match.notes
    if not any(each.serious for each in conditions):
        if interleaved:
            work.only_difference = find_only_difference(work.comparison, work.rows, limits)
        for run_pass in passes:
            run_pass(work)
    listener.stage("summarizing the findings", None)
    totals = (work.comparison.costs[side].total for side in SIDES)
    return assemble(work, conditions, spread=step_spread(*totals, interleaved=interleaved))
