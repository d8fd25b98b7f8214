"""The terminal report of a diff: its golden files, its sums and its sentences."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from diff_builders import (
    energy,
    finding,
    gpt2_diff,
    hostile_diff,
    mixed_diff,
    open_diff,
    row,
    same_diff,
    unlike_diff,
    unmeasured_diff,
)
from golden_files import check_golden
from joulediff.model.diff import Diff, Thresholds
from joulediff.model.energy import Energy, Ratio
from joulediff.model.finding import Cause, CauseType, Confirmation, ProofWord, Trial
from joulediff.model.pair import SideName
from joulediff.model.place import Place
from joulediff.report.render import render
from joulediff.report.terminal.diff import print_diff
from joulediff.report.views.diff_sentences import findings_text, headline, note_texts, warning_texts
from joulediff.report.views.diff_table import diff_table
from joulediff.report.views.finding_sentences import cause_text, finding_facts, pays_text
from joulediff.report.views.short_texts import energies_in_one_unit, energy_text, ratio_text, shown_j

BUILT = {
    "gpt2": gpt2_diff,
    "mixed": mixed_diff,
    "open": open_diff,
    "unlike": unlike_diff,
    "same": same_diff,
    "unmeasured": unmeasured_diff,
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", BUILT)
def test_golden(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    shown = render(BUILT[name](), "terminal", width=columns)
    assert all(len(line) <= columns for line in shown.splitlines())
    check_golden(f"diff/{name}_{columns}.txt", shown, pytestconfig)


def test_golden_of_everything(pytestconfig: pytest.Config) -> None:
    check_golden("diff/gpt2_all_120.txt", render(gpt2_diff(), "terminal", width=120, every=True), pytestconfig)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("top", [1, 2, 10])
@pytest.mark.parametrize("build", [gpt2_diff, mixed_diff, unlike_diff, same_diff])
def test_columns_sum_to_their_totals(build: Callable[[], Diff], top: int, every: bool) -> None:
    lines = diff_table(build(), top=top, every=every).lines
    for column in (0, 1, 2):
        if any(line.numbers[column] == "?" for line in lines):
            continue
        cells = [0.0 if line.numbers[column] == "-" else float(line.numbers[column]) for line in lines]
        assert sum(cells[:-1]) == pytest.approx(cells[-1], abs=1e-9)


def test_totals_are_what_was_metered() -> None:
    assert diff_table(gpt2_diff(), top=10).lines[-1].numbers == ("118.2", "612.4", "494.2", "1.24x")


def test_a_finding_whose_joules_are_in_other_rows_is_not_added() -> None:
    found = gpt2_diff()
    table = diff_table(replace(found, findings=(*found.findings, finding(9, 5.0, 4.0, id="elsewhere"))), top=10)
    assert table.lines[3].numbers[:3] == ("(1.0)", "(5.0)", "(4.0)")
    assert table.lines[-1].numbers[1] == "612.4"


def test_rows_within_noise_are_one_line_unless_all_are_requested() -> None:
    assert "~    0.8  417.0  416.2     ~1.00x  14 regions within noise" in render(gpt2_diff(), "terminal")
    assert "native_layer_norm" not in render(gpt2_diff(), "terminal")
    assert "native_layer_norm" in render(gpt2_diff(), "terminal", every=True)


def test_more_findings_than_asked_for_are_counted() -> None:
    shown = render(gpt2_diff(), "terminal", top=1)
    assert "2 more findings" in shown and "2 more: --all shows them" in shown
    assert "allow_tf32" not in shown


@pytest.mark.parametrize(
    ("ratio", "delta", "expected"),
    [
        (
            (1.239, 1.219, 1.26),
            (118.2, 109.3, 127.1),
            "A uses 1.24x the energy of B: +118.2 J (95% CI 109.3 .. 127.1).",
        ),
        ((0.5, 0.4, 0.6), (-0.1, -0.12, -0.08), "B uses 2.00x the energy of A: +100.0 mJ (95% CI 80.0 .. 120.0)."),
        ((1.001, 0.98, 1.02), (1.0, -2.0, 3.0), "A and B use the same energy (ratio 1.001, 95% CI 0.98 .. 1.02)."),
        (
            (1.004, 1.002, 1.006),
            (0.004, 0.002, 0.006),
            "A uses 1.004x the energy of B: +4.000 mJ (95% CI 2.000 .. 6.000).",
        ),
        ((2.0, 1.5, 2.5), (3.0, None, None), "A uses 2.00x the energy of B: +3.000 J."),
        ((0.0, 0.0, 0.0), (None, None, None), "B uses ?x the energy of A."),
    ],
)
def test_the_headline(ratio: tuple[float, ...], delta: tuple[float | None, ...], expected: str) -> None:
    changes = dict(zip(("delta_j", "delta_low_j", "delta_high_j"), delta, strict=True))
    assert headline(gpt2_diff(ratio=Ratio(*ratio), **changes)) == expected


def with_sides(**changes: tuple[object, object]) -> Diff:
    """Return a diff whose sides A and B have these fields."""
    made = same_diff()
    a = replace(made.a, **{name: values[0] for name, values in changes.items()})  # type: ignore[arg-type]
    b = replace(made.b, **{name: values[1] for name, values in changes.items()})  # type: ignore[arg-type]
    return replace(made, a=a, b=b)


def test_a_warning_has_the_numbers_of_the_side_it_speaks_of() -> None:
    made = with_sides(
        warnings=(("±7% after 4.6 s", "hot"), ("±9% after 2.1 s",)), trustworthy=(False, False), notes=((), ())
    )
    assert warning_texts(made) == ["A: ±7% after 4.6 s", "A: hot", "B: ±9% after 2.1 s"]


def test_a_side_that_is_not_trustworthy_without_a_warning_has_a_sentence() -> None:
    made = with_sides(warnings=(("hot",), ()), trustworthy=(False, False))
    assert [text.partition(";")[0] for text in warning_texts(made)] == [
        "B: the measurement failed its checks, and the recording does not say which",
        "A: hot",
    ]
    assert warning_texts(with_sides(warnings=((), ()), trustworthy=(True, True))) == []


def test_notes_of_both_sides_are_one_only_if_they_are_equal() -> None:
    made = with_sides(notes=(("op 1 differs", "slow"), ("op 2 differs", "slow")), unmatched=(0, 0))
    assert note_texts(made) == ["A: op 1 differs", "A and B: slow", "B: op 2 differs"]


def test_without_findings_it_says_so() -> None:
    assert "No finding: no region differs by more than 5% and by more than noise." in render(same_diff(), "terminal")
    strict = replace(same_diff(), thresholds=Thresholds(threshold=0.2))
    assert "more than 20% and" in render(strict, "terminal")


def test_unknown_energy_is_not_reported_as_equal() -> None:
    shown = render(unmeasured_diff(), "terminal")
    assert "nothing differs" not in shown
    assert "a finding needs the energy of both sides" in shown
    assert "same machine" not in shown


def test_runs_that_are_not_comparable_have_no_verdicts() -> None:
    shown = render(unlike_diff(), "terminal")
    assert shown.index("the energies of A and B cannot be compared") < shown.index("region")
    assert "the energy of" not in shown
    assert {line.sign for line in diff_table(unlike_diff(), top=10).lines} == {""}
    judged = replace(gpt2_diff(), comparable=False, findings=())
    assert {line.sign for line in diff_table(judged, top=10).lines} == {""}


def test_a_serious_difference_is_red() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=120)
    print_diff(unlike_diff(), console)
    assert re.search(r"\x1b\[1;31m.*differ in device: NVIDIA H200", console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_hostile_names_do_nothing(columns: int) -> None:
    shown = render(hostile_diff(), "terminal", width=columns, every=True)
    assert shown and "\x1b" not in shown and "\u202e" not in shown
    assert all(len(line) <= columns for line in shown.splitlines())


PLACES = Place("/lib/act.py", 56, "forward"), Place("/lib/model.py", 12, "forward")


@pytest.mark.parametrize(
    ("kind", "key", "values", "places", "expensive", "expected"),
    [
        ("call_path", "act", ("x", "y"), PLACES, "a", "call path: act.py:56"),
        ("call_path", "act", ("x", "y"), PLACES, "b", "call path: model.py:12"),
        ("call_path", None, (None, None), (None, PLACES[1]), "a", "call path: model.py:12"),
        ("call_path", "act", ("x", "y"), (None, None), "a", "call path: act"),
        ("setting", "allow_tf32", (False, True), (None, None), "a", "setting: allow_tf32 False ↔ True"),
        ("setting", "x", (None, 1), (None, None), "a", "setting: x not set ↔ 1"),
        ("layout", "strides", ("(1, 2)", "(2, 1)"), PLACES, "a", "layout: strides (1, 2) ↔ (2, 1)"),
        ("redundancy", "contiguous", (None, None), PLACES, "b", "redundant: contiguous (model.py:12)"),
        ("redundancy", None, (None, None), (None, None), "b", "redundant: addmm"),
        ("host", None, (None, None), PLACES, "a", "host: act.py:56"),
        ("host", None, (None, None), (None, None), "a", "host: unknown line"),
        ("kernel", None, (None, None), PLACES, "a", "unknown"),
    ],
)
def test_causes_in_a_few_words(
    kind: CauseType,
    key: str | None,
    values: tuple[str | int | None, ...],
    places: tuple[Place | None, Place | None],
    expensive: SideName,
    expected: str,
) -> None:
    found = finding(1, 2.0, 1.0, cause=Cause(kind, key, *values, *places), expensive=expensive)
    assert cause_text(found, {"/lib/act.py": "act.py", "/lib/model.py": "model.py"}) == expected


@pytest.mark.parametrize(
    ("times", "difference", "expected"),
    [
        ((1.0, 1.2), 0.0, "B 20% slower"),
        ((1.2, 1.0), 0.5, "outputs differ 50%"),
        ((1.0, 1.2), 0.5, "B 20% slower, outputs differ 50%"),
        ((None, 1.2), None, "outputs not compared"),
        ((1.0, 1.0), 0.0, "B uses less energy; its disadvantage is unknown"),
    ],
)
def test_what_a_tradeoff_costs(times: tuple[float | None, float], difference: float | None, expected: str) -> None:
    found = finding(1, 2.0, 1.0, verdict="tradeoff", time_a_s=times[0], time_b_s=times[1], difference=difference)
    assert pays_text(found, Thresholds()) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(4.432, "4.43x"), (1.0, "1.00x"), (1.004, "1.004x"), (12.34, "12.3x"), (123.4, "123x"), (float("nan"), "?x")],
)
def test_ratios(ratio: float, expected: str) -> None:
    assert ratio_text(ratio) == expected


def test_an_unknown_difference_has_no_sign() -> None:
    rows = (row("mm", 2.0, 1.0), row("bmm", 2.0, None, "changed", ops_b=1), row("cat", 2.0, None, "changed"))
    table = diff_table(gpt2_diff(findings=(), rows=rows), top=10)
    found = {line.region: (line.sign, *line.numbers[:3]) for line in table.lines}
    assert found["bmm ×12"] == ("", "?", "2.000", "?")
    assert found["cat ×12"] == ("+", "2.000", "2.000", "-")


def test_a_row_of_a_finding_that_is_not_there_is_a_change() -> None:
    table = diff_table(gpt2_diff(findings=(), rows=(row("mm", 2.0, 1.0, "finding", finding="lost"),)), top=10)
    assert table.lines[0].sign == "+" and table.lines[0].region == "mm ×12"


@pytest.mark.parametrize(
    ("of_step", "begin"), [(False, "replayed with it gone: "), (True, "the whole step with it gone: ")]
)
def test_a_proof_names_the_trial(*, of_step: bool, begin: str) -> None:
    trial = Trial("it gone", energy(3.0), energy(1.0), energy(1.1), explains=True, of_step=of_step)
    found = finding(1, 3.0, 1.0, word="cause confirmed", confirmation=Confirmation((trial,), 2.0, 0.5))
    facts = {fact.key: fact.text for fact in finding_facts(found, {}, Thresholds())}
    assert facts["proof"].startswith(begin)


def test_energies_as_text() -> None:
    small, large, fault = (Energy(joules, joules, joules, "metered") for joules in (0.5, 12.5, 1e16))
    assert (energy_text(large), energy_text(None)) == ("12.50 J", "?")
    assert energies_in_one_unit((small, None, fault, large)) == ["0.50", "?", "?", "12.50 J"]
    assert shown_j(None) is None and shown_j(small) == 0.5 and math.isnan(shown_j(fault) or 0.0)


@pytest.mark.parametrize(
    ("words", "share", "expected"),
    [
        (("cause confirmed",), 0.91, "1 finding explains 91%: cause confirmed."),
        (("cause confirmed", "observed"), 0.91, "2 findings explain 91%: 1 cause confirmed, 1 observed."),
        (
            ("observed", "replacement confirmed", "observed"),
            0.5,
            "3 findings explain 50%: 1 replacement confirmed, 2 observed.",
        ),
        (("observed",), 1.2, "1 finding explains all of it: observed."),
        (("observed", "observed"), None, "2 findings: 2 observed."),
    ],
)
def test_the_headline_counts_each_word_of_proof(words: tuple[ProofWord, ...], share: float, expected: str) -> None:
    findings = tuple(finding(number, 3.0, 1.0, word=word) for number, word in enumerate(words, start=1))
    assert findings_text(gpt2_diff(findings=findings, explained_share=share)) == expected


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_each_finding_has_its_word_of_proof_in_the_table_and_in_its_title(form: str) -> None:
    shown = render(gpt2_diff(), form, width=120)
    assert shown.count("✓ replacement confirmed") == 2
    assert shown.count("✓ cause confirmed") == 2
    assert len(re.findall("observed", shown)) == 3, "the headline, the table and the title"


def test_a_narrow_table_still_tells_the_words_of_proof_apart() -> None:
    table = render(gpt2_diff(), "terminal", width=80).split("\n\n")[1]
    assert "✓ replacement\n" in table and "✓ cause\n" in table and "observed\n" in table


def test_trials_that_failed_are_in_the_details() -> None:
    trials = tuple(Trial(f"change {at}", energy(3.0), energy(2.9), energy(1.0)) for at in range(5))
    found = finding(1, 3.0, 1.0, word="observed", confirmation=Confirmation(trials))
    facts = [fact.text for fact in finding_facts(found, {}, Thresholds()) if fact.key in ("proof", "tried")]
    assert [text.partition(":")[0] for text in facts] == [*(f"replayed with change {at}" for at in range(3)), "2 more"]
    everything = [fact.key for fact in finding_facts(found, {}, Thresholds(), every=True)]
    assert everything.count("tried") == 5
