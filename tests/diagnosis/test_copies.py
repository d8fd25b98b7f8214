"""A call that repeats a tensor is the lead of the work on its copies; none if the cheap side repeats it too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diagnosis_builders import comparison_of, costs, draw, first_rows, record, region_of
from invented import Tensor, cat, tanh
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
