"""The bytes of the arrays that a value holds."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from joulediff.instrument.rewriting.array_bytes import count_bytes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ones(3), 24),
        (np.float32(1), 4),
        ([np.ones(3), np.ones(2)], 40),
        ((np.ones(3), 5, "a"), 24),
        ({"a": np.ones(3), "b": [{"c": np.ones(1)}]}, 32),
        (collections.OrderedDict(a=np.ones(3)), 24),
        (collections.UserDict(a=np.ones(3)), 24),
        (collections.namedtuple("Pair", "a b")(np.ones(1), np.ones(2)), 24),
        (np.ones((4, 4))[::2], 64),
        (np.ma.ones(3), 24),
        ([], None),
        ([1, 2], None),
        ([np.ones(1)] * 2000, None),
        ("a", None),
        (None, None),
        (object(), None),
        (iter([np.ones(3)]), None),
    ],
)
def test_arrays_and_what_holds_them(value: Any, expected: int | None) -> None:
    assert count_bytes(value) == expected


def test_a_list_that_holds_itself_ends() -> None:
    value: list[Any] = [np.ones(1)]
    value.append(value)
    assert count_bytes(value) is not None


def test_no_code_of_the_program_runs() -> None:
    def fail(*_args: object) -> Any:
        raise AssertionError("the program's code ran")

    class List(list):  # type: ignore[type-arg]
        __iter__ = __len__ = __getitem__ = __getattribute__ = fail  # type: ignore[assignment]

    class Dict(dict):  # type: ignore[type-arg]
        values = items = __iter__ = __getitem__ = fail  # type: ignore[assignment]

    class Array(np.ndarray):  # type: ignore[type-arg]
        nbytes = property(fail)  # type: ignore[assignment]
        __getattr__ = fail

    assert count_bytes(List([np.ones(2)])) == 16
    assert count_bytes(Dict(a=np.ones(2))) == 16
    assert count_bytes(np.ones(2).view(Array)) == 16


def test_an_object_of_a_type_without_an_order_of_bases_has_no_size() -> None:
    extension = pytest.importorskip("_testbuffer", reason="this Python is installed without its test extensions")
    failing = extension.ndarray([1, 2], shape=[2], flags=extension.ND_GETBUF_FAIL)
    assert type.__dict__["__mro__"].__get__(type(failing)) is None
    assert count_bytes(failing) is None
    assert count_bytes([failing, np.ones(1)]) == 8


def test_tables_and_sparse_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    table = pandas.DataFrame({"a": np.ones(4), "b": np.ones(4, dtype="float32")})
    assert 48 <= (count_bytes(table) or 0) <= 48 + 200
    assert (count_bytes(table["a"]) or 0) >= 32
    matrix = sparse.csr_matrix(np.eye(3))
    assert count_bytes(matrix) == matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
