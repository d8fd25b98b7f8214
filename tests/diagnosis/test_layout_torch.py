"""Layouts of PyTorch tensors: which inputs of an operator differ, and where a layout began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from diagnosis_torch import draw
from joulediff.diagnosis.evidence.layout import find_differences, find_origin
from joulediff.model.run import Run
from rewrites.programs import record_step
from run_builders import RunBuilder

X, W = draw(16, 32), draw(32, 32, seed=1)
IMAGE, KERNELS = draw(2, 4, 6, 6), draw(8, 4, 3, 3, seed=1)


def op_named(run: Run, name: str) -> int:
    return next(op.id for op in run.ops if op.name == f"aten::{name}")


def recorded(step: Any) -> Run:
    with torch.no_grad():
        return record_step(step)


def test_a_float64_tensor_that_the_step_was_given() -> None:
    wide = X.double()
    a, b = recorded(lambda: torch.tanh(wide * 2).exp()), recorded(lambda: torch.tanh(X * 2).exp())
    (found,) = find_differences(a, op_named(a, "exp"), b, op_named(b, "exp"))
    assert (found.aspect, found.text_a, found.text_b) == ("dtype", "float64", "float32")
    origin = find_origin(a, op_named(a, "exp"), found)
    assert origin.given == "wide"
    assert a.ops[origin.op].name == "aten::mul"


def test_a_cast_within_the_step_is_where_its_type_began() -> None:
    a, b = recorded(lambda: torch.tanh(X.double()).exp()), recorded(lambda: torch.tanh(X).exp())
    (found,) = find_differences(a, op_named(a, "exp"), b, op_named(b, "exp"))
    origin = find_origin(a, op_named(a, "exp"), found)
    assert origin.given is None and a.ops[origin.op].name == "aten::_to_copy"


def test_a_permute_within_the_step_is_where_strides_began() -> None:
    cube = draw(4, 6, 8)
    a = recorded(lambda: torch.softmax(cube.permute(2, 1, 0), -1))
    b = recorded(lambda: torch.softmax(cube.permute(2, 1, 0).contiguous(), -1))
    op_a, op_b = op_named(a, "_softmax"), op_named(b, "_softmax")
    (found,) = find_differences(a, op_a, b, op_b)
    assert found.aspect == "strides"
    assert "strides 1,8,48" in found.text_a and "contiguous" in found.text_b
    assert a.ops[find_origin(a, op_a, found).op].name == "aten::permute"
    assert b.ops[find_origin(b, op_b, found).op].name == "aten::clone"


def test_channels_last_is_a_memory_format_and_comes_from_what_was_given() -> None:
    laid = IMAGE.to(memory_format=torch.channels_last)
    a = recorded(lambda: torch.relu(torch.relu(IMAGE) + 1))
    b = recorded(lambda: torch.relu(torch.relu(laid) + 1))
    op_a, op_b = op_named(a, "add") + 1, op_named(b, "add") + 1
    (found,) = find_differences(a, op_a, b, op_b)
    assert (found.aspect, found.text_a, found.text_b) == ("memory_format", "contiguous", "channels_last")
    assert find_origin(a, op_a, found).given == "IMAGE"
    assert find_origin(b, op_b, found).given == "laid"


def test_alignment_and_where_it_began() -> None:
    memory = torch.zeros(17)
    memory[1:] = draw(16)
    a, b = recorded(lambda: torch.tanh(memory[1:])), recorded(lambda: torch.tanh(memory[1:].clone()))
    op = op_named(a, "tanh")
    (found,) = find_differences(a, op, b, op_named(b, "tanh"))
    assert (found.aspect, found.text_a, found.text_b) == ("alignment", "not aligned to 16 bytes", "aligned")
    assert a.ops[find_origin(a, op, found).op].name == "aten::slice"


def test_types_come_before_strides() -> None:
    laid = W.double().t().contiguous().t()
    a, b = recorded(lambda: torch.mm(X.double(), laid)), recorded(lambda: torch.mm(X, W))
    found = find_differences(a, op_named(a, "mm"), b, op_named(b, "mm"))
    assert [each.aspect for each in found] == ["dtype", "dtype", "strides"]


WIDE = draw(16, 64)
PART, THIN = WIDE[:, :32], WIDE[:, :1].expand(16, 32)


def differences(a: Any, b: Any) -> list[Any]:
    """Return how the inputs of two calls of `tanh` differ."""
    left, right = recorded(a), recorded(b)
    return find_differences(left, op_named(left, "tanh"), right, op_named(right, "tanh"))


def test_a_part_of_a_larger_tensor_lies_in_other_strides_than_a_dense_one() -> None:
    a, b = recorded(lambda: torch.tanh(WIDE[:, :32])), recorded(lambda: torch.tanh(WIDE[:, :32].contiguous()))
    (found,) = find_differences(a, op_named(a, "tanh"), b, op_named(b, "tanh"))
    assert (found.aspect, found.text_a, found.text_b) == ("strides", "16x32, strides 64,1", "16x32, contiguous")
    origin = find_origin(a, op_named(a, "tanh"), found)
    assert (a.ops[origin.op].name, origin.given) == ("aten::slice", None)
    assert b.ops[find_origin(b, op_named(b, "tanh"), found).op].name == "aten::clone"


def test_gaps_that_the_step_was_given() -> None:
    a, b = recorded(lambda: torch.tanh(PART.detach())), recorded(lambda: torch.tanh(X))
    (found,) = find_differences(a, op_named(a, "tanh"), b, op_named(b, "tanh"))
    assert found.aspect == "strides"
    assert find_origin(a, op_named(a, "tanh"), found).given == "PART"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (lambda: torch.tanh(THIN), lambda: torch.tanh(X)),
        (lambda: torch.tanh(WIDE[:, :32]), lambda: torch.tanh(draw(16, 128)[:, :32])),
        (lambda: torch.tanh(WIDE[:8]), lambda: torch.tanh(draw(8, 64))),
        (lambda: torch.tanh(WIDE[3:4, :32]), lambda: torch.tanh(X[:1])),
        (lambda: torch.tanh(WIDE[:, :0]), lambda: torch.tanh(WIDE[:0])),
    ],
    ids=["expanded", "both are parts", "whole rows", "one row", "empty"],
)
def test_what_leaves_out_no_memory_has_no_gaps(a: Any, b: Any) -> None:
    assert differences(a, b) == []


def test_gaps_in_an_image_are_no_memory_format() -> None:
    two = IMAGE[:, :2].contiguous()
    (found,) = differences(lambda: torch.tanh(IMAGE[:, :2]), lambda: torch.tanh(two))
    assert (found.aspect, found.text_a) == ("strides", "2x2x6x6, strides 144,36,6,1")
    assert found.text_b == "2x2x6x6, contiguous"
    last = two.to(memory_format=torch.channels_last)
    (found,) = differences(lambda: torch.tanh(IMAGE[:, :2]), lambda: torch.tanh(last))
    assert (found.aspect, found.text_a, found.text_b) == ("memory_format", "contiguous", "channels_last")


def test_dimensions_of_length_one_have_no_order() -> None:
    made = RunBuilder()
    made.op("aten::tanh", inputs=[made.value((4, 1, 8))])
    run = made.build()
    odd = replace(run, values=(replace(run.values[0], strides=(8, 999, 1)),))
    assert find_differences(run, 0, odd, 0) == []


def test_equal_inputs_do_not_differ() -> None:
    run = recorded(lambda: torch.mm(X, W))
    assert find_differences(run, op_named(run, "mm"), run, op_named(run, "mm")) == []
