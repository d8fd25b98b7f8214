"""Recorded operators, run in order, give the results of the step; tensors change their form, not their values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from interpreter import SEED, seed_all, to_run
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.replay.bursts import as_recorded
from joulediff.frameworks.torch.replay.inputs import KeptInputs, collect_inputs
from joulediff.frameworks.torch.trials.sequence import OpSequence, Tensors, differ, kernel_names, to_form
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Form, Run
from rewrites.programs import make_program, write_step

Step = Callable[[], Any]


def seed() -> None:
    seed_all(SEED)


def captured(step: Step) -> Run:
    return to_run(capture_step(step, begin=seed))


def given_to(run: Run, step: Step, sequence: OpSequence, ops: range) -> Tensors:
    """Return what a sequence needs, as the step has it when its operators are called."""
    found = collect_inputs(step, run, ops, begin=seed)
    tensors: Tensors = {}
    for op in ops:
        kept = found[op]
        assert isinstance(kept, KeptInputs)
        for value, tensor in zip(run.ops[op].inputs, kept.tensors(), strict=True):
            tensors.setdefault(value, tensor)
    return {value: tensors[value] for value in sequence.needed}


def outputs(run: Run) -> list[int]:
    """Return the values that a step returned, in the order of its tuple."""
    named = {value.name: value.id for value in run.values if (value.name or "").startswith("output")}
    return [named[name] for name in sorted(named)]


def check(step: Step) -> Run:
    """Run all operators of a step as one sequence: its outputs are those of the step."""
    run = captured(step)
    sequence = OpSequence(run, range(len(run.ops)))
    given = given_to(run, step, sequence, range(len(run.ops)))
    assert all(run.values[value].producer is None for value in sequence.needed)
    seed()
    expected = step()
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    with as_recorded():
        known = sequence(given)
    found = [sequence.find(known, value) for value in outputs(run)]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine is not None
        assert torch.equal(mine, theirs)
    return run


X = torch.linspace(-2, 2, 24).reshape(4, 6)
FLAGS = torch.tensor([True, False, True, False])


def write_in_place() -> torch.Tensor:
    x = X.clone()
    x.add_(1).mul_(2)
    return x + 1


def write_through_views() -> torch.Tensor:
    x = X.clone()
    first, rest = x[0], x.t()[2:]
    first.zero_()
    x.mul_(3)
    rest[1].add_(5)
    return x.sum() + first.sum() + rest.prod()


def several_outputs() -> tuple[torch.Tensor, ...]:
    values, places = X.max(dim=1)
    a, b, c = X.split(2, dim=1)
    return values + a[:, 0], places, b * c


def lists_of_tensors() -> torch.Tensor:
    parts = [X[:, :2], X[:, 2:] * 2, X.clone()]
    torch._foreach_mul_(parts[1:], 3.0)
    torch._foreach_add_(parts[1:], [torch.ones(4, 4), torch.ones(4, 6)])
    return torch.cat([torch.stack(list(parts[1].unbind(0))), *parts], dim=1)


def into_given_memory() -> torch.Tensor:
    found = torch.empty(4, 6)
    torch.mul(X, 2, out=found)
    return found - 1


def with_a_mask() -> torch.Tensor:
    x = X.clone()
    x[FLAGS] = 0.5
    return x.masked_fill(x > 1, -math.inf).logsumexp(-1)


def random_numbers() -> torch.Tensor:
    return functional.dropout(X, 0.5) + torch.rand(4, 6)


@pytest.mark.parametrize(
    "step",
    [write_in_place, write_through_views, several_outputs, lists_of_tensors, into_given_memory, with_a_mask],
    ids=lambda step: step.__name__,
)
def test_a_whole_step_gives_its_outputs(step: Step) -> None:
    check(step)


def test_random_numbers_are_drawn_as_the_step_draws_them() -> None:
    run = captured(random_numbers)
    sequence = OpSequence(run, range(len(run.ops)))
    given = given_to(run, random_numbers, sequence, range(len(run.ops)))
    seed()
    expected = random_numbers()
    seed()
    known = sequence(given)
    assert torch.equal(sequence.find(known, outputs(run)[0]), expected)


@pytest.mark.parametrize("number", range(8))
def test_random_programs_give_their_outputs(number: int) -> None:
    chance = random.Random(number)
    check(write_step(make_program(chance, 14), chance, no_ops=0.3))


def test_a_training_step_gives_its_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def step() -> torch.Tensor:
        model.load_state_dict(before)
        model.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return loss.detach()

    check(step)


def test_a_part_needs_the_outputs_of_other_operators() -> None:
    def step() -> torch.Tensor:
        y = X * 2
        z = y + 1
        return z.relu()

    run = captured(step)
    sequence = OpSequence(run, (1, 2))
    assert sequence.needed == run.ops[0].outputs
    known = sequence({run.ops[0].outputs[0]: torch.full((4, 6), -3.0)})
    found = sequence.find(known, outputs(run)[0])
    assert found is not None and not found.any()
    assert sequence.find(known, run.ops[0].inputs[0]) is None
    assert sequence.written == set()


def test_given_values_that_are_written_to_are_reported() -> None:
    state, scale = torch.ones(3), torch.tensor(2.0)

    def step() -> torch.Tensor:
        return state.mul_(scale) + 1

    run = captured(step)
    sequence = OpSequence(run, range(len(run.ops)))
    assert [run.values[value].name for value in sequence.needed] == ["state", "scale"]
    assert [run.values[value].name for value in sequence.written] == ["state"]
    own = torch.ones(3)
    known = sequence(dict(zip(sequence.needed, (own, scale), strict=True)))
    assert own.tolist() == [2.0] * 3
    assert sequence.find(known, outputs(run)[0]).tolist() == [3.0] * 3


def test_an_operator_that_cannot_be_called_is_refused() -> None:
    run = captured(lambda: X + 1)
    for changes in ({"name": "aten::from_file"}, {"name": "nobody::knows"}, {"arguments": "{"}):
        broken = replace(run, ops=(replace(run.ops[0], **changes),))
        with pytest.raises(JoulediffError):
            OpSequence(broken, (0,))


def form(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float32") -> Form:
    return Form(shape, strides, dtype)


@pytest.mark.parametrize("strides", [(6, 1), (1, 4), (8, 1), (16, 2)])
def test_strides_change_and_values_stay(strides: tuple[int, int]) -> None:
    found = to_form(X, form((4, 6), strides))
    assert found.stride() == strides
    assert torch.equal(found, X)
    assert (found.data_ptr() == X.data_ptr()) == (strides == X.stride()), "only what has the form already is itself"


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (torch.arange(6.0).expand(4, 6), (0, 1)),
        (torch.arange(4.0)[:, None].expand(4, 6), (1, 0)),
        (torch.arange(4.0)[:, None].expand(4, 6).contiguous(), (1, 0)),
        (torch.tensor(3.0).expand(4, 6), (0, 0)),
        (torch.arange(6.0).expand(4, 6).contiguous(), (0, 2)),
    ],
)
def test_an_expanded_form_keeps_the_values(tensor: torch.Tensor, strides: tuple[int, int]) -> None:
    found = to_form(tensor, form((4, 6), strides))
    assert found.stride() == strides
    assert torch.equal(found, tensor)


def test_types_change() -> None:
    found = to_form(X, form((4, 6), (1, 4), "float64"))
    assert (found.dtype, found.stride()) == (torch.float64, (1, 4))
    assert torch.equal(found, X.double())
    for name in ("float99", "nn", "Tensor"):
        with pytest.raises(JoulediffError, match=f"no type {name}"):
            to_form(X, form((4, 6), (6, 1), name))


def test_another_shape_takes_dense_memory_as_it_lies() -> None:
    permuted = X.reshape(2, 2, 6).permute(0, 2, 1)
    found = to_form(permuted, form((4, 6), (6, 1)))
    assert torch.equal(found, X), "a view of the same memory, as flatten(0, 1) before the permute is"
    back = to_form(X, form((2, 6, 2), (12, 1, 6)))
    assert torch.equal(back, permuted)
    assert back.stride() == permuted.stride()


def test_another_shape_of_scattered_memory_goes_by_order() -> None:
    found = to_form(X[:, ::2], form((2, 6), (6, 1)))
    assert torch.equal(found, X[:, ::2].reshape(2, 6))
    gaps = to_form(X, form((2, 12), (24, 2)))
    assert torch.equal(gaps, X.reshape(2, 12))


def test_another_number_of_elements_is_refused() -> None:
    with pytest.raises(JoulediffError, match="another number of elements"):
        to_form(X, form((5, 6), (6, 1)))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.0], [3.0, 4.5], 0.1),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1e-9], math.inf),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0, math.inf], [1.0, math.inf], 0.0),
        ([1.0, math.inf], [1.0, -math.inf], math.inf),
        ([1.0, math.inf], [1.0, math.nan], math.inf),
        ([1.0, 2.0], [1.0, math.nan], math.inf),
        ([1.0, 2.0], [1.0, 2.0, 3.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_difference_of_tensors(a: list[float], b: list[float], expected: float) -> None:
    assert differ(torch.tensor(a), torch.tensor(b)) == pytest.approx(expected)


def test_shapes_and_types_do_not_part_equal_values() -> None:
    assert differ(X, X.t()) == 0.0
    assert differ(X, X.reshape(2, 12).double()) == 0.0
    assert differ(torch.tensor([1, 0]), torch.tensor([True, False])) == 0.0
    assert differ(X, X + 1) > 0.1


def complexes(*values: complex) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.complex64)


SAME = [
    (X, X.flip(0)),
    (X, X[:, torch.tensor([5, 3, 0, 1, 2, 4])]),
    (torch.tensor([1.0, math.inf, 2.0, math.nan]), torch.tensor([math.nan, 2.0, math.inf, 1.0])),
    (X, functional.pad(X, (1, 2, 3, 0))),
    (functional.pad(X, (0, 1)), functional.pad(X.t(), (2, 0))),
    (torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0])),
    (complexes(1, 2, -3), torch.tensor([1.0, 2.0, -3.0])),
    (torch.tensor([1.0, 2.0, -3.0]), complexes(-3, 1, 2)),
    (complexes(1 + 2j, 1 - 2j, 5), complexes(5, 1 - 2j, 1 + 2j)),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_order_padding_and_imaginary_parts_of_nothing_do_not_part_equal_values(
    a: torch.Tensor, b: torch.Tensor
) -> None:
    assert differ(a, b) == differ(b, a) == 0.0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0, 2.0])),
        (functional.pad(X, (0, 1)), functional.pad(X + 1, (2, 0))),
        (complexes(1 + 2j), complexes(1 - 2j)),
        (complexes(1 + 2j), complexes(2 + 1j)),
        (complexes(1 + 2j, 3), torch.tensor([1.0, 2.0, 3.0])),
        (complexes(1 + 2j), torch.tensor([1.0])),
    ],
)
def test_other_values_differ_in_any_order(a: torch.Tensor, b: torch.Tensor) -> None:
    assert differ(a, b) > 0.1


def test_tensors_of_one_distribution_are_not_equal_for_being_sorted() -> None:
    """Sorted they lie close to each other. Two results that are not in the same order must lie much closer."""
    a, b = (torch.randn(100_000, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    ordered = float((a.sort().values - b.sort().values).norm() / a.norm())
    assert ordered < 0.01 < 1.0 < differ(a, b)
    assert differ(a, b.reshape(100, 1000)) == pytest.approx(ordered, rel=1e-3), "there is no other order to go by"


def test_rounding_in_another_order_may_be_larger_where_there_are_few_elements() -> None:
    """Eigenvalues of two solvers; of many more elements, other ones may lie as near to each other."""
    values = torch.randn(512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert differ(values, (values * (1 + 5e-4)).flip(0)) == pytest.approx(5e-4, rel=0.01)
    many = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert differ(many, (many * (1 + 5e-4)).flip(0)) > 1.0


def test_rounding_in_the_same_order_is_reported_as_it_is() -> None:
    close = X.double() * (1 + 1e-6)
    assert differ(X, close) == pytest.approx(1e-6, rel=0.1)
    assert differ(X, close.flip(1)) == pytest.approx(1e-6, rel=0.1)
    pair = torch.tensor([1.0, 1.00001], dtype=torch.float64)
    assert differ(pair, pair.flip(0)) == pytest.approx(1e-5, rel=0.1), "close enough in the order it has"


def test_real_numbers_as_complex_ones_keep_their_order() -> None:
    assert differ(complexes(1, 2, -3), torch.tensor([1.01, 2.02, -3.03])) == pytest.approx(0.01, rel=1e-3)


def test_kernels_of_the_host_are_operators_that_call_no_others() -> None:
    norm = nn.LayerNorm(6)
    with torch.no_grad():
        names = kernel_names(lambda: torch.relu(norm(X)[:2].tanh().tanh()), "cpu")
    assert names[-2:] == ("aten::tanh", "aten::clamp_min"), "a repeated one once"
    assert not {"aten::layer_norm", "aten::relu", "aten::empty", "aten::as_strided"} & set(names)
    assert kernel_names(lambda: None, "cpu") == ()
    calls: list[int] = []
    kernel_names(lambda: calls.append(1), "cpu")
    assert len(calls) == 2, "the first call may compile or choose"
