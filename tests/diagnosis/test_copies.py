"""A call that repeats a tensor is the lead of the work on its copies; none if the cheap side repeats it too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from diagnosis_builders import comparison_of, costs, draw, first_rows, record, region_of
from invented import Tensor, call, cat, tanh
from joulediff.diagnosis.evidence.copies import find_copies
from joulediff.diagnosis.lead import Lead, make_subject

X, W = draw(16, 32), draw(32, 8, seed=1)
OTHER = draw(16, 32, seed=2)


def once() -> Tensor:
    return tanh(tanh(X) @ W)


def doubled() -> Tensor:
    pair = cat([X, X])
    return first_rows(tanh(tanh(pair) @ W), 16)


def expanded() -> Tensor:
    copies = X.expand(3, 16, 32).contiguous()
    return first_rows(tanh(tanh(copies.view(48, 32)) @ W), 16)


def beside_another() -> Tensor:
    return first_rows(tanh(tanh(cat([X, OTHER])) @ W), 16)


def rows(begin: int, end: int) -> Tensor:
    return call("slice", X.array[begin:end], X, begin, end, is_view=True)


def overlapping() -> Tensor:
    windows = cat([rows(0, 8), rows(4, 12), rows(8, 16)])
    return first_rows(tanh(tanh(windows) @ W), 8)


def beside_each_other() -> Tensor:
    windows = cat([rows(0, 8), rows(8, 16)])
    return first_rows(tanh(tanh(windows) @ W), 8)


def unfolded() -> Tensor:
    view = np.lib.stride_tricks.sliding_window_view(X.array, 8, axis=0)[::4]
    unfold = partial(call, "unfold", is_view=True)
    windows = unfold(view, X, 0, 8, 4)
    joined = call("clone", np.ascontiguousarray(windows.array.swapaxes(1, 2)).reshape(24, 32), windows)
    return first_rows(tanh(tanh(joined) @ W), 8)


def in_eight_rows() -> Tensor:
    return first_rows(once(), 8)


def copies_of(a: Callable[[], Tensor], b: Callable[[], Tensor], op: str = "mm") -> list[Lead]:
    comparison = comparison_of(record(a, costs({})), record(b, costs({})))
    return find_copies(make_subject(comparison, region_of(comparison, op), "a"))


@pytest.mark.parametrize(("step", "key", "times"), [(doubled, "cat", 2), (expanded, "expand", 3)])
def test_work_on_copies_is_named_by_the_call_that_makes_them(step: Callable[[], Tensor], key: str, times: int) -> None:
    (lead,) = copies_of(step, once)
    assert (lead.kind, lead.cause.type, lead.cause.key, lead.cause.value_a) == (
        "redundant",
        "shape",
        key,
        f"{times} copies",
    )
    assert lead.cause.location_a is not None and key in (lead.cause.location_a.text or "")
    assert lead.cause.evidence[0] == f"{key} makes {times} copies of a tensor, and mm works on each of them"
    assert lead.cause.evidence[1] == f"mm makes {16 * times}×8 in A and 16×8 in B"
    assert f"it is done on {times} copies" in lead.suggestion


@pytest.mark.parametrize(("step", "key"), [(overlapping, "cat"), (unfolded, "unfold")])
def test_work_on_windows_that_overlap_is_named_by_the_call_that_makes_them(
    step: Callable[[], Tensor], key: str
) -> None:
    (lead,) = copies_of(step, in_eight_rows)
    assert (lead.kind, lead.cause.key, lead.cause.value_a) == ("redundant", key, "1.5 copies on average")
    assert lead.cause.evidence[1] == "mm makes 24×8 in A and 16×8 in B"


def test_windows_that_do_not_overlap_are_no_copies() -> None:
    assert copies_of(beside_each_other, in_eight_rows) == []


def test_a_view_that_the_line_does_not_ask_for_is_no_lead() -> None:
    """Products expand the smaller of their matrices by themselves."""
    wide = Tensor.expand

    def by_itself() -> Tensor:
        copies = wide(X, 3, 16, 32).contiguous()
        return first_rows(tanh(tanh(copies.view(48, 32)) @ W), 16)

    assert copies_of(by_itself, once) == []


def test_a_tensor_joined_with_another_is_no_copy() -> None:
    assert copies_of(beside_another, once) == []


def test_copies_that_both_sides_make_are_no_lead() -> None:
    assert copies_of(doubled, doubled) == []


def test_only_copies_that_the_cheap_side_lacks_count() -> None:
    def four() -> Tensor:
        return first_rows(tanh(cat([doubled_input(), doubled_input()]) @ W), 16)

    def doubled_input() -> Tensor:
        return tanh(cat([X, X]))

    assert [lead.cause.evidence[1] for lead in copies_of(four, doubled)] == ["mm makes 64×8 in A and 32×8 in B"]
