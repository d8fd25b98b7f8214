"""`joulediff show` of a program without a framework: functions and lines with joules that sum to the step."""

from __future__ import annotations

import json

from joulediff.report.json.run import run_to_json
from joulediff.report.views.run.host import NOT_SAMPLED, split_table
from plain_builders import plain_run
from run_builders import gpt2_run
from show_builders import render

STEP, PARSE, SORT = ("build.<locals>.step", 9), ("parse", 3), ("Lib.sort", 0)
RUN = plain_run("a", {(STEP,): 2.0, (STEP, PARSE): 3.0, (STEP, PARSE, SORT): 4.0}, source="\n\n    rows.sort()\n")


def test_functions_and_lines_have_joules_that_sum_to_the_step() -> None:
    for by in ("function", "line"):
        table = split_table(RUN, by, 10)  # type: ignore[arg-type]
        assert table is not None
        energies, names = table.columns[0], table.columns[4]
        *parts, total = [float(cell) for cell in energies.cells]
        assert round(sum(parts), 6) == total == 1.0
        assert names.cells[-2:] == [NOT_SAMPLED, "metered"]


def test_more_functions_than_fit_are_one_row() -> None:
    run = plain_run("a", {((f"f{at}", at + 1),): 1.0 for at in range(8)})
    table = split_table(run, "function", 3)
    assert table is not None
    assert [*table.columns[4].cells][3:] == ["5 more", NOT_SAMPLED, "metered"]


def test_the_report_has_no_operators() -> None:
    text = render(RUN, 120)
    assert "energy of one step by function, split by samples of the host" in text
    assert "parse" in text and "rows.sort()" in text and "lib.Lib.sort" in text
    assert "operators" not in text and "traced pass" not in text
    assert "energy of one step by function" not in render(RUN, 120, by="line")


def test_the_json_has_functions_in_place_of_operators() -> None:
    found = json.loads(run_to_json(RUN))
    assert found["ops"] is None and found["functions"][0]["function"] == "parse"
    assert json.loads(run_to_json(gpt2_run()))["functions"] is None
