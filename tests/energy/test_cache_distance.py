"""Reuse distances: the bytes a program reads and writes before it touches the same memory again."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.energy.distinct_ops import Distances, find_distances, traffic_bytes
from joulediff.model.run import Run
from run_builders import RunBuilder

# A value of 256 float32.
KB = 1024


class Chain(RunBuilder):
    """Operators on values of a kilobyte, each with a kernel."""

    def kb(self, storage: int | None = None) -> int:
        return self.value((256,), **({} if storage is None else {"storage": storage}))

    def work(self, inputs: list[int], outputs: list[int], *, writes: tuple[int, ...] = (), runs: bool = True) -> int:
        op = self.op("aten::add", inputs=inputs, outputs=outputs, writes=writes)
        if runs:
            self.kernel("add_kernel", 1e-5, op=op)
        return op


def distances(made: RunBuilder, op: int, addresses: list[int] | None = None) -> Distances:
    return find_distances(made.build(), [[op]], addresses or [])[0]


def test_memory_that_the_step_has_not_touched_is_infinitely_far() -> None:
    made = Chain()
    op = made.work([made.kb(), made.kb()], [made.kb()])
    assert distances(made, op) == Distances((math.inf, math.inf), math.inf)


def test_what_was_made_a_moment_ago_is_near() -> None:
    made = Chain()
    weight, first, second = made.kb(), made.kb(), made.kb()
    made.work([weight], [first])
    made.work([first], [second])
    op = made.work([second, first, weight], [made.kb()])
    # `second` and `first` were touched by the operator before, `weight` before its two kilobytes.
    assert distances(made, op) == Distances((0.0, 0.0, 2.0 * KB), math.inf)


def test_two_values_of_one_storage_are_one_memory() -> None:
    made = Chain()
    made.work([made.kb(storage=0)], [made.kb()])
    op = made.work([made.kb(storage=0)], [made.kb()])
    assert distances(made, op).inputs == (0.0,)


def test_a_view_touches_nothing() -> None:
    made = Chain()
    value = made.kb()
    made.work([value], [made.kb()], runs=False)
    op = made.work([value], [made.kb()])
    assert distances(made, op).inputs == (math.inf,)


def test_outputs_that_get_memory_which_was_given_back() -> None:
    made = Chain()
    given, other = made.kb(), made.kb()
    made.work([given], [other])
    made.work([other], [made.kb()])
    op = made.work([other], [made.kb()])
    # Storage 3 lies where storage 0 did; the operator in between moved two kilobytes.
    assert distances(made, op, [4096, 8192, 12288, 4096]).outputs == 2.0 * KB
    assert distances(made, op, [4096, 8192, 12288, 16384]).outputs == math.inf


def test_memory_without_an_address_is_known_by_its_storage() -> None:
    made = Chain()
    value = made.kb()
    made.work([value], [made.kb()])
    op = made.work([value], [made.kb()])
    for addresses in ([], [0, 0, 0], [0]):
        assert distances(made, op, addresses) == Distances((0.0,), math.inf)


def test_the_same_address_on_two_devices_is_two_memories() -> None:
    made = Chain()
    here, there = made.kb(), made.value((256,), device="cuda:1")
    made.work([here], [])
    op = made.work([there], [])
    assert distances(made, op, [4096, 4096]).inputs == (math.inf,)


def test_a_tensor_written_in_place_is_touched() -> None:
    made = Chain()
    old, new = made.kb(storage=0), made.kb(storage=0)
    made.work([old], [new], writes=(new,))
    made.work([made.kb()], [])
    op = made.work([new], [])
    assert distances(made, op).inputs == (1.0 * KB,)


def test_a_tensor_written_without_being_returned_is_touched() -> None:
    made = Chain()
    made.work([made.kb()], [], writes=(made.kb(storage=7),))
    op = made.work([made.kb(storage=7)], [])
    assert distances(made, op).inputs == (0.0,)


def test_the_nearest_output_counts_and_an_input_that_is_returned_is_none() -> None:
    made = Chain()
    far, near = made.kb(storage=5), made.kb(storage=6)
    made.work([far], [])
    made.work([near], [])
    op = made.work([near], [near, made.kb(storage=5), made.kb()])
    assert distances(made, op) == Distances((0.0,), 1.0 * KB)
    op = made.work([near], [near])
    assert distances(made, op).outputs == math.inf


def test_traffic_counts_each_tensor_once() -> None:
    made = Chain()
    a, b = made.kb(), made.kb()
    op = made.work([a, a, b], [b], writes=(b,))
    run = made.build()
    assert traffic_bytes(run, run.ops[op]) == 2 * KB


@st.composite
def chains(draw: st.DrawFn) -> tuple[Run, list[int]]:
    """Any operators on any values, with memory that is freed and allocated again."""
    made = Chain()
    for _ in range(draw(st.integers(1, 8))):
        made.value((draw(st.integers(0, 9)),), storage=draw(st.integers(0, 9)))
    values = st.lists(st.integers(0, len(made.values) - 1), max_size=3)
    for _ in range(draw(st.integers(0, 8))):
        made.work(draw(values), draw(values), writes=tuple(draw(values)), runs=draw(st.booleans()))
    return made.build(), draw(st.lists(st.sampled_from([0, 4096, 8192]), max_size=9))


@given(chains())
@settings(deadline=None, max_examples=50)
def test_distances_are_never_negative_and_never_more_than_was_moved(chain: tuple[Run, list[int]]) -> None:
    run, addresses = chain
    working = {kernel.op for kernel in run.kernels if kernel.op is not None}
    found = dict(zip(working, find_distances(run, [[op] for op in working], addresses), strict=True))
    moved = 0.0
    for op in run.ops:
        if op.id not in working:
            continue
        assert len(found[op.id].inputs) == len(op.inputs)
        for distance in (*found[op.id].inputs, found[op.id].outputs):
            assert 0 <= distance <= moved or distance == math.inf
        moved += traffic_bytes(run, op)


@given(chains())
@settings(deadline=None, max_examples=50)
def test_other_operators_that_are_asked_for_change_nothing(chain: tuple[Run, list[int]]) -> None:
    run, addresses = chain
    working = {kernel.op for kernel in run.kernels if kernel.op is not None}
    every = find_distances(run, [[op] for op in working], addresses)
    for op, found in zip(working, every, strict=True):
        assert find_distances(run, [[op]], addresses) == [found]


def test_the_calls_of_a_kind_have_the_distances_of_most_of_them() -> None:
    made = Chain()
    weight, ops = made.kb(), []
    for _ in range(5):
        ops.append(made.work([weight, made.kb()], [made.kb()]))
    # The weight is infinitely far for the first call alone.
    assert find_distances(made.build(), [ops], []) == [Distances((0.0, math.inf), math.inf)]
    assert find_distances(made.build(), [[]], []) == [Distances()]
