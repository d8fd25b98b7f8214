"""Outputs of any type are compared by value: equal ones agree whatever holds them, and unknown ones never do."""

from __future__ import annotations

import datetime
import re
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from joulediff.frameworks.plain.output_tree import flatten
from joulediff.frameworks.plain.signatures import add_outputs, sign_columns, sign_numbers
from joulediff.model.outputs import output_distance
from joulediff.model.run import Run

EMPTY = Run("a", None, "2026-11-20T10:31:22+00:00", "0.1.0")
Point = namedtuple("Point", "x y")
NUMBERS = np.random.default_rng(0).standard_normal(1000)


@dataclass
class Loss:
    value: float
    name: str


class Model:
    def __init__(self, bias: float) -> None:
        self.weights = np.arange(3.0)
        self.bias = bias
        self.rng = np.random.default_rng(1)
        self.activation = np.tanh


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: float) -> None:
        self.x = x


def returning(output: Any) -> Run:
    values, signatures = add_outputs(EMPTY, sign_columns(flatten(output)))
    return replace(EMPTY, values=values, signatures=signatures)


def distance(a: Any, b: Any) -> float | None:
    return output_distance(returning(a), returning(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        ([1, 2, 3], np.array([1.0, 2.0, 3.0])),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], dtype=np.int8)),
        (NUMBERS, NUMBERS.astype(np.float32)),
        (NUMBERS.tolist(), NUMBERS.reshape(10, 100)),
        ({"a": 1, "b": "x"}, {"b": "x", "a": 1}),
        ({1: "x", 2: "y"}, {2: "y", 1: "x"}),
        ({"b", "a"}, {"a", "b"}),
        (["x", "y"], np.array(["x", "y"])),
        ([{"id": 1, "name": "x"}] * 40, tuple([{"name": "x", "id": 1}] * 40)),
        (Loss(1.0, "mean"), Loss(1.0, "mean")),
        (Point(1, [2]), Point(1, [2])),
        (Model(1.0), Model(1.0)),
        (Slotted(2.0), Slotted(2.0)),
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 1)),
        (2**80, 2**80),
        (3 + 4j, np.complex64(3 + 4j)),
        ([], ()),
        ([None, 1], [None, 1]),
        (np.array([1.0, np.nan, np.inf]), np.array([1.0, np.nan, np.inf])),
        ((np.ones(2), np.zeros(2)), [np.ones(2), np.zeros(2)]),
    ],
)
def test_equal_values_agree_whatever_holds_them(a: Any, b: Any) -> None:
    found = distance(a, b)
    assert found is not None and found < 1e-6


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        ([1, 2, 3], [1, 2]),
        ([1, 2, 3, 4], [4, 3, 2, 1]),
        ("text", "texts"),
        ("x" * 10_000, "x" * 9_999 + "y"),
        (["ab", "c"], ["a", "bc"]),
        ({"a": 1}, {"b": 1}),
        ({1: "x"}, {1: "y"}),
        (Loss(1.0, "mean"), Loss(1.0, "sum")),
        (Model(1.0), Model(2.0)),
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
        (np.datetime64("2026-01-01"), np.datetime64("2026-01-02")),
        (2**80, 2**80 + 1),
        ([], [0]),
        ([None, 1], [None, 2]),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0])),
        (NUMBERS, NUMBERS[::-1].copy()),
    ],
)
def test_other_values_differ(a: Any, b: Any) -> None:
    found = distance(a, b)
    assert found is not None and found > 0.05


@pytest.mark.parametrize(
    "output", [(x for x in ()), re.match("a", "a"), lambda: 1, {"a": iter([])}, [object()], None, re]
)
def test_what_cannot_be_read_never_agrees(output: Any) -> None:
    assert distance(output, output) is None


def test_an_unknown_part_leaves_the_whole_unknown() -> None:
    a, b = {"x": 1, "stream": iter([])}, {"x": 1, "stream": iter([])}
    assert distance(a, b) is None
    assert distance({"x": 1, "stream": iter([])}, {"x": 1}) is None


def test_an_object_inside_of_itself_has_an_end() -> None:
    loop: list[Any] = [1.0, "x"]
    loop.append(loop)
    assert distance(loop, loop) == 0.0


def test_large_arrays_are_signed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sign_numbers([NUMBERS])
    monkeypatch.setattr("joulediff.frameworks.plain.signatures.BLOCK", 64)
    parts = sign_numbers([NUMBERS[:300], NUMBERS[300:]])
    assert (parts.count, parts.low, parts.high, parts.sketch) == (whole.count, whole.low, whole.high, whole.sketch)
    assert parts.sum_x2 == pytest.approx(whole.sum_x2)


def test_tables_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"key": ["x", "y"], "value": [1.0, 2.0]})
    assert distance(table, table[["value", "key"]]) == 0.0
    assert distance(table, table.assign(value=[1, 2])) == 0.0
    assert (distance(table, table.assign(key=["x", "z"])) or 0.0) > 0.1
    assert (distance(table, table.set_index("key")) or 0.0) > 0.1
    assert distance(table["value"], np.array([1.0, 2.0])) == 0.0
    assert distance(pandas.Series([1, None], dtype="Int64"), pandas.Series([1.0, float("nan")])) == 0.0


def test_names_are_those_of_a_framework_for_several_results() -> None:
    columns: Mapping[str, Any] = flatten((np.ones(2), {"logits": np.ones(3)}))
    assert [*columns] == ["output.0", "output.1.logits"]
