"""Where two call paths part."""

from __future__ import annotations

from typing import Any

from diagnosis_builders import frames
from joulediff.diagnosis.evidence.calls.deviation import Deviation, find_deviation

MODEL = "transformers/models/gpt2/modeling_gpt2.py"
HF = "transformers"


def deviation(a: Any, b: Any) -> Deviation:
    found = find_deviation(a, b)
    assert found is not None
    return found


def test_a_branch_in_a_function_that_both_run() -> None:
    a = frames(("hf.py", 12, "step"), (MODEL, 300, "forward", HF), (MODEL, 80, "eager", HF))
    b = frames(("lean.py", 9, "step"), (MODEL, 304, "forward", HF), (MODEL, 99, "fused", HF))
    found = deviation(a, b)
    assert (found.common_a, found.common_b) == (a[1], b[1])
    assert (found.first_a, found.first_b) == (a[2], b[2])
    assert found.is_branch


def test_ways_that_part_and_meet_again_part_where_they_first_did() -> None:
    a = frames(("hf.py", 12, "step"), (MODEL, 300, "forward", HF), (MODEL, 80, "inner", HF), (MODEL, 1, "slow", HF))
    b = frames(("lean.py", 9, "step"), (MODEL, 304, "forward", HF), (MODEL, 80, "inner", HF), (MODEL, 2, "fast", HF))
    assert deviation(a, b).common_a == a[1]


def test_another_callee_of_the_same_line() -> None:
    a = frames(("hf.py", 12, "step"), (MODEL, 300, "forward", HF), ("act.py", 5, "NewGELU", HF))
    b = frames(("lean.py", 9, "step"), (MODEL, 300, "forward", HF), ("act.py", 9, "GELU", HF))
    found = deviation(a, b)
    assert found.common_a == a[1] and not found.is_branch
    assert found.first_a is not None and found.first_a.function == "NewGELU"


def test_users_own_files_may_differ_and_the_last_frame_in_common_counts() -> None:
    deep = [(MODEL, line, f"layer_{line}", HF) for line in range(5)]
    a = frames(("hf.py", 12, "step"), ("hf.py", 3, "inner"), *deep, (MODEL, 70, "act", HF), (MODEL, 1, "slow", HF))
    b = frames(("lean.py", 9, "step"), *deep, (MODEL, 70, "act", HF), (MODEL, 2, "fast", HF))
    assert deviation(a, b).common_a.function == "act"


def test_a_path_that_goes_on_where_the_other_runs_an_operator() -> None:
    a = frames(("hf.py", 12, "step"), (MODEL, 300, "forward", HF), (MODEL, 80, "eager", HF))
    found = deviation(a, a[:2])
    assert found.first_a == a[2] and found.first_b is None


def test_the_users_own_function_in_common() -> None:
    a = frames(("p.py", 10, "step"), ("p.py", 20, "slow"), ("torch/a.py", 1, "softmax", "torch"))
    b = frames(("p.py", 11, "step"), ("p.py", 30, "fast"), ("torch/b.py", 1, "gelu", "torch"))
    found = deviation(a, b)
    assert found.common_a == a[0] and found.common_b == b[0] and found.is_branch


def test_nothing_in_common() -> None:
    a = frames(("hf.py", 12, "step"), ("torch/a.py", 1, "softmax", "torch"))
    b = frames(("lean.py", 9, "step"), ("torch/b.py", 1, "gelu", "torch"))
    assert find_deviation(a, b) is None
    assert find_deviation(a, ()) is None
    assert find_deviation((), ()) is None


def test_the_same_path_never_parts() -> None:
    a = frames(("hf.py", 12, "step"), (MODEL, 300, "forward", HF))
    assert find_deviation(a, a) is None


def test_the_same_path_but_for_the_last_line() -> None:
    a, b = (frames(("hf.py", 12, "step"), (MODEL, line, "forward", HF)) for line in (300, 301))
    found = deviation(a, b)
    assert found.is_branch and found.first_a is None and found.first_b is None


def test_a_decorator_of_the_users_function_is_no_library_that_is_entered() -> None:
    wrapper = ("torch/utils/_contextlib.py", 124, "context_decorator.<locals>.decorate_context", "torch")
    a = frames(wrapper, ("hf.py", 12, "step"), (MODEL, 300, "forward", HF), ("act.py", 5, "NewGELU", HF))
    b = frames(wrapper, ("lean.py", 9, "run"), (MODEL, 300, "forward", HF), ("act.py", 9, "GELU", HF))
    assert deviation(a, b).common_a == a[2]
    alone = (frames(wrapper, (file, 12, function)) for file, function in (("hf.py", "step"), ("lean.py", "run")))
    assert find_deviation(*alone) is None
