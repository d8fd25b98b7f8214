"""Recordings of the cases: a diff without a device finds the same as the diff of the programs."""

from __future__ import annotations

import shutil
from functools import cache
from math import nan
from pathlib import Path

import pytest

from golden_files import find_golden
from joulediff.archive.reader import load
from joulediff.cases.case import Case
from joulediff.cases.judge import judge
from joulediff.cases.library import find_cases
from joulediff.cases.recompute import recompute
from joulediff.cases.recorded import find_edited
from joulediff.cases.results import judge_diff, read_results
from joulediff.cases.run import DIFF, RUNS
from joulediff.diagnosis.compare import diagnose
from joulediff.model.diff import Diff, Ledger
from joulediff.model.finding import Finding
from joulediff.model.pair import SideName
from joulediff.model.run import Run
from joulediff.report.json.diff import diff_from_json

CASES = {case.id: case for case in find_cases(None)}
KEPT = {f"{path.parent.parent.name}-{path.parent.name}": path.parent for path in find_golden(f"cases/*/*/{DIFF}")}
# Found only with both programs: these need measurements in alternation, or operators replayed at the host's pace.
LIVE = ("pytorch-181115", "sglang-5128")
TELLING = {name: folder for name, folder in KEPT.items() if folder.name not in LIVE}
# The argument is found only by tracing the programs line by line; the recordings have the call.
WITHOUT_PROGRAMS = {"hf-38977": "GPT2LMHeadModel"}
MACHINES = sorted({folder.parent for folder in KEPT.values()})
PAIR_BYTES, ALL_BYTES = 1_000_000, 20_000_000

kept = pytest.mark.parametrize("folder", KEPT.values(), ids=KEPT)


def case_of(folder: Path) -> Case:
    return CASES[folder.name]


def run_of(folder: Path, side: SideName) -> Run:
    return load(folder / RUNS[side])


@cache
def offline(folder: Path) -> Diff:
    return diagnose(run_of(folder, "a"), run_of(folder, "b"))


@cache
def saved(folder: Path) -> Diff:
    return diff_from_json((folder / DIFF).read_bytes())


@pytest.mark.parametrize("folder", MACHINES, ids=lambda folder: folder.name)
def test_what_was_measured_is_as_it_was_recorded(folder: Path) -> None:
    judgements = {each.case: each for each in read_results(folder)}
    assert list(find_edited(folder, judgements)) == [], "record the case again, or restore its files"


@pytest.mark.parametrize("folder", MACHINES, ids=lambda folder: folder.name)
def test_the_stored_judgements_are_those_of_today(folder: Path, tmp_path: Path) -> None:
    stored = shutil.copytree(folder, tmp_path / folder.name)
    assert list(recompute(stored, list(CASES.values()))) == [], "run joulediff cases recompute"


@pytest.mark.parametrize("folder", TELLING.values(), ids=TELLING)
def test_the_recordings_alone_give_the_same_kind_and_key(folder: Path) -> None:
    before = judge_diff(case_of(folder), folder)
    if before.outcome != "fixed upstream" and not before.right:
        pytest.skip("the stored finding is not right either")
    first = saved(folder).findings[0]
    if first.cause.type == "setting" and first.regions:  # without the programs no setting of operators can be tried
        also = {each.name for each in offline(folder).also_differs}
        assert before.key_right == bool(also.intersection(case_of(folder).keys))
        return
    judged = judge(case_of(folder), offline(folder), run_of(folder, "a"), None)
    if before.proof == "cause confirmed" and not judged.right:
        pytest.skip("the cause is known from a trial in the program, which the recordings do not have")
    key_right = judged.key_right or judged.told_key == WITHOUT_PROGRAMS.get(folder.name, "")
    assert (judged.detected, judged.kind_right, key_right) == (
        before.detected,
        before.kind_right,
        before.key_right,
    ), judged.note
    assert not judged.confirmed
    assert judged.outcome == ("fixed upstream" if before.outcome == "fixed upstream" else "partly")


@kept
def test_the_recordings_alone_give_the_same_energy(folder: Path) -> None:
    now, before = offline(folder), saved(folder)
    assert now.ratio is not None and before.ratio is not None
    assert now.ratio.value == pytest.approx(before.ratio.value)
    assert now.comparable == before.comparable
    for mine, theirs in ((now.ledger_a, before.ledger_a), (now.ledger_b, before.ledger_b)):
        assert joules_of(mine) == pytest.approx(joules_of(theirs), nan_ok=True)
    deltas = {same_parts(finding): finding.cost.delta_j for finding in before.findings}
    for finding in now.findings:
        known = deltas.get(same_parts(finding))
        assert known is None or finding.cost.delta_j == pytest.approx(known)


@kept
def test_the_rows_of_a_diff_sum_to_its_steps(folder: Path) -> None:
    for diff in (offline(folder), saved(folder)):
        for ledger, name in ((diff.ledger_a, "energy_a"), (diff.ledger_b, "energy_b")):
            metered = sum(row.metered.joules for row in ledger.domains if row.counted)
            parts = [getattr(row, name) for row in diff.rows]
            assert sum(part.joules for part in parts if part is not None) == pytest.approx(metered)


@kept
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_program_of_a_case_differs_in_nothing_from_itself(folder: Path, side: SideName) -> None:
    diff = diagnose(run_of(folder, side), run_of(folder, side))
    assert diff.findings == ()
    assert diff.same_work


@kept
def test_no_recording_has_paths_of_its_machine(folder: Path) -> None:
    text = (folder / DIFF).read_text(encoding="utf-8")
    paths = {path for side in RUNS for path in frame_files(run_of(folder, side))}
    assert not [path for path in paths if path.startswith(("/", "~"))]
    assert "/root/" not in text and "/home/" not in text and "/tmp/" not in text


def same_parts(finding: Finding) -> tuple[object, ...]:
    """Return a key that is equal for findings of the same energy: the same regions, and an idle device or none."""
    return (
        finding.cause.key,
        frozenset(finding.regions),
        any("is counted in" in text for text in finding.cause.evidence),
    )


def joules_of(ledger: Ledger) -> list[float]:
    """Return all energies of a ledger, domain by domain; NaN is unknown."""
    rows = ((row.metered, row.operators, row.idle, row.host, row.waits, row.unexplained) for row in ledger.domains)
    return [nan if energy is None else energy.joules for row in rows for energy in row]


def frame_files(run: Run) -> set[str]:
    return {frame.file for frame in run.frames}


def test_recordings_stay_small() -> None:
    sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in KEPT.values()]
    assert max(sizes) < PAIR_BYTES
    assert sum(sizes) < ALL_BYTES
