"""`joulediff match` as a user calls it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import paths
from golden_files import check_golden
from invented import Tensor, draw, record, sqrt, tanh
from joulediff.archive.reader import load
from joulediff.archive.writer import save
from joulediff.cli import cli
from joulediff.cli.output import Progress, show_matching
from joulediff.matching.match_runs import match_runs
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Match
from joulediff.model.run import Run
from joulediff.report.json.match import match_to_json
from joulediff.report.terminal.match import print_match
from joulediff.report.views.match_rows import report_match

GOLDEN = paths.GOLDEN
EAGER, FUSED = GOLDEN / "match" / "gpt2_eager.jd", GOLDEN / "match" / "gpt2_sdpa.jd"


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    return load(EAGER), load(FUSED)


def render(a: Run, b: Run, columns: int, *, top: int = 20) -> str:
    return render_match(a, b, match_runs(a, b), columns, top=top)


def render_match(a: Run, b: Run, match: Match, columns: int, *, top: int = 20) -> str:
    console = Console(width=columns, record=True, file=io.StringIO())
    print_match(report_match(a, b, match), console, top=top)
    return console.export_text()


@pytest.mark.parametrize("columns", [80, 120])
def test_golden(runs: tuple[Run, Run], columns: int, pytestconfig: pytest.Config) -> None:
    shown = render(*runs, columns)
    assert all(len(line) <= columns for line in shown.splitlines())
    check_golden(f"match/gpt2_{columns}.txt", shown, pytestconfig)


def test_columns_sum_to_their_totals(runs: tuple[Run, Run]) -> None:
    lines = render(*runs, 120).splitlines()
    head = next(number for number, line in enumerate(lines) if "ops A" in line)
    rows = [line.split()[:2] for line in lines[head + 1 :] if line.strip()]
    for column in (0, 1):
        cells = [0.0 if row[column] == "-" else float(row[column]) for row in rows]
        assert sum(cells[:-1]) == pytest.approx(cells[-1], abs=1e-9)


def test_json_is_complete(runs: tuple[Run, Run]) -> None:
    a, b = runs
    match = match_runs(a, b)
    regions = match.regions
    found = json.loads(match_to_json(report_match(a, b, match)))
    assert found["schema"] == "joulediff.match/1"
    assert len(found["regions"]) == len(regions)
    assert sorted(number for group in found["groups"] for number in group["regions"]) == list(range(len(regions)))
    for side, run, key in (("a", a, "ops_a"), ("b", b, "ops_b")):
        matched = [op for each in found["regions"] for op in each[key]]
        assert sorted([*matched, *found[side]["unmatched"]]) == list(range(len(run.ops)))
        parts = [each[f"energy_{side}"] for each in found["regions"] if each[f"energy_{side}"] is not None]
        assert sum(part["joules"] for part in parts) == pytest.approx(found[side]["matched_energy"]["joules"])


def changed_layer() -> tuple[Run, Run]:
    """Return a step and another one with a different epsilon, recorded with hostile names."""
    x, w, v = Tensor(draw(16, 32, seed=0), name="x"), Tensor(draw(32, 32, seed=1)), Tensor(draw(32, 32, seed=2))

    def step(epsilon: float) -> Tensor:
        hidden = x @ w
        return tanh((hidden / sqrt((hidden * hidden).mean(1, keepdim=True) + epsilon)) @ v)

    runs = [record(lambda each=each: step(each)) for each in (1e-6, 1e-4)]
    a, b = (replace(run, ops=tuple(replace(op, module="layers.7.\x1b[2Jnorm") for op in run.ops)) for run in runs)
    return a, b


def test_where_the_runs_differ_is_in_the_text_and_in_json() -> None:
    a, b = changed_layer()
    match = replace(match_runs(a, b), notes=("3 of 4 weights differ, first \x1b[31mw",))
    assert match.divergences
    shown = " ".join(render_match(a, b, match, 200).split())
    assert "the runs begin to differ at layers.7.\\x1b[2Jnorm" in shown
    assert "! 3 of 4 weights differ, first \\x1b[31mw" in shown
    assert "\x1b" not in shown
    found = json.loads(match_to_json(report_match(a, b, match)))
    assert found["notes"] == list(match.notes)
    first, expected = found["divergences"][0], match.divergences[0]
    assert (first["ops_a"], first["ops_b"]) == (list(expected.a), list(expected.b))
    assert (first["difference"], first["expected"]) == (expected.difference, expected.expected)
    assert first["where"] == "layers.7.\x1b[2Jnorm" and first["name"]
    assert [(each["basis"], each["drift"]) for each in found["regions"]] == [
        (each.basis, each.drift) for each in match.regions
    ]
    assert {"drift", "equal"} <= {each["basis"] for each in found["regions"]}
    assert found["outputs_agree"] is match.outputs_agree


def test_the_rest_of_two_calls_is_named(runs: tuple[Run, Run]) -> None:
    a, b = runs
    match = match_runs(a, b)
    assert "rest of two calls" not in render_match(a, b, match, 160)
    first = [each for each in match.regions if each.kind == "equal"][-1]
    regions = tuple(replace(each, basis="call") if each is first else each for each in match.regions)
    shown = render_match(a, b, replace(match, regions=regions), 160)
    assert "(rest of two calls)" in shown and "1 by the calls around them" in shown


def test_progress_is_shown_for_long_runs_only(runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = runs
    with show_matching(a, b) as listener:
        assert not isinstance(listener, Progress)
    monkeypatch.setattr("joulediff.cli.output.LONG_OPS", len(a.ops))
    with show_matching(a, b) as listener:
        assert isinstance(listener, Progress)


def test_the_command(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["match", str(EAGER), str(FUSED), "--json", "-"])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["a"]["label"] == load(EAGER).label
    target = tmp_path / "match.json"
    found = CliRunner().invoke(cli, ["match", str(EAGER), str(FUSED), "--top", "3", "--json", str(target)])
    assert "more" in found.stdout and "all operators" in found.stdout
    assert json.loads(target.read_text())["schema"] == "joulediff.match/1"


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    copy = tmp_path / "run.jd"
    copy.write_bytes(EAGER.read_bytes())
    found = CliRunner().invoke(cli, ["match", str(copy), str(FUSED), "--json", str(copy)])
    assert isinstance(found.exception, JoulediffError)
    assert copy.read_bytes() == EAGER.read_bytes()


def test_names_of_a_recording_are_plain_text(runs: tuple[Run, Run], tmp_path: Path) -> None:
    a, b = runs
    odd = replace(
        a, label="\x1b[31mred\n", ops=tuple(replace(op, name="aten::\x1b[2J[bold]x", module="\u202em") for op in a.ops)
    )
    save(odd, tmp_path / "odd.jd")
    shown = render(load(tmp_path / "odd.jd"), b, 100)
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "[bold]x" in shown


def test_what_has_no_counterpart_is_named(runs: tuple[Run, Run]) -> None:
    a, b = runs
    # Without the signatures of the last values nothing recognises them.
    last = len(b.values) - 200
    blind = replace(b, values=tuple(replace(v, signature=None) if v.id > last else v for v in b.values))
    shown = render(a, blind, 120)
    assert "no counterpart in A: " in shown and "no counterpart in B: " in shown


def test_without_energy_operators_are_counted(runs: tuple[Run, Run]) -> None:
    a, b = (replace(run, measurement=None, kernels=()) for run in runs)
    shown = render(a, b, 100)
    assert "J of A" not in shown and "ops A" in shown
    assert "100% matched" in shown


def test_two_recordings_of_a_program_on_a_gpu() -> None:
    """BERT in half precision, recorded twice on an H200 by `benchmarks/closure.py --again --keep`."""
    a, b = (load(GOLDEN / "match" / f"h200_bert{again}.jd") for again in ("", "_again"))
    match = match_runs(a, b)
    assert all(each.a == each.b for each in match.regions)
    assert len(match.regions) == len(a.ops)
    assert match.divergences == () and {each.basis for each in match.regions} == {"equal"}
    report = report_match(a, b, match)
    for side in (report.a, report.b):
        assert side.energy is not None and side.energy.source == "replayed"
        assert side.share_of_energy == pytest.approx(1.0)
