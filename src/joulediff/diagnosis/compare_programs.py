"""Compare programs that can be run: record them, diagnose them, and measure each whole program with its fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.gate.settle import Rounds
from joulediff.diagnosis.interleaved_recording import Program, record_fixed, recorded
from joulediff.diagnosis.suggest import find_fix
from joulediff.measuring.step import resting
from joulediff.model.diff import Diff, Thresholds
from joulediff.model.energy import overlap, saved_share
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Confirmation, Finding, WholeRun
from joulediff.model.measurement import Quiet
from joulediff.model.options import DiffOptions
from joulediff.model.outputs import returned_distance
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.process.client import RemoteProgram


def compare_programs(
    programs: Mapping[SideName, Program],
    runs: Mapping[SideName, Run],
    options: DiffOptions,
    *,
    listener: ProgressListener,
    ahead: Mapping[SideName, RemoteProgram] | None = None,
    same_work_counts: bool = False,
) -> Diff:
    """Return the diff of two sides: those of `programs` are recorded now, those of `runs` are taken as they are.

    `ahead` are their processes, if they were started before. With `options.confirm`, each whole program is measured
    again with every fix that can be applied from outside. With `options.fail_above`, both programs are measured in
    alternation for the gate: before they are profiled, and then in new processes.
    """
    rounds = None if options.fail_above is None else Rounds(options.fail_above, options.gate_s, listener)
    also_measure = None if rounds is None else rounds.measure
    with recorded(programs, runs, listener=listener, ahead=ahead, also_measure=also_measure) as found:
        diff = diagnose(
            found.runs["a"],
            found.runs["b"],
            thresholds=Thresholds.of(options),
            tolerance=options.tolerance,
            live=found.live,
            listener=listener,
            interleaved=found.interleaved,
            same_work_counts=same_work_counts,
        )
        if options.confirm:
            diff = confirm_findings(diff, programs, listener=listener)
        listener.stage("ending the programs", None)
    return diff if rounds is None else replace(diff, gate=rounds.settle(diff, programs, _idle(found.runs)))


def _idle(runs: Mapping[SideName, Run]) -> dict[SideName, Quiet]:
    return {side: resting(run.measurement) for side, run in runs.items() if run.measurement is not None}


def confirm_findings(diff: Diff, programs: Mapping[SideName, Program], *, listener: ProgressListener) -> Diff:
    """Return a diff whose findings have the saving of their fixes in the whole program, where it can be measured.

    The program without and with the fix are each measured in a fresh process that no profiler has run in.
    """
    found = []
    for finding in diff.findings:
        listener.stage(f"confirming finding {finding.id}: the whole program with its fix", None)
        found.append(_confirm(finding, programs.get(finding.expensive), listener))
    return replace(diff, findings=tuple(found))


def _confirm(finding: Finding, program: Program | None, listener: ProgressListener) -> Finding:
    fix = find_fix(finding)
    if fix is None or program is None:
        return finding
    change = ", ".join(f"{name} = {value}" for name, value in fix.items())
    try:
        whole = _compare(
            change, record_fixed(program, {}, listener=listener), record_fixed(program, fix, listener=listener)
        )
    except JoulediffError as error:
        whole = WholeRun(change, None, None, None, None, None, note=error.what)
    before = finding.proof.confirmation or Confirmation(())
    return replace(finding, proof=replace(finding.proof, confirmation=replace(before, whole=whole)))


def _compare(change: str, before: Run, after: Run) -> WholeRun:
    old, new = before.measurement, after.measurement
    if old is None or new is None:
        return WholeRun(change, None, None, None, None, None, note="the energy of the step is not known")
    share = saved_share(old.energy, new.energy)
    distance = returned_distance(before, after)
    noise = "within the intervals" if overlap(old.energy, new.energy) else None
    return WholeRun(change, old.energy, new.energy, old.step_s, new.step_s, share, distance, noise)
