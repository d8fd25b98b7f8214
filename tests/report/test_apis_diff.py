"""Two runs of scripts in reports: golden files, sums of the columns, JSON and back, names that stay names."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace

import pytest
from rich.console import Console

from api_run_builders import Calls, Program, make_api_run, many_apis, read_number
from archive_mutants import change_somewhere
from golden_files import check_golden
from joulediff.diagnosis.api_runs.compare import compare_api_runs
from joulediff.model.apis.api_diff import ApiDiff, LinePlace
from joulediff.model.energy import joules_of
from joulediff.model.errors import ArchiveError
from joulediff.report.apis_diff_markdown import api_diff_to_markdown
from joulediff.report.json.apis_diff import api_diff_from_json, api_diff_to_json
from joulediff.report.json.saved import result_from_json
from joulediff.report.render import render
from joulediff.report.terminal.apis_diff import print_api_diff
from joulediff.report.views.apis.diff_tables import api_diff_table, ledger_diff_table, line_diff_table, why_text
from joulediff.report.views.columns import TextTable

CREATED = "2026-11-21T08:00:00+00:00"


def compare(a: Program, b: Program, **options: float) -> ApiDiff:
    found = compare_api_runs(make_api_run(a), make_api_run(b), **options)  # type: ignore[arg-type]
    return replace(found, created=CREATED, tool="0.3.0")


def lean() -> Program:
    """Return the program without its conversions, with cheaper calls of the model, and with another way to save."""
    calls = list(Program().calls)
    calls[2] = replace(calls[2], net_j={"gpu0": 120.0, "cpu": 15.0})
    calls[3] = replace(calls[3], calls=4, seconds=0.15, net_j={"gpu0": 0.75, "cpu": 6.0})
    calls[5] = replace(calls[5], api="torch.jit.save", text="torch.jit.save")
    return replace(Program(), calls=calls)


DIFFS = {
    "same": compare(Program(), Program(), fail_above=0.05),
    "lean": compare(Program(), lean()),
    "worse": replace(compare(lean(), Program(), fail_above=0.05), next="joulediff diff a.jd b.jd -o report.md"),
    "not_comparable": replace(
        compare_api_runs(make_api_run(), make_api_run(domains=("cpu",)), fail_above=0.05), created=CREATED
    ),
}


def shown(diff: ApiDiff, width: int, **options: object) -> str:
    file = io.StringIO()
    print_api_diff(diff, Console(file=file, width=width), **options)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", DIFFS)
def test_golden(name: str, width: int, pytestconfig: pytest.Config) -> None:
    text = shown(DIFFS[name], width)
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"apis/diff_{name}_{width}.txt", text, pytestconfig)


def test_golden_markdown(pytestconfig: pytest.Config) -> None:
    check_golden("apis/diff_lean.md", api_diff_to_markdown(DIFFS["lean"]), pytestconfig)


def millijoules(cell: str) -> int:
    return round(1000 * (read_number(cell) or 0.0))


def joules(table: TextTable | None) -> dict[str, list[int]]:
    assert table is not None
    found = {column.head: column.cells for column in table.columns if column.head not in ("", "API")}
    return {head[0]: [millijoules(cell) for cell in cells] for head, cells in found.items() if head[0] in "ΔAB"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("every", [False, True])
def test_columns_sum_to_the_programs(seed: int, every: bool) -> None:
    a, b = (make_api_run(many_apis(20, each)) for each in (seed, seed + 100))
    diff = compare_api_runs(a, b)
    tables = [
        api_diff_table(diff, top=5, every=every),
        line_diff_table(diff, top=5, every=every),
        ledger_diff_table(diff),
    ]
    for cells in map(joules, tables):
        assert list(cells) == ["Δ", "A", "B"]
        for column in cells.values():
            assert sum(column[:-1]) == column[-1]
        for delta, left, right in zip(*cells.values(), strict=True):
            assert delta == left - right


@pytest.mark.parametrize("seed", range(10))
def test_printed_numbers_are_those_of_the_record(seed: int) -> None:
    diff = compare_api_runs(make_api_run(many_apis(20, seed)), make_api_run(many_apis(20, seed + 50)))
    table = api_diff_table(diff, top=5, every=True)
    cells = joules(table)
    for at, each in enumerate(diff.apis):
        assert cells["A"][at] == pytest.approx(1000 * joules_of(each.change.energy_a), abs=101)
        assert cells["B"][at] == pytest.approx(1000 * joules_of(each.change.energy_b), abs=101)


def test_a_run_compared_with_itself_shows_no_difference() -> None:
    text = shown(DIFFS["same"], 120)
    assert "None of 7 APIs differs." in text
    assert "7 APIs within noise" in text
    assert "A and B use the same energy" in text
    assert not [line for line in text.splitlines() if line.strip().startswith(("+", "-"))]


def test_the_reason_of_a_difference_is_named() -> None:
    reasons = {each.api: why_text(each.change) for each in DIFFS["lean"].apis}
    assert reasons["torch.nn.Module.__call__"] == "energy of a call"
    assert reasons["torch.tensor"] == "number of calls"
    assert reasons["torch.relu"] == ""
    both = compare(Program(), Program([Calls("torch.save", 15, "torch.save", 8, 9.0, {"cpu": 500.0})]))
    mixed = next(each.change for each in both.apis if each.api == "torch.save")
    assert why_text(mixed).endswith("energy of each")


def test_all_shows_what_is_within_noise() -> None:
    assert "torch.rand" not in shown(DIFFS["lean"], 120)
    assert "torch.rand" in shown(DIFFS["lean"], 120, every=True)


def test_it_is_read_back() -> None:
    for diff in DIFFS.values():
        text = api_diff_to_json(diff)
        assert api_diff_from_json(text.encode()) == diff
        assert result_from_json(text.encode()) == diff
        assert render(diff, "json") == text
    assert result_from_json(render(make_api_run(), "json").encode()) == make_api_run()


def test_the_json_has_the_change_beside_the_name() -> None:
    plain = json.loads(api_diff_to_json(DIFFS["lean"]))
    assert plain["schema"] == "joulediff.apis-diff/1"
    first = plain["apis"][0]
    assert {"api", "library", "energy_a", "energy_b", "difference", "ratio", "verdict", "calls_a"} <= set(first)
    assert {"a", "b", "between", "text", "verdict"} <= set(plain["lines"][0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "it holds no diff of API calls"),
        ('{"schema": "joulediff.apis/1"}', "it is a joulediff.apis/1, no joulediff.apis-diff/1"),
        ('{"schema": "joulediff.apis-diff/2"}', "too new to be read"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        api_diff_from_json(text.encode())
    assert caught.value.fix


def test_wrong_values_raise_an_archive_error_or_are_shown() -> None:
    base = api_diff_to_json(DIFFS["worse"])
    read = 0
    for seed in range(300):
        plain = json.loads(base)
        change_somewhere(random.Random(seed), plain)
        try:
            diff = api_diff_from_json(json.dumps(plain).encode())
        except ArchiveError as error:
            assert error.fix
        else:
            shown(diff, 80)
            read += 1
    assert 0 < read < 300


def test_long_names_fit_the_terminal() -> None:
    diff = DIFFS["lean"]
    places = [LinePlace(f"/{letter * 200}.py", 13) for letter in "ab"]
    long = replace(
        diff,
        a=replace(diff.a, label="l" * 300, program="p" * 300),
        apis=(replace(diff.apis[0], api=f"{'lib.' * 100}Model.fit"), *diff.apis[1:]),
        lines=(replace(diff.lines[0], a=places[0], b=places[1], text="t" * 300), *diff.lines[1:]),
    )
    text = shown(long, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "Model.fit" in text


def test_hostile_names_are_harmless() -> None:
    diff = DIFFS["lean"]
    odd = "\x1b[31m<img src=x>@ada\u202e[bold]"
    hostile = replace(
        diff,
        a=replace(diff.a, label=odd, warnings=(odd,)),
        apis=(replace(diff.apis[0], api=odd), *diff.apis[1:]),
        lines=(replace(diff.lines[0], text=odd), *diff.lines[1:]),
        notes=(odd,),
    )
    assert shown(hostile, 80).replace("\n", "").isprintable()
    text = api_diff_to_markdown(hostile)
    assert "<img" not in text
    assert "@ada" not in text
    assert text.replace("\n", "").replace("\u200b", "").isprintable()
