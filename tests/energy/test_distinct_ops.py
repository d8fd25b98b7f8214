"""Distinct operators: which calls do the same work, and which of them is replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_builders import runs
from joulediff.energy.distinct_ops import find_distinct_ops
from joulediff.model.run import Run
from run_builders import RunBuilder, gpt2_run

Changes = dict[str, Any]


def count_kinds(*, value: Changes | None = None, op: Changes | None = None, kernel: Changes | None = None) -> int:
    """Return the number of distinct operators of two calls, the second with these changes."""
    made = RunBuilder()
    for of_value, of_op, of_kernel in (({}, {}, {}), (value or {}, op or {}, kernel or {})):
        made.values.append(replace(made.values[made.value((64, 32))], **of_value, id=len(made.values)))
        number = made.op(**{"name": "aten::add", "inputs": [len(made.values) - 1], **of_op})
        made.kernel(**{"name": "add_kernel", "duration_s": 1e-5, "op": number, **of_kernel})
    return len(find_distinct_ops(made.build()))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"value": {"storage": 77, "signature": None, "name": "weight", "kind": "parameter", "producer": 0}},
        {"value": {"offset": 4}},  # 16 bytes: as aligned as at the begin
        {"op": {"module": "h.3", "frame": 3, "phase": "backward", "thread": 1, "grad": True}},
        {"kernel": {"duration_s": 3e-5, "stream": 9, "size_bytes": 12}},
    ],
)
def test_calls_of_one_kind(changes: dict[str, Changes]) -> None:
    assert count_kinds(**changes) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"value": {"shape": (32, 64)}},
        {"value": {"strides": (1, 64)}},
        {"value": {"dtype": "float16"}},
        {"value": {"device": "cuda:1"}},
        {"value": {"offset": 1}},
        {"op": {"name": "aten::mul"}},
        {"op": {"overload": "Scalar"}},
        {"op": {"arguments": '[{"tensor": 0}, 2.0]'}},
        {"op": {"device": "cuda:1"}},
        {"op": {"inputs": []}},
        {"kernel": {"name": "other_kernel"}},
        {"kernel": {"kind": "memcpy"}},
        {"kernel": {"grid": (2, 1, 1)}},
        {"kernel": {"block": (128, 1, 1)}},
    ],
)
def test_calls_of_two_kinds(changes: dict[str, Changes]) -> None:
    assert count_kinds(**changes) == 2


@given(st.lists(st.floats(1e-7, 1e-2), min_size=1, max_size=9))
def test_the_call_of_median_time_represents_its_kind(times_s: list[float]) -> None:
    made = RunBuilder()
    value = made.value()
    for time_s in times_s:
        op = made.op("aten::mm", inputs=[value])
        made.kernel("gemm", time_s / 4, op=op)
        made.kernel("reduce", 3 * time_s / 4, op=op)
    (kind,) = find_distinct_ops(made.build())
    assert kind.ops == tuple(range(len(times_s)))
    assert kind.call_s == pytest.approx(sorted(times_s)[len(times_s) // 2])
    assert kind.call_s == pytest.approx(times_s[kind.op])
    assert kind.time_s == pytest.approx(sum(times_s))


@given(runs())
@settings(deadline=None, max_examples=50)
def test_every_operator_that_a_device_worked_on_is_in_exactly_one_kind(run: Run) -> None:
    kinds = find_distinct_ops(run)
    working = sorted({kernel.op for kernel in run.kernels if kernel.op is not None})
    assert sorted(op for kind in kinds for op in kind.ops) == working
    assert all(kind.op in kind.ops for kind in kinds)
    times_s = [kind.time_s for kind in kinds]
    assert times_s == sorted(times_s, reverse=True)
    assert sum(times_s) == pytest.approx(sum(k.duration_s for k in run.kernels if k.op is not None))


def test_the_layers_of_a_model_share_their_kinds() -> None:
    small, large = find_distinct_ops(gpt2_run(2)), find_distinct_ops(gpt2_run(12))
    assert len(small) == len(large)
    assert max(len(kind.ops) for kind in large) > max(len(kind.ops) for kind in small)


def test_a_run_without_kernels_has_no_kinds() -> None:
    made = RunBuilder()
    made.op("aten::view", inputs=[made.value()])
    made.kernel("stray", 1e-5)
    assert find_distinct_ops(made.build()) == ()


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 4),
        ("bfloat16", 2),
        ("complex128", 16),
        ("int64", 8),
        ("uint8", 1),
        ("bool", 1),
        ("float8_e4m3fn", 1),
        ("float4_e2m1fn_x2", 1),
    ],
)
def test_bytes_of_an_element(dtype: str, size: int) -> None:
    made = RunBuilder()
    made.value((3, 5), dtype=dtype)
    assert made.values[0].item_bytes == size
    assert made.values[0].size_bytes == 15 * size


def test_an_expanded_tensor_takes_the_memory_of_its_elements() -> None:
    made = RunBuilder()
    made.value((8, 64), repeats=8)
    made.value((0, 64))
    assert [value.size_bytes for value in made.values] == [64 * 4, 0]
