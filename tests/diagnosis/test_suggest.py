"""The suggestion of a finding, and the fixes that can be applied from outside."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from diagnosis_builders import costs, draw, record
from diff_builders import finding, gpt2_diff
from invented import Tensor, tanh
from joulediff.diagnosis.compare_programs import _compare, confirm_findings
from joulediff.diagnosis.suggest import (
    find_fix,
    suggest_call,
    suggest_configuration,
    suggest_implementation,
    suggest_layout,
    suggest_leaving_out,
    suggest_less_work,
    suggest_no_copy,
    suggest_no_wait,
    suggest_one_call,
    suggest_replacing,
    suggest_search,
    suggest_setting,
    suggest_sleep,
)
from joulediff.model.finding import Cause
from joulediff.model.pair import Pair
from joulediff.model.place import Place
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Setting

HERE = Place("hf.py", 12, "step", "y = model(x)")
THERE = Place("lean.py", 9, "step", "y = fast(x)")
LINE = "hf.py:12: `y = model(x)`"


def cause(type_: Any, key: str | None, mine: Setting, other: Setting) -> Cause:
    return Cause(type_, key, mine, other, HERE, THERE)


# (function, cause, words of the text beside the line)
SAID: dict[str, tuple[Any, Cause, tuple[str, ...]]] = {
    "less work": (
        suggest_less_work,
        cause("code", "sample", "sample", None),
        ("Do the work of sample", "in less time, as the other side does (lean.py:9", "keep its result"),
    ),
    "setting": (
        suggest_setting,
        cause("setting", "torch.backends.cuda.matmul.allow_tf32", False, True),
        ("Set torch.backends.cuda.matmul.allow_tf32 to True", "it is False"),
    ),
    "word": (suggest_setting, cause("setting", "torch.x", "highest", "high"), ("'high'", "'highest'")),
    "dtype": (
        partial(suggest_layout, op="aten::convolution"),
        cause("layout", "dtype", "float64", "float32"),
        ("float32 instead of float64",),
    ),
    "channels_last": (
        partial(suggest_layout, op="aten::convolution"),
        cause("layout", "memory_format", "contiguous", "channels_last"),
        ("torch.channels_last", "contiguous"),
    ),
    "contiguous": (
        partial(suggest_layout, op="aten::convolution"),
        cause("layout", "memory_format", "channels_last", "contiguous"),
        ("torch.contiguous_format",),
    ),
    "strides": (
        partial(suggest_layout, op="aten::convolution"),
        cause("layout", "strides", "2x3, strides 1,2", "2x3, contiguous"),
        ("2x3, contiguous instead of 2x3, strides 1,2", "lean.py:9"),
    ),
    "alignment": (
        partial(suggest_layout, op="aten::convolution"),
        cause("layout", "alignment", "not aligned", "aligned"),
        ("16 bytes",),
    ),
    "redundancy": (
        suggest_leaving_out,
        cause("redundancy", "contiguous", "contiguous", None),
        ("Leave out contiguous",),
    ),
    "host": (suggest_no_wait, cause("host", "item", 200, 1), ("item", "Do not wait")),
    "grad": (
        suggest_configuration,
        cause("call_path", "torch.is_grad_enabled", True, False),
        ("torch.no_grad()", "torch.inference_mode()"),
    ),
    "config": (
        suggest_configuration,
        cause("call_path", "config._attn_implementation", "eager", "sdpa"),
        ("Set attn_implementation to 'sdpa'", "it is 'eager'"),
    ),
    "calls": (suggest_call, cause("call_path", "pow", "pow", "gelu"), ("Call gelu instead of pow", "lean.py:9")),
    "alike calls": (suggest_call, cause("call_path", "mm", "mm", "mm"), ("Write the call", "lean.py:9")),
    "variable": (
        suggest_setting,
        cause("call_path", "need_weights", True, False),
        ("Set need_weights to False", "it is True"),
    ),
    "unknown": (suggest_search, cause("kernel", None, "gemm_a", "gemm_b"), ("No cause was found",)),
}


@pytest.mark.parametrize("case", SAID)
@pytest.mark.parametrize("expensive", ["a", "b"])
def test_a_suggestion_names_the_line_and_the_value(case: str, expensive: Any) -> None:
    suggest, found, words = SAID[case]
    if expensive == "b":
        found = Cause(found.type, found.key, found.value_b, found.value_a, found.location_b, found.location_a)
    text = suggest(found, expensive)
    assert all(word in text for word in (*words, LINE)), text
    assert text.endswith(".") or "`" in text


def test_without_a_line_it_says_so() -> None:
    nowhere = replace(cause("kernel", None, "x", "y"), location_a=None)
    assert "not known" in suggest_search(nowhere, "a")


def test_without_a_cause_the_functions_the_kernels_and_what_to_look_at_are_named() -> None:
    found = cause("kernel", None, "gemm_a", "gemm_b")
    text = suggest_search(found, "a", functions=Pair(HERE, THERE), kernels=Pair("gemm_a", "g" * 90), look=("x", "y"))
    assert "Compare step (hf.py:12) with step (lean.py:9): A runs the kernel gemm_a, B runs ggg" in text
    assert text.endswith("… . Look at x and y.".replace("… ", "…")) and len(text) < 260
    inside = Place("lib.py", 3, "forward")
    same = suggest_search(found, "a", functions=Pair(inside, inside), kernels=Pair("gemm", "gemm"))
    assert ", in forward (lib.py:3): both run the kernel gemm. Look at the arguments, shapes" in same


def test_the_same_code_in_two_files_is_not_suggested() -> None:
    there = replace(HERE, file="lean.py", line=8)
    found = Cause("call_path", "mm", "mm", "mm", HERE, there)
    for suggest in (suggest_call, suggest_implementation):
        assert "is the same on both sides" in suggest(found, "a") and "lean.py" not in suggest(found, "a")


def test_a_call_inside_a_library_is_named_with_its_function() -> None:
    inside = Place("lib/model.py", 7, "Model.forward", "x = act(x)")
    text = suggest_call(cause("call_path", "Slow", "Slow", "Fast"), "a", inside=inside)
    assert text.startswith("Call Fast instead of Slow in Model.forward (lib/model.py:7), which hf.py:12")


def test_long_code_is_cut() -> None:
    line = replace(HERE, text="y = model(" + "x, " * 99)
    assert len(suggest_setting(replace(cause("setting", "k", 1, 2), location_a=line), "a")) < 140


def test_several_operators_are_replaced_by_one_call() -> None:
    found = cause("call_path", "tanh", "tanh", "gelu")
    text = suggest_one_call(found, "a", count=8)
    assert text.startswith("Call gelu in place of 8 operators (") and "tanh" not in text.partition("(")[0]


def test_the_same_call_in_the_same_line_is_not_suggested() -> None:
    """Both programs share padding.py:8 and give it different inputs."""
    line = Place("padding.py", 8, "step", "y = model(x)")
    found = Cause("call_path", "mm", "mm", "mm", line, line)
    text = suggest_call(found, "a", difference="mm reads 8x512 float32 in A and 8x64 float32 in B")
    assert text == (
        "The call (padding.py:8: `y = model(x)`) is the same on both sides: "
        "mm reads 8x512 float32 in A and 8x64 float32 in B."
    )
    assert suggest_call(found, "a").endswith("is the same on both sides: its arguments or inputs differ.")
    assert "as the other side does" not in suggest_call(replace(found, value_b="addmm"), "a")


def test_a_list_of_operators_is_not_called() -> None:
    found = cause("call_path", "m", "m", "_fused_rms_norm, mm, mul, 28 more")
    text = suggest_implementation(found, "a")
    assert text == (
        "Use the implementation at lean.py:9: `y = fast(x)` of the other program instead of hf.py:12: `y = model(x)`."
    )
    back = suggest_replacing(found, "b")
    assert back.startswith("Call m instead of the operators at lean.py:9") and "_fused_rms_norm" not in back
    assert "_fused_rms_norm" not in suggest_implementation(replace(found, location_b=None), "a")
    same = replace(found, location_b=found.location_a)
    assert "is the same on both sides" in suggest_implementation(same, "a")


def test_a_copy_and_a_busy_wait_have_their_own_sentences() -> None:
    copy = cause("layout", "contiguous", "2x3, contiguous", "2x3, strides 1,2")
    assert suggest_no_copy(copy, "a").startswith(f"Leave out contiguous() ({LINE})")
    assert "cudaDeviceScheduleBlockingSync" in suggest_sleep(cause("setting", "device.x.schedule", "spin", "auto"), "a")


def test_without_a_place_nothing_is_made_up() -> None:
    assert "None" not in suggest_leaving_out(Cause("redundancy", "clone", "clone", None, None, None), "a")


@pytest.mark.parametrize(
    ("kind", "found", "fix"),
    [
        ("misconfiguration", cause("setting", "torch.x", False, True), {"torch.x": True}),
        ("misconfiguration", cause("call_path", "config.use_cache", True, False), {"config.use_cache": False}),
        (
            "misconfiguration",
            cause("call_path", "torch.is_grad_enabled", True, False),
            {"torch.grad_enabled": False},
        ),
        ("misconfiguration", cause("call_path", "OMP_NUM_THREADS", "1", "4"), {"env.OMP_NUM_THREADS": "4"}),
        ("misconfiguration", cause("setting", "torch.x and torch.y", "1 and 2", "3 and 4"), None),
        ("misconfiguration", cause("layout", "dtype", "float64", "float32"), None),
        ("api_misuse", cause("call_path", "pow", "pow", "gelu"), None),
        ("redundant", cause("redundancy", "clone", "clone", None), None),
        ("host", cause("host", "item", 3, 1), None),
        ("unknown", cause("kernel", None, "x", "y"), None),
    ],
)
def test_which_fixes_need_no_change_of_code(kind: Any, found: Cause, fix: dict[str, Setting] | None) -> None:
    assert find_fix(finding(1, 2.0, 1.0, kind=kind, cause=found, expensive="a")) == fix


def test_the_fix_has_the_cheap_sides_value_whichever_that_is() -> None:
    found = cause("setting", "torch.x", 1, 2)
    assert find_fix(finding(1, 1.0, 2.0, cause=found, expensive="b")) == {"torch.x": 1}


def test_without_the_program_a_finding_stays_as_it_is() -> None:
    diff = gpt2_diff()
    assert confirm_findings(diff, {}, listener=ProgressListener()) == diff


def test_the_whole_program_before_and_after() -> None:
    x = draw(16, 32)

    def step() -> Tensor:
        return tanh(x)

    before, after = record(step, costs({}, 4.0)), record(step, costs({}, 3.0))
    found = _compare("x = 1", before, after)
    assert found.saved_share == pytest.approx(0.25)
    assert found.difference == 0.0 and found.note is None
    assert _compare("x = 1", before, before).note == "within the intervals"
    assert _compare("x = 1", before, replace(after, measurement=None)).note == "the energy of the step is not known"


def test_host_work_that_the_other_side_lacks_has_no_other_line() -> None:
    alone = replace(cause("code", "sample", "sample", None), location_b=None)
    assert suggest_less_work(alone, "a").endswith("in less time, or outside of the step, and keep its result.")
