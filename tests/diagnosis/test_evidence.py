"""Each kind of evidence alone: where call paths part, how inputs lie, what a line calls, which settings differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from diagnosis_builders import costs, frames, region_of, sides_of
from diagnosis_torch import draw, record
from joulediff.diagnosis.comparison import costliest, to_place
from joulediff.diagnosis.evidence.deviation import Deviation, find_deviation
from joulediff.diagnosis.evidence.layout import find_differences, find_origin
from joulediff.diagnosis.evidence.recorded_settings import config_place, differing_config, differing_settings, set_place
from joulediff.diagnosis.evidence.source_calls import call_behind, calls_in
from joulediff.model.place import Place
from joulediff.model.run import Run, SourceText
from rewrites.programs import record_step
from run_builders import RunBuilder

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
    """Return how what two calls of `tanh` read differs."""
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


@pytest.mark.parametrize(
    ("op", "line", "call"),
    [
        ("clone", "x = x.transpose(1, 2).contiguous().view(2, 3)", "contiguous"),
        ("clone", "k = k.repeat_interleave(4, dim=1)", "repeat_interleave"),
        ("clone", "y = y.reshape(a, b)", "reshape"),
        ("_to_copy", "x = x.float()", "float"),
        ("_to_copy", "return x.to(torch.float64)", "to"),
        ("cat", "out = torch.stack(parts)", "stack"),
        ("index_select", "v = v.repeat_interleave(n)", "repeat_interleave"),
        ("_local_scalar_dense", "if loss.item() > 3:", "item"),
        ("_local_scalar_dense", "total += float(loss)", "float"),
        ("constant_pad_nd", "x = F.pad(x, (0, 1))", "pad"),
        ("native_layer_norm", "return F.layer_norm(x, s)", "layer_norm"),
        ("gelu", "x = F.gelu(x)", "gelu"),
        ("clone", "x = f(y)", "clone"),
        ("_softmax", "x = attention(q, k)", "softmax"),
        ("_local_scalar_dense", "x = y", "item"),
    ],
)
def test_the_call_behind_an_operator(op: str, line: str, call: str) -> None:
    made = RunBuilder()
    at = made.frame("p.py", 7, "step")
    number = made.op(f"aten::{op}", frame=at)
    made.sources.append(SourceText("p.py", 6, f"def step():\n    {line}\n"))
    run = made.build()
    assert call_behind(run, number, run.frames[at]) == call


def test_without_the_line_the_operator_has_its_own_name() -> None:
    made = RunBuilder()
    made.op("aten::_softmax")
    made.op("aten::_local_scalar_dense")
    run = made.build()
    assert call_behind(run, 0, None) == "softmax"
    assert call_behind(run, 1, None) == "item"


def test_a_line_that_is_a_part_of_a_statement_is_read_as_text() -> None:
    assert calls_in("torch.cat([a, b.float(),") == ["cat", "float"]
    assert set(calls_in("y = f(x)(z).view(-1)")) == {"f", "view"}


def test_a_place_has_its_line_where_the_run_holds_it() -> None:
    made = RunBuilder()
    at = made.frame("p.py", 7, "step")
    made.sources.append(SourceText("p.py", 6, "def step():\n    return x\n"))
    run = made.build()
    assert to_place(run, run.frames[at]) == Place("p.py", 7, "step", "return x")
    assert run.line_text("p.py", 8) is None and run.line_text("q.py", 7) is None
    assert to_place(run, None) is None


def test_settings_that_a_program_chooses() -> None:
    a = {"torch.num_threads": 1, "host.cpu": "x", "package.torch": "1", "model.m.training": True, "same": 3}
    b = {"torch.num_threads": 2, "host.cpu": "y", "package.torch": "2", "model.m.training": False, "same": 3}
    more = {"env.CUBLAS_WORKSPACE_CONFIG": ":16:8", "device.cuda:0.name": "H200", "torch.version.cuda": "12"}
    assert differing_settings(a, {**b, **more}) == {
        "torch.num_threads": (1, 2),
        "env.CUBLAS_WORKSPACE_CONFIG": (None, ":16:8"),
    }


def test_the_grad_mode_is_no_setting() -> None:
    a = {"torch.grad_enabled": True, "torch.inference_mode": False}
    assert differing_settings(a, {"torch.grad_enabled": False, "torch.inference_mode": True}) == {}


def run_with(**facts: Any) -> Run:
    return RunBuilder().build(**facts)


def test_entries_of_a_models_configuration_are_told_by_their_own_names() -> None:
    a = run_with(settings={"model.m.config.use_cache": True, "model.m.config.n": 1, "model.m.training": True})
    b = run_with(settings={"model.net.config.use_cache": False, "model.net.config.n": 1})
    assert differing_config(a, b) == {"use_cache": (True, False)}


@pytest.mark.parametrize(
    "note", ["_name_or_path", "_commit_hash", "_use_default_values", "_class_name", "_diffusers_version"]
)
def test_notes_in_a_configuration_about_where_it_came_from_are_no_difference(note: str) -> None:
    a = run_with(settings={f"model.m.config.{note}": "gpt2", "model.m.config._attn_implementation": "eager"})
    b = run_with(settings={f"model.m.config.{note}": "other", "model.m.config._attn_implementation": "sdpa"})
    assert differing_config(a, b) == {"_attn_implementation": ("eager", "sdpa")}
    assert differing_config(a, run_with(settings={"model.m.config._attn_implementation": "eager"})) == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("p.py:3:build", Place("p.py", 3, "build", "x = 1")),
        ("C:\\code\\p.py:12:<module>", Place("C:\\code\\p.py", 12, "<module>")),
        ("odd:name.py:3:f", Place("odd:name.py", 3, "f")),
        ("nothing", None),
        ("p.py:x", None),
    ],
)
def test_where_a_setting_is_set(text: str, place: Place | None) -> None:
    run = run_with(set_places={"torch.x": text}, sources=(SourceText("p.py", 3, "x = 1\n"),))
    assert set_place(run, "torch.x") == place
    assert set_place(run, "torch.y") is None


def test_where_an_entry_of_a_configuration_is_set() -> None:
    run = run_with(set_places={"model.m.config.use_cache": "p.py:3:build", "torch.x": "q.py:1:f"})
    assert config_place(run, "use_cache") == Place("p.py", 3, "build")
    assert config_place(run, "other") is None


def test_the_costliest_operator_and_those_without_kernels() -> None:
    def step() -> torch.Tensor:
        return torch.tanh(X @ W.t())

    sides = sides_of(*(record(step, costs({"mm": 5.0})) for _ in range(2)))
    run = sides.a
    assert costliest(sides, "a", range(len(run.ops))) == op_named(run, "mm")
    assert costliest(sides, "a", [op_named(run, "t")]) == op_named(run, "t")
    assert costliest(sides, "a", []) is None


def test_runnable_operators_reach_from_shared_tensors_to_the_outputs() -> None:
    def copied() -> torch.Tensor:
        return torch.softmax(X.t().contiguous(), -1) @ W[:16]

    def plain() -> torch.Tensor:
        return torch.softmax(X.t(), -1) @ W[:16]

    sides = sides_of(record(copied, costs({})), record(plain, costs({})))
    region = region_of(sides, "_softmax")
    names = [sides.a.ops[op].name for op in sides.runnable_ops(region, "a")]
    assert names == ["aten::t", "aten::clone", "aten::_softmax"]
    assert [sides.b.ops[op].name for op in sides.runnable_ops(region, "b")] == ["aten::t", "aten::_softmax"]
    copy = region_of(sides, "clone", "movement")
    assert region in sides.readers_of(copy.a, "a")
