"""The alignment of two sequences of operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.matching.enclosing.op_pairs import align, find_increasing


def aligned(ours: str, theirs: str) -> str:
    """Return the keys that were aligned; a dot is a key of None."""
    keys = [[None if key == "." else key for key in text] for text in (ours, theirs)]
    return "".join(ours[one] for one, _ in align(*keys))


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ("abc", "abc", "abc"),
        ("abcd", "xbyd", "bd"),
        ("abab", "ab", "ab"),
        ("mam", "mbam", "mam"),
        ("mvmvmv", "mmcmvv", "mmmv"),
        ("...", "...", ""),
        ("a.b", "a.b", "ab"),
        ("", "a", ""),
    ],
)
def test_equal_keys_in_order(ours: str, theirs: str, found: str) -> None:
    assert aligned(ours, theirs) == found


@settings(deadline=None)
@given(st.text("abcd.", max_size=30), st.text("abcd.", max_size=30))
def test_places_increase_and_keys_are_equal(ours: str, theirs: str) -> None:
    keys: list[list[str | None]] = [[None if key == "." else key for key in text] for text in (ours, theirs)]
    found = align(*keys)
    assert all(
        one < next_one and other < next_other for (one, other), (next_one, next_other) in itertools.pairwise(found)
    )
    assert all(keys[0][one] == keys[1][other] is not None for one, other in found)


def test_long_sequences_of_a_few_keys_are_aligned_by_number() -> None:
    ours = ["b", *["mm", "add"] * 300]
    theirs = ["c", *["mm", "mul", "add"] * 300, "d"]
    assert len(align(ours, theirs)) >= 598


@settings(deadline=None)
@given(st.permutations(range(7)))
def test_the_longest_increasing_subsequence(numbers: Sequence[int]) -> None:
    found = [numbers[at] for at in find_increasing(numbers)]
    assert found == sorted(found)
    longest = max(
        length
        for length in range(len(numbers) + 1)
        for chosen in itertools.combinations(numbers, length)
        if list(chosen) == sorted(chosen)
    )
    assert len(found) == longest
