"""A run: its index, its replays, the form of a tensor, and which operators ask for the same work."""

from __future__ import annotations

from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from archive_runs import large_run, small_run
from joulediff.model.energy import Energy
from joulediff.model.run import Form, Run, SourceText, work_of
from run_builders import RunBuilder, gpt2_run


def test_kernels_of_each_operator_are_those_that_name_it() -> None:
    run = gpt2_run(2)
    assert len(run.index.kernels) == len(run.ops)
    for op, kernels in enumerate(run.index.kernels):
        assert list(kernels) == [at for at, kernel in enumerate(run.kernels) if kernel.op == op]


def test_readers_of_a_value_are_in_order_and_each_once() -> None:
    builder = RunBuilder()
    x, y = builder.value(), builder.value()
    builder.op("toy::mul", inputs=[x, x])
    builder.op("toy::add", inputs=[y, x])
    assert [list(each) for each in builder.build().index.readers] == [[0, 1], [1]]


def test_a_call_path_leads_from_the_step_to_the_operator() -> None:
    builder = RunBuilder()
    outer = builder.frame("p.py", 3, "step")
    inner = builder.frame("lib.py", 7, "call", parent=outer)
    builder.op("toy::mul", frame=inner)
    builder.op("toy::mul")
    run = builder.build()
    assert [frame.line for frame in run.call_path(0)] == [3, 7]
    assert run.call_path(0) is run.call_path(0)
    assert run.call_path(1) == ()


def test_operators_are_found_by_their_innermost_frame() -> None:
    builder = RunBuilder()
    frames = [builder.frame("p.py", line, "step") for line in (3, 4)]
    for frame in (frames[1], None, frames[0], frames[1]):
        builder.op("toy::mul", frame=frame)
    found = builder.build().index.ops_by_frame
    assert {frame: list(ops) for frame, ops in found.items()} == {frames[1]: [0, 3], None: [1], frames[0]: [2]}


def test_a_very_long_call_path_is_whole() -> None:
    builder, at = RunBuilder(), None
    for line in range(1000):
        at = builder.frame("p.py", line, "again", parent=at)
    builder.op("toy::mul", frame=at)
    assert [frame.line for frame in builder.build().call_path(0)] == list(range(1000))


def test_the_first_source_that_holds_a_line_is_shown() -> None:
    sources = (SourceText("p.py", 7, "  one\n  two\n"), SourceText("p.py", 8, "other\nthree"))
    run = replace(RunBuilder().build(), sources=sources)
    assert [run.line_text("p.py", line) for line in range(6, 11)] == [None, "one", "two", "three", None]


def test_a_changed_run_has_a_new_index() -> None:
    run = gpt2_run(1)
    assert run.index is run.index
    changed = replace(run, kernels=())
    assert not any(changed.index.kernels) and any(run.index.kernels)
    assert changed != run and replace(changed, kernels=run.kernels) == run


def test_the_form_of_a_tensor_is_shape_strides_and_type() -> None:
    builder = RunBuilder()
    value = builder.build(values=(builder.values[builder.value((4, 8), offset=3, dtype="float16")],)).values[0]
    assert value.form == Form((4, 8), (8, 1), "float16")
    assert not value.is_aligned and replace(value, offset=8).is_aligned


def one_op(value: dict[str, Any], op: dict[str, Any], kernel: dict[str, Any]) -> Run:
    builder = RunBuilder()
    given = builder.value((4, 8), **value)
    builder.op("toy::mul", inputs=[given], **op)
    builder.kernel(kernel.pop("name", "mul_kernel"), 1e-6, op=0, **kernel)
    return builder.build()


CHANGES: list[tuple[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = [
    ("always", ({"dtype": "float16"}, {}, {})),
    ("always", ({}, {"overload": "out"}, {})),
    ("always", ({}, {"arguments": "[2]"}, {})),
    ("device", ({"device": "cpu"}, {}, {})),
    ("device", ({}, {"device": "cuda:1"}, {})),
    ("alignment", ({"offset": 1}, {}, {})),
    ("kernels", ({}, {}, {"name": "other_kernel"})),
    ("kernels", ({}, {}, {"grid": (2, 1, 1)})),
    ("never", ({"storage": 9, "name": "w"}, {"module": "layer"}, {"stream": 8})),
]


@pytest.mark.parametrize(("part", "changes"), CHANGES)
def test_each_part_of_the_work_counts_where_it_is_asked_for(part: str, changes: Any) -> None:
    a, b = one_op({}, {}, {}), one_op(*(dict(each) for each in changes))
    assert (work_of(a, 0) == work_of(b, 0)) is (part == "never")
    without = {"device": False, "alignment": False, "kernels": False}
    assert (work_of(a, 0, **without) == work_of(b, 0, **without)) is (part != "always")
    if part in without:
        assert work_of(a, 0, **{**without, part: True}) != work_of(b, 0, **{**without, part: True})


def test_replays_of_an_operator_are_those_of_every_domain() -> None:
    run = small_run()
    assert run.replays_of(0) == run.replays[:2]
    assert run.replays_of(1) == run.replays[2:]
    assert run.replays_of(2) == ()


def test_calls_of_one_distinct_operator_share_its_replays() -> None:
    run = large_run(40)
    assert run.replays_of(10) == run.replays_of(19) == run.replays[2:4]
    assert {replay.op for replay in run.replays_of(19)} == {10}


def test_replays_are_found_at_once_however_many_there_are() -> None:
    run = large_run(2000)
    begin_s = process_time()
    for _ in range(10):
        assert all(len(run.replays_of(op.id)) == 2 for op in run.ops)
    assert process_time() - begin_s < 1.0


def test_the_energy_of_a_replay_has_its_interval_or_is_unknown() -> None:
    measured, _, unmeasured = small_run().replays
    assert measured.energy == Energy(0.01, 0.009, 0.012, "replayed")
    assert unmeasured.energy is None
