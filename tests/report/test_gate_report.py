"""The verdict of a gate in every report: with the ratio, its interval, and what to do if it cannot tell."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from diff_builders import gpt2_diff
from joulediff.model.diff import Diff, Gate
from joulediff.model.energy import Ratio
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.render import render
from joulediff.report.views.gate import gate_advice, gate_text

NEAR = Ratio(1.031, 0.992, 1.072)


def gate(verdict: Any = "cannot tell", ratio: Ratio | None = NEAR, **changes: Any) -> Gate:
    return Gate(verdict, 0.05, ratio, **changes)


def with_gate(found: Gate, **changes: Any) -> Diff:
    return replace(gpt2_diff(**changes), gate=found)


def advice(found: Gate, **changes: Any) -> str:
    text = gate_advice(with_gate(found, **changes), found)
    assert text is not None
    return text


@pytest.mark.parametrize("verdict", ["passed", "failed", "cannot tell"])
def test_the_verdict_is_in_every_report(verdict: Any) -> None:
    found = with_gate(gate(verdict, rounds=3, spent_s=41.2))
    said = f"gate {verdict}: B uses 1.031x the energy of A (95% CI 0.992 .. 1.072); the limit is 1.050x"
    for form in ("terminal", "markdown"):
        assert said in " ".join(render(found, form).split())
    assert diff_from_json(diff_to_json(found).encode()).gate == found.gate
    assert gate_text(gate(verdict, rounds=3, spent_s=41.2)) == f"{said} (3 pairs of processes, 41.20 s)"


def test_a_diff_without_a_limit_has_no_gate() -> None:
    assert "gate" not in render(gpt2_diff(), "terminal")
    assert gpt2_diff().gate is None


def test_a_verdict_needs_no_advice() -> None:
    for verdict in ("passed", "failed"):
        assert gate_advice(gpt2_diff(), gate(verdict)) is None


def test_seconds_that_would_settle_it() -> None:
    assert "--settle 121 would settle it" in advice(gate(reason="too noisy", rounds=2, settles_s=120.3))
    assert "--seconds 9 would settle it" in advice(gate(reason="too noisy", settles_s=8.7))


def test_what_to_do_where_time_does_not_help() -> None:
    assert "in one job" in advice(gate(reason="recordings"))
    assert "it would pass a limit of 8%" in advice(gate(reason="recordings"))
    assert "choose another limit" in advice(gate(reason="too close", rounds=4))
    assert "record the baseline again on this machine" in advice(gate(ratio=None, reason="conditions"))
    assert "joulediff doctor" in advice(gate(ratio=None, reason="not measured"))
    disturbed = replace(gpt2_diff().b, unmet=("other programs on the CPU",))
    assert "(B: other programs on the CPU)" in advice(gate(reason="disturbed"), b=disturbed)


def test_numbers_of_a_damaged_file() -> None:
    strange = gate(ratio=Ratio(math.nan, math.nan, math.inf), reason="recordings", settles_s=math.nan)
    assert "it is unknown" in gate_text(strange)
    assert "inf" not in advice(strange) + gate_text(strange)
