"""Names for pieces of source text."""

from __future__ import annotations

import pytest

from joulediff.diagnosis.suspects.source_names import (
    called_name,
    calls_in,
    class_name,
    is_function,
    operator_name,
    sets_code,
    to_value,
)
from joulediff.pysource.edits.naming import function_at


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch.sort(x, dim=-1).values[:, :8]", "torch.sort"),
        ("y = gelu(x)", "gelu"),
        ("log['n'] = count(items)", "count"),
        ("x.float().mul_(2)", "mul_"),
        ("return model(x)", "model"),
        ("seen.append(h.abs().max().item())", "item"),
        ("seen.append(h)", "seen.append"),
        ("x + 1", None),
        ("x = 3", None),
        ("for x in y:\n    f(x)", None),
        ("not python (", None),
        (None, None),
    ],
)
def test_the_function_of_a_text(text: str | None, name: str | None) -> None:
    assert called_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("(a @ b) @ c", "matmul"), ("y = x * 2", "mul"), ("f(x)", None), (None, None)]
)
def test_the_operator_of_a_text(text: str | None, name: str | None) -> None:
    assert operator_name(text) == name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("1e-3", 1e-3),
        ("'high'", "high"),
        ("torch.float64", "torch.float64"),
        ("f(\n  x)", "f( x)"),
        (None, None),
    ],
)
def test_a_literal_has_its_value(text: str | None, value: object) -> None:
    assert to_value(text) == value


TEXT = """
X = 1

class Net:
    def forward(self, x):
        return x

def build():
    y = 2
    def step():
        return y
    return step
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [(2, ""), (6, "Net.forward"), (9, "build"), (11, "build.<locals>.step"), (12, "build"), (99, "")],
)
def test_the_function_around_a_line(line: int, name: str) -> None:
    assert function_at(TEXT, line) == name
    assert function_at("not python (", line) == ""


def test_a_function_that_is_written_out_is_code() -> None:
    assert is_function("lambda x: f(x).g()")
    assert not is_function("f") and not is_function("f(lambda x: x)") and not is_function(None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for block in model.h:\n    block.mlp.act = torch.nn.GELU(approximate='tanh')", True),
        ("model = make()\nmodel.norm = RMSNorm(8)", True),
        ("for module in model.modules():\n    module.__class__ = torch.nn.LayerNorm", True),
        ("Attention._attend = attend", True),
        ("Attention._attend = attend()", False),
        ("Attention.scale = scale", False),
        (
            "for name in names:\n    norm = nn.RMSNorm(8)\n    norm.weight = w\n    model.set_submodule(name, norm)",
            True,
        ),
        ("setattr(model, 'act', attend)", True),
        ("setattr(model, 'width', 8)", False),
        ("model.enable_flash()", False),
        ("model.config.use_cache = False", False),
        ("model = Net()", False),
        ("model.weight = model.weight.to(kind)", False),
        ("for broken in", False),
        (None, False),
    ],
)
def test_an_attribute_that_is_set_to_code(text: str | None, expected: bool) -> None:
    assert sets_code(text, ("attend",)) is expected


def test_calls_are_found_in_the_order_in_which_they_run() -> None:
    assert calls_in("    y = norm(torch.cat([a, b()]))\n    return y.split(2)") == ["b", "torch.cat", "norm", "y.split"]
    assert calls_in("for broken in") == []


def test_a_class_is_told_by_its_capital_letter() -> None:
    assert class_name("torch.nn.GELU") == "torch.nn.GELU"
    assert [class_name(text) for text in ("make", "GELU()", "MAX", '"Text"', None)] == [None] * 5
