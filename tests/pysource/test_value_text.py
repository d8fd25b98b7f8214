"""Values as settings: plain values unchanged, others described without running their code."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from joulediff.model.run import MAX_SETTING_CHARS
from joulediff.pysource.tracing.value_origin import MAX_INT, MAX_ITEMS, describe


class Mode(enum.Enum):
    FAST = 1


class Opaque:
    def __repr__(self) -> str:
        raise AssertionError("the program's own code ran")

    __str__ = __eq__ = __hash__ = __len__ = __repr__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (slice(None, 3), "slice(None, 3, None)"),
        (slice(-2, None), "slice(-2, None, None)"),
        (slice(0, None, 2), "slice(0, None, 2)"),
        (slice("a", "b"), "slice('a', 'b', None)"),
    ],
)
def test_a_slice_is_reported_by_its_ends(value: slice, text: str) -> None:
    assert describe(value) == (text, True)


def test_a_slice_among_others_is_reported_as_it_is_written() -> None:
    assert describe((slice(0, 2), "a", 3)) == ("(slice(0, 2, None), 'a', 3)", True)


def test_different_slices_have_different_texts() -> None:
    assert len({describe(slice(-keep, None))[0] for keep in range(5)}) == 5


@pytest.mark.parametrize("end", [Opaque(), MAX_INT, object()], ids=["own class", "too large", "object"])
@pytest.mark.parametrize("place", range(3))
def test_a_slice_with_an_end_without_text_is_only_a_slice(end: Any, place: int) -> None:
    ends: list[Any] = [None, None, None]
    ends[place] = end
    assert describe(slice(*ends)) == ("<slice>", False)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (3, (3, True)),
        (None, (None, True)),
        ("x" * 1000, ("x" * MAX_SETTING_CHARS, True)),
        (MAX_INT - 1, (MAX_INT - 1, True)),
        (MAX_INT, ("<int>", False)),
        (Mode.FAST, ("Mode.FAST", True)),
        ((1, 2), ("(1, 2)", True)),
        ([1, "a"], ("(1, 'a')", True)),
        ((1, (2, 3)), ("<tuple>", False)),
        ([0] * MAX_ITEMS, (f"({', '.join('0' * MAX_ITEMS)})", True)),
        ([0] * (MAX_ITEMS + 1), ("<list>", False)),
        ([Opaque()], ("<list>", False)),
        (Opaque(), ("<Opaque>", False)),
        (describe, ("joulediff.pysource.tracing.value_origin.describe", False)),
        (int, ("int", False)),
        (enum, ("enum", False)),
    ],
)
def test_other_values(value: Any, found: Any) -> None:
    assert describe(value) == found
