"""A diff as JSON: complete, exact both ways, and read from files that anyone may have made."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diff_builders import (
    changed,
    diffs,
    energy,
    gpt2_diff,
    hostile_diff,
    mixed_diff,
    same_diff,
    unlike_diff,
    unmeasured_diff,
)
from joulediff.model.diff import SCHEMA, Diff, StepCost
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.report.json.diff import MAX_DIFF_BYTES, MAX_TEXT_CHARS, diff_from_json, diff_to_json
from joulediff.report.render import render

BUILT = [gpt2_diff, mixed_diff, unlike_diff, same_diff, unmeasured_diff, hostile_diff]


def there_and_back(diff: Diff) -> Diff:
    return diff_from_json(diff_to_json(diff).encode())


def refusal(data: bytes) -> JoulediffError:
    with pytest.raises(JoulediffError) as caught:
        diff_from_json(data)
    return caught.value


@pytest.mark.parametrize("build", BUILT)
def test_a_diff_comes_back_as_it_was(build: Callable[[], Diff]) -> None:
    assert there_and_back(build()) == build()


@given(diffs())
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_diff_comes_back_as_it_was(diff: Diff) -> None:
    assert there_and_back(diff) == diff


@given(diffs())
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_diff_can_be_shown(diff: Diff) -> None:
    assert render(diff, "terminal", width=80).strip()
    assert render(diff, "markdown", every=True).startswith("### ")


def test_names_are_those_of_the_records() -> None:
    found = json.loads(diff_to_json(gpt2_diff()))
    assert found["schema"] == SCHEMA == "joulediff.diff/2"
    assert found["a"]["step"]["energy"]["joules"] == 612.4
    assert found["findings"][0]["cause"]["location_a"]["line"] == 56
    assert found["regions"][5] | {"verdict": "only_a", "energy_b": None} == found["regions"][5]


def test_numbers_that_are_not_finite_stay_unknown() -> None:
    wide = Energy(3.0, -math.inf, math.inf, "replayed")
    found = gpt2_diff(
        delta_j=math.nan,
        explained_share=math.inf,
        findings=(changed(gpt2_diff().findings[0], delta_j=math.nan, energy_a=wide),),
    )
    assert "NaN" not in diff_to_json(found) and "Infinity" not in diff_to_json(found)
    back = there_and_back(found)
    assert back.delta_j is None and back.explained_share is None
    assert math.isnan(back.findings[0].cost.delta_j)
    assert back.findings[0].cost.energy_a == wide
    assert "? J more" in render(back, "terminal")


def test_an_energy_without_a_value_is_unknown() -> None:
    endless = Energy(math.inf, 0.0, math.inf, "metered")
    found = gpt2_diff(a=replace(gpt2_diff().a, step=StepCost(endless, None, 1, 1)))
    assert there_and_back(found).a.step.energy is None


def test_texts_are_bounded() -> None:
    found = there_and_back(gpt2_diff(notes=("x" * 10**6,)))
    assert len(found.notes[0]) == MAX_TEXT_CHARS


def test_what_a_later_version_adds_is_ignored() -> None:
    plain = json.loads(diff_to_json(gpt2_diff())) | {"later": [1]}
    plain["findings"][0]["later"] = {"a": 1}
    assert diff_from_json(json.dumps(plain).encode()) == gpt2_diff()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "its JSON cannot be parsed"),
        (b"\xff\xfe\x00", "its JSON cannot be parsed"),
        (b"[" * 100_000, "its JSON is nested too deeply"),
        (b"[]", "it holds no diff"),
        (b"null", "it holds no diff"),
        (b'{"schema": ["x"]}', "it holds no diff"),
        (b'{"schema": "joulediff.run/1"}', "it is a joulediff.run/1, no joulediff.diff/2"),
        (b'{"schema": "joulediff.diff/7"}', "it is a joulediff.diff/7, too new to be read"),
        (b'{"schema": "joulediff.diff/2"}', "diff.created is missing"),
        (
            b'{"schema": "joulediff.diff/2", "created": "\\u001b[2J' + b"9" * 40 + b'", "x": ' + b"9" * 99 + b"}",
            "its JSON",
        ),
        (b" " * (MAX_DIFF_BYTES + 1), "it has 64,000,001 bytes; 64,000,000 are allowed"),
    ],
)
def test_a_file_that_is_no_diff(data: bytes, expected: str) -> None:
    error = refusal(data)
    assert error.what.startswith(expected)
    assert error.fix


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("a", [], "diff.a may not be the list"),
        ("a.label", 3, "diff.a.label may not be the int 3"),
        ("a.step.energy", "12", "diff.a.step.energy may not be the str 12"),
        ("a.step.energy.joules", 1e9, "diff.a.step.energy is impossible"),
        ("a.step.energy.source", "guessed", "diff.a.step.energy.source may not be the str guessed"),
        ("a.step.repeats", 1.5, "diff.a.step.repeats may not be the float 1.5"),
        ("findings", {}, "diff.findings may not be the dict"),
        ("findings.0.cause.type", "magic", "diff.findings[0].cause.type may not be the str magic"),
        ("findings.0.cause.value_a", [1], "diff.findings[0].cause.value_a may not be the list"),
        ("findings.1.regions.3", "x", "diff.findings[1].regions[3] may not be the str x"),
        ("findings.2.proof", None, "diff.findings[2].proof may not be the null"),
        ("ledger_a.domains.0.metered", None, "diff.ledger_a.domains[0].metered may not be the null"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place(path: str, value: Any, expected: str) -> None:
    plain = json.loads(diff_to_json(gpt2_diff()))
    node, *_, last = [plain, *path.split(".")]
    for key in path.split(".")[:-1]:
        node = node[int(key) if isinstance(node, list) else key]
    node[int(last) if isinstance(node, list) else last] = value
    assert refusal(json.dumps(plain).encode()).what.startswith(expected)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_spoilt_diff_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands anywhere: either it is a diff, and then it can be shown, or the error is one of ours."""
    plain = json.loads(diff_to_json(gpt2_diff()))
    node: Any = plain
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or data.draw(st.booleans()):
            odd = [
                None,
                True,
                -1,
                10**19,
                1e300,
                -1e300,
                1e-300,
                "",
                "\x1b" * 99,
                [],
                {},
                [[]],
                [None],
                {"joules": None},
            ]
            node[key] = data.draw(st.sampled_from(odd))
            break
        node = node[key]
    try:
        diff = diff_from_json(json.dumps(plain).encode())
    except JoulediffError:
        return
    for width in (40, 80, 120):
        shown = render(diff, "terminal", width=width, every=data.draw(st.booleans()))
        assert "\x1b" not in shown
        assert all(len(line) <= width for line in shown.splitlines())
    assert "\x1b" not in render(diff, "markdown")


def test_energies_keep_their_source() -> None:
    assert there_and_back(gpt2_diff()).rows[0].energy_a == energy(94.4)


@pytest.mark.parametrize(("confirmed", "word"), [(True, "replacement confirmed"), (False, "observed")])
def test_a_finding_of_the_first_schema_claims_no_more_than_it_knew(confirmed: bool, word: str) -> None:
    plain = json.loads(diff_to_json(gpt2_diff()))
    plain["schema"] = "joulediff.diff/1"
    for each in plain["findings"]:
        del each["proof"]
        each["confirmed"] = confirmed
    assert {each.proof.word for each in diff_from_json(json.dumps(plain).encode()).findings} == {word}
