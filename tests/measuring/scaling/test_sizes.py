from __future__ import annotations

import pytest

from joulediff.measuring.scaling.sizes import check_sizes, parse_sizes
from joulediff.model.errors import JoulediffError


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1e3..1e6", (1000, 3162, 10000, 31623, 100000, 316228, 1000000)),
        ("1e3..1e6/4", (1000, 10000, 100000, 1000000)),
        ("64..1024/5", (64, 128, 256, 512, 1024)),
        ("100,200,400", (100, 200, 400)),
        ("400, 100, 100", (100, 400)),
        ("1_000", (1000,)),
        ("1..3/7", (1, 2, 3)),
        ("2.5e3..1e4/2", (2500, 10000)),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


def test_the_number_of_points_is_for_ranges_only() -> None:
    assert len(parse_sizes("1..1e6", points=3)) == 3
    assert len(parse_sizes("1..1e6/5", points=3)) == 5
    assert len(parse_sizes("1,2,3,4", points=3)) == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a whole number"),
        ("1e3..", "not a whole number"),
        ("a..b", "not a whole number"),
        ("1.5,2", "not a whole number"),
        ("1e3..1e6/x", "not a whole number"),
        ("nan,2", "not a whole number"),
        ("1e400", "not a whole number"),
        ("1e6..1e3", "do not go up"),
        ("5..5", "do not go up"),
        ("0..100", "0 is not a size"),
        ("-5,3", "-5 is not a size"),
        ("1..100/1", "1 sizes cannot be a series"),
        ("1..1e6/1000", "1000 sizes cannot be a series"),
    ],
)
def test_a_text_that_is_no_series_is_refused(text: str, what: str) -> None:
    with pytest.raises(JoulediffError, match=what) as caught:
        parse_sizes(text)
    assert caught.value.fix is not None
    assert "give" in caught.value.fix


@pytest.mark.parametrize("sizes", [[], [0], [1.5], [True], ["3"], list(range(1, 200))])
def test_lists_are_checked(sizes: list[int]) -> None:
    with pytest.raises(JoulediffError):
        check_sizes(sizes)
