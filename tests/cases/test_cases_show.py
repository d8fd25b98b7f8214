"""The reports of judged cases and of the catalogue: their golden files and their sentences."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from case_builders import judgement, library_judgements, make_case, silent
from golden_files import check_golden
from joulediff.cases.catalogue import print_case, print_catalogue
from joulediff.cases.judge import Judgement, all_good
from joulediff.cases.judgement_report import (
    cases_table,
    judged_text,
    judgements_to_markdown,
    print_judgements,
    totals_text,
)
from joulediff.cases.results import read_results, results_to_json, write_results
from joulediff.model.energy import Ratio
from joulediff.model.errors import JoulediffError


def console(columns: int) -> Console:
    return Console(file=io.StringIO(), width=columns, color_system=None, highlight=False)


def text_of(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def in_columns(judgements: list[Judgement], columns: int) -> str:
    target = console(columns)
    print_judgements(judgements, target)
    return text_of(target)


@pytest.mark.parametrize("columns", [80, 120])
def test_golden(columns: int, pytestconfig: pytest.Config) -> None:
    shown = in_columns(library_judgements(), columns)
    assert all(len(line) <= columns for line in shown.splitlines())
    check_golden(f"cases/judged_{columns}.txt", shown, pytestconfig)


def test_golden_of_markdown(pytestconfig: pytest.Config) -> None:
    check_golden("cases/judged.md", judgements_to_markdown(library_judgements()), pytestconfig)


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        (
            library_judgements(),
            "4 of 10 found and confirmed (3 cause confirmed, 1 replacement confirmed), 1 fixed upstream, 3 partly, "
            "2 missed, 3 not run; 260 s",
        ),
        ([judgement("a"), judgement("b")], "2 of 2 found and confirmed (2 cause confirmed); 63 s"),
        ([silent("a", "clean"), silent("b", "false alarm")], "1 of 2 without a finding, 1 false alarm; 40 s"),
        ([silent("a", "clean"), silent("b")], "1 of 2 without a finding, 1 missed; 40 s"),
        ([Judgement("a", "not run", note="needs torch")], "0 of 0 found and confirmed, 1 not run"),
    ],
)
def test_totals(judgements: list[Judgement], expected: str) -> None:
    assert totals_text(judgements) == expected


def test_exit_codes_follow_those_that_ran() -> None:
    good = [judgement("a"), silent("b", "fixed upstream"), silent("c", "clean"), Judgement("d", "not run")]
    assert all_good(good)
    for outcome in ("partly", "missed", "false alarm"):
        assert not all_good([*good, silent("e", outcome)])


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (
            judgement("tf32", told_key="allow_tf32"),
            "tf32: found, 6.31x, misconfiguration: allow_tf32, cause confirmed, 31 s",
        ),
        (Judgement("tf32", "not run", note="only on cuda"), "tf32: not run, only on cuda"),
        (
            silent("x", end_to_end=Ratio(1.0, 0.9, 1.1), note="no difference measured"),
            "x: missed, ~1.00x, 20 s (no difference measured)",
        ),
        (
            silent("x", "fixed upstream", end_to_end=Ratio(1.0, 0.9, 1.1), note="1.00x"),
            "x: fixed upstream, ~1.00x, 20 s",
        ),
    ],
)
def test_one_case_in_a_line(judged: Judgement, expected: str) -> None:
    assert judged_text(judged) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (Ratio(1.24, 1.22, 1.26), "1.24x"),
        (Ratio(6.3, 6.0, 6.6), "6.30x"),
        (Ratio(1.021, 1.01, 1.03), "1.02x"),
        (Ratio(1.004, 0.99, 1.02), "~1.004x"),
        (Ratio(0.8, 0.7, 0.9), "0.80x"),
        (Ratio(float("nan"), 0.0, 0.0), "?"),
        (None, "?"),
    ],
)
def test_the_difference_end_to_end(ratio: Ratio | None, expected: str) -> None:
    assert cases_table([judgement("a", end_to_end=ratio)]).lines[0].step == expected


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_hostile_texts_do_nothing(columns: int) -> None:
    evil = judgement("a\x1b[31m|b", "partly", told_key="k\u202e\x1b]0;x\x07" * 9, note="<img> \x1b[2J [x](y)")
    shown = in_columns([evil], columns)
    assert "\x1b" not in shown and "\u202e" not in shown
    page = judgements_to_markdown([evil])
    assert "\x1b" not in page and "<img>" not in page and "](" not in page
    assert len(page.splitlines()[2].split(" | ")) == 10


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_results(tmp_path, library_judgements())
    assert list(read_results(tmp_path)) == library_judgements()
    assert json.loads(results_to_json([]))["schema"] == "joulediff.cases/1"
    assert read_results(tmp_path / "nowhere") == ()


def test_results_of_other_cases_stay(tmp_path: Path) -> None:
    before = (judgement("a"), judgement("b", "partly"), judgement("c"))
    write_results(tmp_path, [judgement("b"), Judgement("c", "not run"), Judgement("d", "not run")], before)
    found = {each.case: each.outcome for each in read_results(tmp_path)}
    assert found == {"a": "found", "b": "found", "c": "found", "d": "not run"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "it is no joulediff.cases/1"),
        ("[", "its JSON cannot be parsed"),
        ('{"schema": "joulediff.cases/1", "created": "", "tool": "", "judgements": [{}]}', "case is missing"),
        ('{"schema": "joulediff.cases/1", "created": "", "tool": "", "judgements": 3}', "may not be the int 3"),
    ],
)
def test_results_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(JoulediffError, match=why):
        read_results(tmp_path)


@pytest.mark.parametrize("columns", [80, 120])
def test_golden_of_the_catalogue(columns: int, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    copies = {"title": "Queries, keys and values that are copied before they are needed", "kind": "redundant"}
    cases = [
        make_case(tmp_path / "pytorch-153195", devices=["cuda"]),
        make_case(tmp_path / "hf-39072", system="Hugging Face Transformers", **copies),
    ]
    target = console(columns)
    print_catalogue(cases, {"pytorch-153195": "only on cuda", "hf-39072": None}, target)
    assert all(len(line) <= columns for line in text_of(target).splitlines())
    check_golden(f"cases/list_{columns}.txt", text_of(target), pytestconfig)


def test_golden_of_a_case_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(tmp_path)
    measured = {"device": "NVIDIA H200", "date": "2026-11-15", "versions": "torch 2.11.0", "energy_ratio": 6.3}
    case = make_case(
        Path("tf32"),
        links=["https://example.org/issues/1", "https://example.org/issues/2"],
        needs={"torch": "2.4", "transformers": "5"},
        expected="TF32 is disabled by default without warning:\nproducts of float32 leave the tensor cores idle.",
        lines=["y = a @ b"],
        differs="A smaller model.",
        fixed="Since 2.7.",
        processes=2,
        measured=[{**measured, "time_ratio": 6.5, "note": "locked clock"}, measured],
    )
    target = console(80)
    print_case(case, None, target, programs=True)
    check_golden("cases/show_80.txt", text_of(target), pytestconfig)
