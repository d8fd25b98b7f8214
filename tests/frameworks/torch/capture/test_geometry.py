"""Extents and overlaps are compared with sets of addresses, enumerated one by one."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.frameworks.torch.capture.geometry import Dims, covers, extent_of, overlap

SIDES = st.integers(0, 4)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A view of a storage of 120 elements, made as programs make them."""
    view = torch.empty(120).view(draw(st.sampled_from([(120,), (10, 12), (4, 5, 6), (2, 3, 4, 5)])))
    for _ in range(draw(st.integers(0, 4))):
        view = draw(st.sampled_from(STEPS))(draw, view)
    return view


def slice_it(draw: st.DrawFn, view: torch.Tensor) -> torch.Tensor:
    dim = draw(st.integers(0, view.dim() - 1)) if view.dim() else None
    if dim is None:
        return view
    start, stop = sorted(draw(st.tuples(*[st.integers(0, view.shape[dim])] * 2)))
    index = [slice(None)] * dim + [slice(start, stop, draw(st.integers(1, 3)))]
    return view[tuple(index)]


def select(draw: st.DrawFn, view: torch.Tensor) -> torch.Tensor:
    if not view.dim() or not view.numel():
        return view
    dim = draw(st.integers(0, view.dim() - 1))
    return view.select(dim, draw(st.integers(0, view.shape[dim] - 1)))


def permute(draw: st.DrawFn, view: torch.Tensor) -> torch.Tensor:
    return view.permute(draw(st.permutations(range(view.dim()))))


def expand(draw: st.DrawFn, view: torch.Tensor) -> torch.Tensor:
    return view.unsqueeze(0).expand(draw(st.integers(1, 3)), *view.shape) if view.dim() < 4 else view


def diagonal(draw: st.DrawFn, view: torch.Tensor) -> torch.Tensor:
    return view.diagonal(draw(st.integers(-1, 1))) if view.dim() >= 2 else view


STEPS = (slice_it, select, permute, expand, diagonal)


def addresses(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    ranges = [range(size) for size in shape]
    return [offset + sum(i * s for i, s in zip(index, strides, strict=True)) for index in product(*ranges)]


def seen(view: torch.Tensor) -> list[int]:
    return addresses(view.storage_offset(), tuple(view.shape), view.stride())


def dims_of(view: torch.Tensor) -> tuple[Dims, int]:
    return extent_of(tuple(view.shape), view.stride()).dims, view.storage_offset()


@given(views())
@settings(max_examples=300, deadline=None)
def test_an_extent_holds_every_element_once_and_counts_repeats(view: torch.Tensor) -> None:
    extent = extent_of(tuple(view.shape), view.stride())
    sizes, strides = [size for size, _ in extent.dims], [stride for _, stride in extent.dims]
    found = addresses(view.storage_offset(), tuple(sizes), tuple(strides))
    assert Counter(found * extent.repeats) == Counter(seen(view))
    assert extent.count == len(found)
    assert extent.is_dense == (not found or max(found) - min(found) + 1 == len(found))


@given(views())
@settings(max_examples=300, deadline=None)
def test_an_extent_has_the_order_of_the_elements(view: torch.Tensor) -> None:
    order = extent_of(tuple(view.shape), view.stride()).order
    found = addresses(view.storage_offset(), tuple(size for size, _ in order), tuple(stride for _, stride in order))
    assert found == list(dict.fromkeys(seen(view))), "each once"


@given(views(), views())
@settings(max_examples=500, deadline=None)
def test_pieces_that_share_an_element_always_overlap(a: torch.Tensor, b: torch.Tensor) -> None:
    first, second = dims_of(a), dims_of(b)
    if set(seen(a)) & set(seen(b)):
        assert overlap(*first, *second)
        assert overlap(*second, *first)
    if covers(*first, *second):
        assert set(seen(a)) >= set(seen(b)) != set()


@given(st.data(), st.sampled_from([(10, 12), (4, 5, 6), (2, 3, 4, 5)]))
@settings(max_examples=300, deadline=None)
def test_overlap_is_exact_for_slices_of_one_dimension(data: st.DataObject, shape: tuple[int, ...]) -> None:
    whole = torch.empty(120).view(shape)
    dim = data.draw(st.integers(0, whole.dim() - 1))
    a, b = (cut(data, whole, dim) for _ in range(2))
    assert overlap(*dims_of(a), *dims_of(b)) == bool(set(seen(a)) & set(seen(b)))


def cut(data: st.DataObject, whole: torch.Tensor, dim: int) -> torch.Tensor:
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, whole.shape[dim])] * 2)))
    return whole.narrow(dim, start, stop - start)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (lambda x: x[:, 0::2], lambda x: x[:, 1::2]),
        (lambda x: x[0::2], lambda x: x[1::2]),
        (lambda x: x[:, :, 1], lambda x: x[:, :, 2]),
        (lambda x: x[:, 1:3], lambda x: x[:, 3:]),
        (lambda x: x[:, :, :2].transpose(0, 1), lambda x: x[:, :, 2:]),
        (lambda x: x[:0], lambda x: x),
    ],
)
def test_pieces_side_by_side_do_not_overlap(a, b) -> None:
    whole = torch.empty(4, 5, 6)
    assert not overlap(*dims_of(a(whole)), *dims_of(b(whole)))


def test_rows_that_run_over_into_the_next_are_not_mistaken_for_columns() -> None:
    whole = torch.empty(4, 6)
    shifted = whole.view(-1)[4:22].view(3, 6)[:, :4]
    assert set(seen(shifted)) & set(seen(whole[:, :2]))
    assert overlap(*dims_of(shifted), *dims_of(whole[:, :2]))
    assert overlap(*dims_of(whole[:, :2]), *dims_of(shifted))


def test_overlap_says_yes_where_it_cannot_tell() -> None:
    """A diagonal and what lies between its elements: ranges meet, and no pitch is common to both."""
    whole = torch.empty(4, 6)
    assert overlap(*dims_of(whole.diagonal()), *dims_of(whole[0, 1:5]))


def test_permuted_reshaped_and_squeezed_views_have_one_extent() -> None:
    x = torch.empty(4, 5, 6)
    same = [x, x.permute(2, 0, 1), x.view(20, 6), x.view(1, 4, 30), x.reshape(-1), x[None, :, :, None]]
    extents = [extent_of(tuple(view.shape), view.stride()) for view in same]
    assert {extent.dims for extent in extents} == {((120, 1),)}
    assert [extent.order for extent in extents] == [((120, 1),), ((6, 1), (20, 6)), *[((120, 1),)] * 4]


def test_a_scalar_is_one_element_and_an_empty_tensor_none() -> None:
    assert extent_of((), ()).count == 1
    assert extent_of((), ()).is_dense
    assert extent_of((3, 0, 2), (0, 2, 1)).count == 0
    assert extent_of((3, 1), (0, 7)).repeats == 3
