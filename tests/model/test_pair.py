"""Two sides and a value for each."""

from __future__ import annotations

import pytest

from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from


@pytest.mark.parametrize("side", SIDES)
def test_a_pair_gives_the_value_of_a_side(side: SideName) -> None:
    assert Pair(a="a", b="b").of(side) == side
    assert pair_from(side, 1, 2).of(side) == 1
    assert pair_from(side, 1, 2).of(other_side(side)) == 2


def test_a_pair_unpacks_a_first() -> None:
    a, b = Pair(1, 2)
    assert (a, b) == (1, 2)
