"""Operators of several threads, in the order of the tasks that ran them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from joulediff.frameworks.torch.capture.order import Reordered, TaskOrder, reorder, reorder_stretches
from joulediff.model.run import Op, Value
from trace_builders import make_op


def value(number: int, producer: int | None, *, storage: int | None = None, **changes: Any) -> Value:
    own = number if storage is None else storage
    writers = () if producer is None else (producer,)
    known = Value(number, (2,), (1,), 0, "float32", "cpu", own, "produced", None, producer, None, writers, None, 1)
    return replace(known, **changes)


def op(number: int, inputs: tuple[int, ...], outputs: tuple[int, ...], **changes: Any) -> Op:
    return replace(make_op(number, f"aten::op{number}"), inputs=inputs, outputs=outputs, **changes)


def test_a_task_stands_where_it_was_started() -> None:
    found = TaskOrder()
    found.note(())  # 0
    found.start((0,), ())
    found.start((1,), ())
    found.note((1,))  # 1
    found.note(())  # 2, beside the tasks
    found.note((0,))  # 3
    found.start((0, 0), (0,))
    found.note((0,))  # 4
    found.note((0, 0))  # 5
    found.note((1,))  # 6
    assert found.order() == [0, 3, 5, 4, 1, 6, 2]


def test_chunks_of_a_map_follow_one_another() -> None:
    found = TaskOrder()
    found.start((0,), ())
    for key in ((0, 1), (0, 0), (0, 1), ()):
        found.note(key)
    assert found.order() == [1, 0, 2, 3]


def test_a_thread_of_another_s_keeps_its_place_in_the_step() -> None:
    found = TaskOrder()
    for key in ((), (-7,), (), (-7,)):
        found.note(key)
    found.start((-7, 0), (-7,))
    found.note((-7, 0))
    found.note(())
    assert found.order() == [0, 1, 2, 3, 4, 5]


def test_numbers_follow_the_order() -> None:
    ops = [op(0, (0,), (1,)), op(1, (2,), (3,)), op(2, (3, 1), (4,), forward=1)]
    values = [value(0, None), value(1, 0), value(2, None), value(3, 1), value(4, 2, previous=1)]
    found = reorder(ops, values, [1, 0, 2])
    assert isinstance(found, Reordered)
    assert [(each.id, each.inputs, each.outputs, each.forward) for each in found.ops] == [
        (0, (0,), (1,), None),
        (1, (2,), (3,), None),
        (2, (1, 3), (4,), 0),
    ]
    assert [each.id for each in found.values] == [0, 1, 2, 3, 4]
    assert [each.producer for each in found.values] == [None, 0, None, 1, 2]
    assert found.values[4].previous == 3
    assert found.value_ids == {2: 0, 3: 1, 0: 2, 1: 3, 4: 4}


def test_no_operator_moves_before_a_value_that_it_reads() -> None:
    ops = [op(0, (), (0,)), op(1, (0,), (1,))]
    assert reorder(ops, [value(0, 0), value(1, 1)], [1, 0]) is None


def test_no_read_moves_behind_a_write_to_the_same_memory() -> None:
    ops = [op(0, (0,), (1,)), op(1, (0,), (2,), writes=(2,))]
    values = [value(0, None), value(1, 0), value(2, 1, storage=0, previous=0)]
    assert reorder(ops, values, [1, 0]) is None
    assert reorder(ops, values, [0, 1]) is not None


def test_two_reads_may_change_places() -> None:
    ops = [op(0, (0,), (1,)), op(1, (0,), (2,))]
    assert reorder(ops, [value(0, None), value(1, 0), value(2, 1)], [1, 0]) is not None


def test_stretches_hold_for_the_same_operators() -> None:
    assert reorder_stretches([(0, 1, "a"), (2, 3, "b")], [0, 2, 3, 1]) == ((0, 0, "a"), (1, 2, "b"), (3, 3, "a"))
    assert reorder_stretches([(1, 1, "a")], [1, 0]) == ((0, 0, "a"),)
