"""The names that the body of a loop needs from before, and the objects that it may change."""

from __future__ import annotations

import ast

import pytest

from joulediff.pysource.loops.names import read_assigned_first, read_bindings, read_changed

ASSIGNED_FIRST = {
    "x = f(batch)": {"x"},
    "x = x + 1": set(),
    "x += 1": set(),
    "x, (y, z), self.w, v[0] = batch": {"x"},
    "f(x)\nx = 1": set(),
    "if batch:\n    x = 1": set(),
    "with f() as g:\n    x = g\n    y = x": {"g", "x", "y"},
    "with f(x) as g:\n    x = g": {"g"},
    "show = lambda: x\nx = 1": {"show"},
    "def f(): return x\nx = 1": set(),
    "import x\nx = 1": set(),
    "x = y = x": {"y"},
}


@pytest.mark.parametrize("text", ASSIGNED_FIRST)
def test_names_that_are_assigned_before_they_are_read(text: str) -> None:
    assert read_assigned_first(ast.parse(text).body) == ASSIGNED_FIRST[text]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("batch.pop('a')", {"batch"}),
        ("batch['a'] = 1", {"batch"}),
        ("del batch[0]", {"batch"}),
        ("f(batch)", set()),
        ("x = batch['a']", set()),
        ("def f():\n    batch.clear()", {"batch"}),
        ("self.batch.clear()", set()),
    ],
)
def test_names_whose_objects_are_changed(text: str, names: set[str]) -> None:
    assert read_changed(ast.parse(text).body) == names


def test_declarations_are_read_apart() -> None:
    found = read_bindings(ast.parse("def f():\n    global a\n    nonlocal b\n    a = b = c = 1").body[0].body)
    assert (list(found.declared_global), list(found.declared_nonlocal)) == (["a"], ["b"])
    assert list(found.bound) == ["a", "b", "c"]
