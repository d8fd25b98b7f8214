"""Operators that sum to more than the meter: a diff warns of it and exits with 2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diff_builders import energy, gpt2_diff, ledger
from joulediff.cli.diff import _exit_code
from joulediff.model.diff import Diff, Gate, GateVerdict
from joulediff.model.energy import Energy
from joulediff.model.measurement import Account
from joulediff.report.render import render


def exceeding(**changes: object) -> Diff:
    """Return a diff whose side A has operators with 130 % of what its CPU was metered at."""
    rest = Energy(-0.3, -0.35, -0.25, "estimated")
    account = Account("cpu", energy(1.0, 0.02, "estimated"), energy(1.3), None, None, None, rest, True)
    found = replace(ledger(1.0), domains=(account,), exceeds_meter=True)
    return replace(gpt2_diff(), ledger_a=found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_both_reports_warn_of_the_side(form: str) -> None:
    said = " ".join(render(exceeding(), form).split())
    assert "A: the parts of cpu sum to 130% of its metered energy" in said
    assert "sum to" not in " ".join(render(gpt2_diff(), form).split())


def test_the_exit_code_says_that_the_energies_are_not_sound() -> None:
    assert (_exit_code(gpt2_diff()), _exit_code(exceeding())) == (0, 2)


@pytest.mark.parametrize(("verdict", "code"), [("passed", 0), ("failed", 3), ("cannot tell", 2)])
def test_a_gate_decides_by_whole_steps(verdict: GateVerdict, code: int) -> None:
    assert _exit_code(exceeding(gate=Gate(verdict, 0.05, None))) == code
