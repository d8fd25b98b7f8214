"""Disjoint sets, compared with Python's own sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joulediff.matching.disjoint_sets import DisjointSets


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_disjoint_sets(merges: list[tuple[int, int]]) -> None:
    disjoint, sets = DisjointSets(31), [{number} for number in range(31)]
    for one, other in merges:
        assert disjoint.merge(one, other) == (sets[one] is not sets[other])
        if sets[one] is not sets[other]:
            sets[one] |= sets[other]
            for number in sets[other]:
                sets[number] = sets[one]
    of, count = disjoint.number_sets()
    assert all(disjoint.find(number) == min(sets[number]) for number in range(31))
    assert count == len({id(each) for each in sets}) == len(set(of.tolist()))
    assert all(of[one] == of[other] for each in sets for one in each for other in each)
