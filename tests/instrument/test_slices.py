"""The energy between readings is divided without loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.instrument.recorder import BETWEEN, CALLS, MEASURING, Node, Segment
from joulediff.instrument.slices import Points, Work, divide

A, B, INNER, GAP = 3, 4, 5, 6
NODES = [
    Node(CALLS, -1),
    Node(BETWEEN, -1),
    Node(MEASURING, -1),
    Node(A, CALLS),
    Node(B, CALLS),
    Node(INNER, A),
    Node(GAP, BETWEEN),
]
JOULES, LOW, HIGH, VARIANCE, CERTAIN = range(5)


def points(time_s, power_w):
    """Return points of a domain with a power between each two."""
    energy_j = np.concatenate([[0.0], np.cumsum(np.diff(time_s) * np.asarray(power_w))])
    return Points(np.asarray(time_s, dtype=float), energy_j, np.zeros(len(time_s)))


def work(time_s, own_s, children_s=None):
    children = np.zeros(len(time_s)) if children_s is None else np.asarray(children_s, dtype=float)
    return Work(np.asarray(time_s, dtype=float), np.asarray(own_s, dtype=float), children)


def divided(segments, known, cpu, *, floor_w=0.0, by_cpu=False, is_exact=False, program_s=None):
    ends = (float(known.time_s[0]), float(known.time_s[-1]))
    return divide(
        np.array(segments, dtype=float).reshape(-1, 5),
        NODES,
        known,
        cpu,
        start_s=ends[0],
        end_s=ends[1],
        program_s=program_s or ends,
        floor_w=floor_w,
        most_w=1000.0,
        by_cpu=by_cpu,
        is_exact=is_exact,
    )


def segment(node, start_s, end_s):
    return Segment(node, start_s, end_s, 0.0, 0.0)


def test_a_call_over_whole_intervals_has_their_energy_for_certain():
    found = divided([segment(A, 1, 3), segment(GAP, 3, 4)], points([1, 2, 3, 4], [10, 20, 5]), work([1, 4], [0, 3]))
    assert found.own[A].tolist() == [30, 30, 30, 0, 30]
    assert found.own[GAP, JOULES] == 5
    assert found.inside_j == 35


def test_a_part_of_an_interval_is_a_share_by_time_and_uncertain():
    found = divided([segment(A, 1, 1.25), segment(GAP, 1.25, 2)], points([1, 2], [100]), work([1, 2], [0, 1]))
    assert found.own[A].tolist() == [25, 0, 100, 0, 0]
    assert found.own[GAP].tolist() == [75, 0, 100, 0, 0]


def test_a_cpu_is_divided_by_cpu_time():
    cpu = work([1.0, 1.5, 2.0], [0.0, 0.5, 0.5])
    found = divided([segment(A, 1, 1.5), segment(GAP, 1.5, 2)], points([1, 2], [100]), cpu, by_cpu=True)
    assert found.own[A, JOULES] == 100
    assert found.own[GAP, JOULES] == 0


def test_watts_of_a_second_of_cpu_time_may_differ_by_a_factor_of_two():
    cpu = work([1.0, 2.0], [0.0, 1.0])
    found = divided([segment(A, 1, 1.5), segment(GAP, 1.5, 2)], points([1, 2], [90]), cpu, by_cpu=True)
    assert found.own[A, [JOULES, LOW, HIGH]].tolist() == pytest.approx([45, 30, 60])


def test_an_estimate_is_cpu_time_and_exact():
    cpu = work([1.0, 2.0], [0.0, 1.0])
    found = divided([segment(A, 1, 1.5), segment(GAP, 1.5, 2)], points([1, 2], [90]), cpu, by_cpu=True, is_exact=True)
    assert found.own[A].tolist() == pytest.approx([45, 45, 45, 0, 45])


def test_the_floor_is_divided_by_time():
    cpu = work([1.0, 1.5, 2.0], [0.0, 0.5, 0.5])
    known = points([1, 2], [100])
    found = divided([segment(A, 1, 1.5), segment(GAP, 1.5, 2)], known, cpu, by_cpu=True, floor_w=60)
    assert found.own[A, JOULES] == pytest.approx(40)
    assert found.floor_s[[A, GAP]].tolist() == [0.5, 0.5]


def test_the_total_of_a_call_has_the_calls_inside_and_no_doubt_among_them():
    segments = [segment(A, 1, 1.5), segment(INNER, 1.5, 2)]
    found = divided(segments, points([1, 2], [100]), work([1, 2], [0, 1]))
    assert found.own[A].tolist() == [50, 0, 100, 0, 0]
    assert found.total[A].tolist() == [100, 100, 100, 0, 100]
    assert found.total[CALLS, JOULES] == 100


def test_threads_share_the_time_in_which_they_are_in_calls():
    segments = [segment(A, 1, 2), segment(B, 1.5, 2), segment(GAP, 2, 3)]
    found = divided(segments, points([1, 2, 3], [100, 10]), work([1, 3], [0, 2]))
    assert found.own[A, JOULES] == pytest.approx(75)
    assert found.own[B, JOULES] == pytest.approx(25)
    assert found.own[GAP, JOULES] == pytest.approx(10)


def test_a_gap_of_the_main_thread_has_nothing_while_another_thread_is_in_a_call():
    segments = [segment(GAP, 1, 3), segment(B, 2, 3)]
    found = divided(segments, points([1, 2, 3], [100, 10]), work([1, 3], [0, 2]))
    assert found.own[GAP, JOULES] == 100
    assert found.own[B, JOULES] == 10


def test_children_have_the_share_of_their_cpu_time():
    cpu = work([1.0, 2.0], [0.0, 0.25], [0.0, 0.75])
    found = divided([segment(A, 1, 2)], points([1, 2], [100]), cpu, by_cpu=True)
    assert found.own[A, JOULES] == pytest.approx(25)
    assert found.children[0, JOULES] == pytest.approx(75)
    assert found.inside_j == pytest.approx(100)


def test_what_runs_outside_of_the_program_is_nobodys():
    known = points([1, 2], [100])
    found = divided([segment(A, 1.5, 2)], known, work([1, 2], [0, 1]), program_s=(1.5, 2.0))
    assert found.own[:, JOULES].sum() == 50
    assert (found.inside_j, found.inside_s) == (50, 0.5)


@st.composite
def programs(draw):
    """Return segments of up to three threads, readings around them, and CPU time."""
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        at_s = draw(st.floats(1.0, 2.0))
        for _ in range(draw(st.integers(0, 12))):
            at_s += draw(st.floats(0.0, 0.3))
            end_s = at_s + draw(st.floats(0.0, 0.7))
            segments.append(segment(draw(st.sampled_from([A, B, INNER])), at_s, end_s))
            at_s = end_s
    segments.append(segment(GAP, 1.0, 20.0))
    time_s = np.concatenate(
        [[0.5], 1 + np.cumsum(draw(st.lists(st.floats(0.01, 2.0), min_size=2, max_size=30))), [21.0]]
    )
    time_s = np.unique(time_s)
    power_w = draw(st.lists(st.floats(0, 500), min_size=len(time_s) - 1, max_size=len(time_s) - 1))
    cpu_s = np.cumsum(draw(st.lists(st.floats(0, 2), min_size=len(time_s), max_size=len(time_s))))
    children_s = np.cumsum(draw(st.lists(st.floats(0, 2), min_size=len(time_s), max_size=len(time_s))))
    return segments, points(time_s, power_w), work(time_s, cpu_s, children_s)


@settings(max_examples=200, deadline=None)
@given(programs(), st.booleans(), st.floats(0, 100))
def test_all_energy_of_the_program_is_divided_once(program, by_cpu, floor_w):
    segments, known, cpu = program
    found = divided(segments, known, cpu, by_cpu=by_cpu, floor_w=floor_w, program_s=(1.0, 20.0))
    parts_j = found.own[:, JOULES].sum() + found.children[0, JOULES]
    whole_j = np.abs(np.diff(known.energy_j)).sum() + floor_w * 21
    assert parts_j == pytest.approx(found.inside_j, abs=1e-9 * max(1.0, whole_j))
    assert found.total[[CALLS, BETWEEN, MEASURING], JOULES].sum() == pytest.approx(
        found.own[:, JOULES].sum(), abs=1e-9 * max(1.0, whole_j)
    )
    assert (found.own[:, LOW] <= found.own[:, JOULES] + 1e-9).all()
    assert (found.own[:, HIGH] >= found.own[:, JOULES] - 1e-9).all()
    assert found.floor_s.sum() == pytest.approx(19.0)
