"""Code of a library that only one side runs, inside lines with operators, is named by the line that asked for it."""

from __future__ import annotations

import pytest

from diagnosis_builders import comparison_of
from host_builders import host_run
from joulediff.diagnosis.evidence.host.library_work import find_library_work

LEAN = """\
from fancy import Counter


def build():
    def step():
        y = model(x)
        return y
    return step
"""
COUNTING = LEAN.replace("        y = model(x)\n", "        with Counter():\n            y = model(x)\n")
CALL = ("model.py", "Module.__call__")
LAYER = ("layers.py", "Linear.forward")
MODE = ("counter.py", "_Counter.__dispatch__")
LINE = "y = model(x)"


def test_code_of_a_mode_is_named_by_the_line_that_makes_it() -> None:
    a = host_run(COUNTING, {(LINE, CALL, LAYER): 4.0, (LINE, CALL, LAYER, MODE): 5.0})
    b = host_run(LEAN, {(LINE, CALL, LAYER): 4.1})
    (found,) = find_library_work(comparison_of(a, b), "a")
    assert (found.key, found.place.text, found.what) == (
        "Counter",
        "with Counter():",
        "lib.counter._Counter.__dispatch__",
    )
    assert found.seconds_a == pytest.approx(5e-3)
    assert not found.is_wait and not found.runs_operators
    assert find_library_work(comparison_of(a, b), "b") == ()


def test_code_that_both_sides_run_is_no_evidence() -> None:
    a, b = (host_run(COUNTING, {(LINE, CALL, LAYER, MODE): time_ms}) for time_ms in (9.0, 4.0))
    assert find_library_work(comparison_of(a, b), "a") == ()


def test_code_that_the_text_names_nowhere_is_no_evidence() -> None:
    a = host_run(LEAN, {(LINE, CALL, LAYER): 4.0, (LINE, CALL, LAYER, ("other.py", "hook")): 5.0})
    assert find_library_work(comparison_of(a, host_run(LEAN, {(LINE, CALL, LAYER): 4.1})), "a") == ()


def test_a_module_of_the_model_is_another_implementation() -> None:
    made = COUNTING.replace("Counter", "Fused")
    a = host_run(made, {(LINE, CALL, ("fused.py", "Fused.forward")): 9.0})
    assert find_library_work(comparison_of(a, host_run(LEAN, {(LINE, CALL, LAYER): 4.1})), "a") == ()


def test_a_call_that_its_own_line_names_is_left_to_other_evidence() -> None:
    a = host_run(LEAN, {(LINE, ("model.py", "model"), ("inner.py", "build")): 9.0})
    assert find_library_work(comparison_of(a, host_run(LEAN, {(LINE, CALL, LAYER): 4.1})), "a") == ()


def test_few_samples_are_no_evidence() -> None:
    a = host_run(COUNTING, {(LINE, CALL, LAYER): 4.0, (LINE, CALL, LAYER, MODE): 0.1})
    assert find_library_work(comparison_of(a, host_run(LEAN, {(LINE, CALL, LAYER): 4.1})), "a") == ()
