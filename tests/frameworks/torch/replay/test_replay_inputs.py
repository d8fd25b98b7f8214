"""Inputs of replayed operators: kept as they were, sharing what they shared, or drawn like them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreter import sign, to_run
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.replay.inputs import ALIGNMENT_BYTES, KeptInputs, count_turns, draw_inputs, keep_inputs
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Op, Run
from joulediff.model.signature import Signature

base = torch.arange(4 * 6 * 5 * 3, dtype=torch.float32).reshape(4, 6, 5, 3)
LAYOUTS: dict[str, torch.Tensor] = {
    "plain": base,
    "transposed": base.transpose(1, 3),
    "sliced": base[1:3, ::2, 2:],
    "expanded": base[0, 0].expand(7, 5, 3),
    "channels_last": base.to(memory_format=torch.channels_last),
    "far into its memory": torch.arange(1000.0)[601:700:3],
    "unfolded": torch.arange(20.0).unfold(0, 5, 2),
    "no elements": base[:, 6:],
    "nothing at all": torch.empty(0),
    "one element": base[1, 2, 3, 1],
    "bool": base > 100,
    "int64": base.long()[::2],
    "uint8": torch.arange(200, dtype=torch.uint8)[3:77],
    "half": base.half().transpose(0, 1),
    "bfloat16": base.bfloat16()[:, 1],
    "float8": base.to(torch.float8_e4m3fn),
    "complex": torch.randn(4, 3, dtype=torch.complex64).t(),
    "complex128": torch.randn(9, dtype=torch.complex128)[1::2],
    "parameter": torch.nn.Parameter(torch.randn(3, 4)),
}


def kept(*tensors: torch.Tensor, steady: bool = False) -> KeptInputs:
    return keep_inputs(tensors, [steady] * len(tensors))


def bits(tensor: torch.Tensor) -> list[int]:
    plain = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())  # without odd strides of one element
    return plain.reshape(-1).view(torch.uint8).tolist() if tensor.numel() else []


@pytest.mark.parametrize("steady", [False, True], ids=["copied", "steady"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_inputs_come_back_as_they_were(name: str, steady: bool) -> None:
    tensor = LAYOUTS[name]
    (found,) = kept(tensor, steady=steady).tensors()
    assert (found.shape, found.stride(), found.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert bits(found) == bits(tensor)
    assert not found.requires_grad
    shared = found.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert shared == (steady or not tensor.untyped_storage().nbytes())


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dims=st.permutations(range(4)),
    start=st.integers(0, 300),
    step=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.half, torch.int8, torch.int64, torch.complex64]),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_view_comes_back(
    shape: list[int], dims: list[int], start: int, step: int, dtype: torch.dtype, data: Any
) -> None:
    memory = torch.arange(4**4 * 3 + 301).to(dtype)
    view = memory.as_strided(shape, [step * stride for stride in torch.empty(shape).stride()], start)
    view = view.permute([d for d in dims if d < len(shape)])
    if shape and data.draw(st.booleans()):
        view = view.unsqueeze(0).expand(3, *view.shape)
    found = kept(view)
    (tensor,) = found.tensors()
    assert (tensor.shape, tensor.stride(), bits(tensor)) == (view.shape, view.stride(), bits(view))
    assert tensor.storage_offset() * dtype.itemsize % ALIGNMENT_BYTES == (
        view.storage_offset() * dtype.itemsize % ALIGNMENT_BYTES
    )


def test_memory_that_was_shared_is_shared_once_more() -> None:
    memory = torch.arange(12.0)
    other = torch.zeros(3)
    found = kept(memory[:6], other, memory.view(3, 4).t(), memory.view(torch.int32)[8:])
    first, alone, across, whole = found.tensors()
    assert len(found.buffers) == 2
    first.zero_()
    assert across.tolist() == [[0, 0, 8], [0, 0, 9], [0, 6, 10], [0, 7, 11]]
    across[0, 2] = 0.0
    assert whole.tolist()[0] == 0
    assert alone.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
    assert memory.tolist() == list(range(12))


def test_only_the_part_of_a_storage_that_is_used_is_kept() -> None:
    memory = torch.arange(1 << 20, dtype=torch.uint8)
    found = kept(memory[700_000:700_100])
    assert 100 <= found.size_bytes <= 100 + ALIGNMENT_BYTES


def test_a_copy_does_not_change_with_the_program_and_steady_memory_is_no_copy() -> None:
    weight, x = torch.ones(4), torch.ones(4)
    found = keep_inputs([weight, x, x[1:]], [True, False, True])
    weight.zero_()
    x.zero_()
    assert [tensor.tolist() for tensor in found.tensors()] == [[0.0] * 4, [1.0] * 4, [1.0] * 3]
    assert found.written([0]) == {0}
    assert found.written([1, 2]) == {1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, dtype=torch.complex64).conj(),
        lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
        lambda: torch.eye(3).to_sparse(),
    ],
    ids=["conjugated", "negated", "sparse"],
)
def test_a_tensor_that_is_not_plain_is_refused(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(JoulediffError, match="not a plain tensor"):
        kept(make())


def test_memory_that_was_given_back_is_refused() -> None:
    x = torch.ones(8)
    x.untyped_storage().resize_(0)
    with pytest.raises(JoulediffError, match="given back"):
        kept(x)


def test_copies_take_turns_as_often_as_their_distances_ask() -> None:
    small, large, again = torch.zeros(256), torch.ones(1024), torch.full((8,), 2.0)
    found = kept(small, large, again, large[10:])
    turns = found.turns([0.0, float("inf"), 2500.0, 9000.0], touched_bytes=1000, most=8)
    assert turns == [1, 8, 3]
    assert found.turns([0.0, float("inf"), 2500.0, 9000.0], touched_bytes=5000, most=8) == [1, 2, 1]
    sets = found.copies([1, 3, 2])
    assert len(sets) == 3
    places = [[buffer.data_ptr() for buffer in each.buffers] for each in sets]
    assert [len(set(column)) for column in zip(*places, strict=True)] == [1, 3, 2]
    assert all(
        [bits(tensor) for tensor in each.tensors()] == [bits(t) for t in (small, large, again, large[10:])]
        for each in sets
    )
    assert places[0] == [buffer.data_ptr() for buffer in found.buffers], "the first set is the one that was kept"


def test_an_operator_without_inputs_has_one_empty_set() -> None:
    found = kept()
    assert found.turns([], 1, 64) == []
    assert [each.tensors() for each in found.copies([])] == [[]]


@pytest.mark.parametrize(
    ("distance", "touched", "turns"),
    [(0.0, 100, 1), (99.0, 100, 1), (100.0, 100, 2), (1e12, 100, 16), (float("inf"), 0, 16), (50.0, 0, 16)],
)
def test_turns_cover_the_distance(distance: float, touched: int, turns: int) -> None:
    assert count_turns(distance, touched, 16) == turns


# --- Drawn. ---


def recorded(step: Callable[[], Any]) -> tuple[Run, Op]:
    run = to_run(capture_step(step))
    return run, run.ops[-1]


def drawn(step: Callable[[], Any]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return draw_inputs(*recorded(step)).tensors()


def moments(signature: Signature) -> tuple[float, float, float]:
    mean = signature.sum_x / signature.count
    return mean, (signature.sum_x2 / signature.count - mean * mean) ** 0.5, signature.zeros / signature.count


@pytest.mark.parametrize("dtype", [torch.float32, torch.half, torch.bfloat16, torch.float64])
def test_values_are_drawn_like_those_that_were_seen(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.nn.functional.dropout(torch.randn(40_000) * 0.2 - 0.5, 0.3).to(dtype)
    (found,) = drawn(lambda: x.neg())
    assert found.dtype == dtype
    assert moments(sign(found)) == pytest.approx(moments(sign(x)), rel=0.03)


def test_values_of_another_distribution_stay_within_their_bounds() -> None:
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(0)).relu()
    (found,) = drawn(lambda: x.neg())
    assert (float(found.min()), float(found.max()) <= float(x.max())) == (0.0, True)
    assert moments(sign(found)) == pytest.approx(moments(sign(x)), rel=0.25)


def test_whole_numbers_stay_between_the_smallest_and_the_largest() -> None:
    ids, table = torch.randint(100, 200, (50, 8)), torch.randn(200, 4)
    run, op = recorded(lambda: torch.nn.functional.embedding(ids, table))
    weight, indices = draw_inputs(run, op).tensors()
    assert indices.dtype == torch.int64
    assert {*range(100, 200)} >= set(indices.flatten().tolist())
    assert len(indices.unique()) > 50
    assert torch.ops.aten.embedding(weight, indices).shape == (50, 8, 4)


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([True, False, True]),
        torch.tensor([0.0, torch.finfo(torch.float32).min]),
        torch.tensor([2.0, 7.0, 3.0], dtype=torch.half),
        torch.tensor([torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max]),
        torch.tensor([3, 200], dtype=torch.uint8),
        torch.tensor([float("nan"), float("inf"), 1.5]),
        torch.tensor([float("nan")] * 3),
        torch.randn(5, dtype=torch.complex64),
        torch.randn(4, 4).to(torch.float8_e5m2),
        torch.tensor(2.5),
        torch.empty(0, 3),
    ],
    ids=lambda x: f"{x.dtype}-{tuple(x.shape)}",
)
def test_values_of_every_kind_can_be_drawn(x: torch.Tensor) -> None:
    (found,) = drawn(lambda: x.clone())
    assert (found.shape, found.stride(), found.dtype) == (x.shape, x.stride(), x.dtype)
    if x.numel() and not x.is_complex():
        seen = sign(x)
        low, high = (0.0, 0.0) if seen.low is None else (seen.low, seen.high)
        assert low is not None and high is not None
        assert low <= float(found.double().min()) <= float(found.double().max()) <= high


@pytest.mark.parametrize(
    "name", ["transposed", "sliced", "expanded", "channels_last", "unfolded", "far into its memory"]
)
def test_drawn_inputs_have_the_layout_of_the_real_ones(name: str) -> None:
    x = LAYOUTS[name]
    (found,) = drawn(lambda: x.neg())
    assert (found.shape, found.stride()) == (x.shape, x.stride())
    assert float(found.std()) > 0.2 * float(x.std())


def test_drawn_inputs_share_memory_where_the_real_ones_did() -> None:
    memory = torch.randn(12)
    first, second = drawn(lambda: memory[:8].mul(memory[4:]))
    first.fill_(3.0)
    assert second[:4].tolist() == [3.0] * 4


def test_values_that_nothing_is_known_of_are_zeros() -> None:
    (found,) = drawn(lambda: torch.empty(5).zero_())
    assert found.tolist() == [0.0] * 5
