"""Steps that are compared as a whole: rows of functions, verdicts, findings, and outputs that are known or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import LiveProgram, costs, record
from host_builders import program
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.whole_steps.function_rows import FunctionRow, compare_functions
from joulediff.energy.ledger import Costs
from joulediff.frameworks.jobs import VariantCost
from joulediff.model.diff import Diff, Row, Thresholds
from joulediff.model.errors import JoulediffError
from joulediff.model.pair import Pair
from joulediff.model.run import Pass, Run
from joulediff.pysource.source_files import ProgramSource, SourceFile
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.render import render
from plain_builders import plain_run
from run_builders import energy

STEP = ("build.<locals>.step", 9)
SOURCE = """\
import json


def parse(text):
    return json.loads(text)


def build():
    def step():
        return parse(text)
    return step
"""


def rows_of(a: Run, b: Run) -> list[tuple[str, float | None, float | None]]:
    rows = compare_functions(a, b, Pair(Costs(a), Costs(b)))
    return [(row.name, *(None if each is None else round(each.joules, 3) for each in row.energies)) for row in rows]


def by_name(diff: Diff) -> dict[str, Row]:
    return {row.name: row for row in diff.rows}


def test_functions_of_one_file_are_paired_by_name() -> None:
    a = plain_run("a", {(STEP, ("parse", 3)): 6.0, (STEP, ("sum_up", 5)): 4.0})
    b = plain_run("b", {(STEP, ("parse", 3)): 5.0, (STEP, ("sum_up", 5)): 5.0}, file="other.py")
    assert rows_of(a, b) == [("parse", 0.6, 0.5), ("sum_up", 0.4, 0.5)]


def test_the_steps_are_paired_whatever_their_names() -> None:
    a = plain_run("a", {(STEP,): 10.0})
    b = plain_run("b", {(("Router.__call__", 4),): 10.0}, file="other.py")
    assert rows_of(a, b) == [("step ↔ Router.__call__", 1.0, 1.0)]


def test_other_names_are_paired_by_the_function_of_a_library_that_both_call() -> None:
    a = plain_run("a", {(STEP, ("parse", 3), ("loads", 0)): 6.0, (STEP, ("old", 5)): 4.0})
    b = plain_run("b", {(STEP, ("read_all", 3), ("loads", 0)): 5.0, (STEP, ("new", 7)): 5.0}, file="other.py")
    assert rows_of(a, b) == [("parse ↔ read_all", 0.6, 0.5), ("new", None, 0.5), ("old", 0.4, None)]


def test_a_run_with_itself_has_no_finding_and_only_noise() -> None:
    a = plain_run("a", {(STEP, ("parse", 3)): 6.0, (STEP, ("sum_up", 5)): 4.0})
    b = plain_run("b", {(STEP, ("parse", 3)): 6.2, (STEP, ("sum_up", 5)): 3.8})
    diff = diagnose(a, b)
    assert diff.findings == () and {row.verdict for row in diff.rows} == {"noise"}
    assert diff.ratio is not None and diff.ratio.may_be_one
    assert diff.outputs_agree and "A and B return equal values" in diff.notes
    assert "No finding: no function differs by more than" in render(diff, "terminal", width=120)


def test_rows_sum_to_the_energy_of_each_step() -> None:
    a = plain_run("a", {(STEP, ("parse", 3)): 6.0, (STEP,): 3.0}, joules=3.0)
    b = plain_run("b", {(STEP, ("parse", 3)): 5.0}, joules=1.0)
    rows = diagnose(a, b).rows
    for side, total in (("a", 3.0), ("b", 1.0)):
        energies = [getattr(row, f"energy_{side}") for row in rows]
        assert sum(each.joules for each in energies if each is not None) == pytest.approx(total)
    assert rows[-1].kind == "unexplained"


def test_a_function_that_only_one_side_runs() -> None:
    a = plain_run("a", {(STEP, ("parse", 3)): 5.0, (STEP, ("check", 5)): 5.0}, joules=2.0)
    b = plain_run("b", {(STEP, ("parse", 3)): 10.0}, joules=1.0)
    rows = {row.name: row for row in compare_functions(a, b, Pair(Costs(a), Costs(b)))}
    assert rows["check"].verdict(Thresholds(), 2.0) == "only_a" and rows["check"].energies.b is None
    assert rows["parse"].verdict(Thresholds(), 2.0) == "noise"
    table = by_name(diagnose(a, b))
    assert (table["check"].finding, table["check"].energy_b) == ("1", None)


def test_the_line_of_the_host_is_a_finding_of_recordings() -> None:
    a = plain_run("a", {(STEP,): 1.0, (STEP, ("parse", 5)): 9.0}, joules=10.0, source=SOURCE)
    b = plain_run("b", {(STEP,): 1.0}, joules=1.0, source=SOURCE, file="other.py")
    diff = diagnose(a, b)
    (finding,) = diff.findings
    assert (finding.expensive, finding.cause.key, finding.proof.word) == ("a", "json.loads", "observed")
    assert finding.verdict == "waste" and finding.cost.difference == 0.0
    assert by_name(diff)["parse"].finding == "1"
    assert diff.not_explained is None


@pytest.mark.parametrize(
    ("outputs", "verdict", "note"),
    [
        ((1.0, 2.0), "tradeoff", "A and B return different values, 50% apart"),
        ((1.0, None), "waste", "it is not known whether A and B return the same"),
    ],
)
def test_outputs_are_never_taken_for_equal(outputs: tuple[Any, Any], verdict: str, note: str) -> None:
    a = plain_run("a", {(STEP,): 1.0, (STEP, ("parse", 5)): 9.0}, joules=10.0, source=SOURCE, output=outputs[0])
    b = plain_run("b", {(STEP,): 1.0}, joules=1.0, source=SOURCE, output=outputs[1])
    diff = diagnose(a, b)
    assert [each.verdict for each in diff.findings] == [verdict]
    assert not diff.outputs_agree
    assert any(each.startswith(note) for each in diff.notes)


def test_a_change_of_the_source_is_tried_in_the_program() -> None:
    lean = SOURCE.replace("json.loads(text)", "text")
    a = plain_run("a", {(STEP,): 1.0, (STEP, ("parse", 5), ("loads", 0)): 9.0}, joules=10.0, source=SOURCE)
    b = plain_run("b", {(STEP,): 1.0}, joules=1.0, source=lean, file="other.py")
    cost = VariantCost(energy(10.0), energy(1.0), 0.01, 0.001, difference=0.0, is_measured=True)
    live = {
        "a": _Program(a, SOURCE, "prog.py", cost),
        "b": _Program(b, lean, "other.py", cost),
    }
    diff = diagnose(a, b, live=live, interleaved=True)  # type: ignore[arg-type]
    (finding,) = diff.findings
    assert (finding.cause.key, finding.proof.word, finding.kind) == ("json.loads", "cause confirmed", "host")
    assert finding.cause.location_a is not None and finding.cause.location_a.line == 5
    assert by_name(diff)["parse"].finding == "1"


class _Program(LiveProgram):
    def __init__(self, run: Run, text: str, file: str, cost: VariantCost) -> None:
        super().__init__(run)
        self._source = ProgramSource("build", (SourceFile("", file, text),))
        self._cost = cost

    def read_source(self) -> ProgramSource:
        return self._source

    def try_variant(self, variant: Any, *, seconds: float) -> tuple[VariantCost, Run]:
        return self._cost, self.run


def test_a_program_with_operators_against_one_without() -> None:
    a = record(program, costs({"mm": 0.3}), rest_w=100.0)
    b = plain_run("b", {(STEP,): 10.0}, joules=0.5)
    diff = diagnose(replace(a, label="a"), b)
    assert (diff.a.ops > 0, diff.b.ops, diff.a.unmatched) == (True, 0, 0)
    assert diff.is_by_function
    assert not diff.outputs_agree and any(note.startswith("A and B return different") for note in diff.notes)


def test_a_capture_that_failed_is_said() -> None:
    failed = Pass("captured", "failed", 0.1, "out of memory")
    a = plain_run("a", {(STEP,): 10.0})
    a = replace(a, passes=(*a.passes[:3], failed), values=(), signatures=())
    diff = diagnose(a, plain_run("b", {(STEP,): 10.0}))
    assert "A: its captured pass was failed (out of memory)" in diff.notes


def test_steps_that_were_not_measured_cannot_be_compared() -> None:
    a = replace(plain_run("a", {(STEP,): 10.0}), measurement=None)
    with pytest.raises(JoulediffError, match="no operators to match"):
        diagnose(a, plain_run("b", {(STEP,): 10.0}))


def test_reports_speak_of_functions_and_not_of_operators() -> None:
    a = plain_run("a", {(STEP,): 1.0, (STEP, ("parse", 5)): 9.0}, joules=10.0, source=SOURCE)
    b = plain_run("b", {(STEP,): 1.0}, joules=1.0, source=SOURCE)
    diff = diagnose(a, b)
    for form in ("terminal", "markdown"):
        text = render(diff, form, width=140) if form == "terminal" else render(diff, form)
        assert "no operators" in text and "function" in text and "split among functions" in text
        assert "0 op" not in text and "region" not in text and "counterpart" not in text
    again = diff_from_json(diff_to_json(diff).encode())
    assert again.rows == diff.rows and again.is_by_function


def test_the_place_of_a_row() -> None:
    a = plain_run("a", {(STEP, ("parse", 3), ("loads", 0)): 6.0})
    b = plain_run("b", {(STEP, ("parse", 4), ("loads", 0)): 6.0}, file="other.py")
    (row,) = compare_functions(a, b, Pair(Costs(a), Costs(b)))
    assert isinstance(row, FunctionRow)
    assert row.where == "prog.py:3, in lib.loads ↔ other.py:4, in lib.loads"
