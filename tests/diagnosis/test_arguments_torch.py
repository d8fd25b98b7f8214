"""Arguments of PyTorch's operators, named by their declarations and by the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from diagnosis_builders import costs
from diagnosis_torch import draw, record
from joulediff.diagnosis.compare import diagnose
from joulediff.frameworks.framework import schema_of
from joulediff.frameworks.torch.schemas import _schemas

X, THIN, IMAGE = draw(64, 64), draw(64, 16, seed=1), draw(2, 3, 32, 32, seed=2)
ATTENTION = nn.MultiheadAttention(64, 4, batch_first=True).eval()


def test_every_declared_argument_has_the_name_that_torch_gives_it() -> None:
    count = 0
    for name, overload in _schemas():
        packet = getattr(torch.ops.aten, name, None)
        op = getattr(packet, overload or "default", None)
        if op is None:
            continue
        found = schema_of(f"aten::{name}", overload or "default")
        assert found is not None
        assert [each.name for each in found] == [each.name for each in op._schema.arguments], name
        count += 1
    assert count > 2000


def test_defaults_and_unknown_operators() -> None:
    found = schema_of("aten::topk", "default")
    assert found is not None
    assert {each.name: each.default for each in found} == {
        "self": None,
        "k": None,
        "dim": -1,
        "largest": True,
        "sorted": True,
    }
    assert schema_of("aten::no_such_operator", "default") is None
    assert schema_of("toy::topk", "default") is None


def no_grad(step: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with torch.no_grad():
            return step()

    return run


def exact() -> Any:
    return X.sum(dim=1, dtype=torch.float64).float() + 1


def plain() -> Any:
    return X.sum(dim=1) + 1


def square() -> Any:
    return torch.linalg.svd(THIN, True)[1] * 2


def thin() -> Any:
    return torch.linalg.svd(THIN, False)[1] * 2


def divide() -> Any:
    return torch.linalg.lstsq(X, THIN, driver="gelsd").solution * 2


def factor() -> Any:
    return torch.linalg.lstsq(X, THIN, driver="gels").solution * 2


def weights() -> Any:
    return ATTENTION(X[None], X[None], X[None], need_weights=True)[0]


def no_weights() -> Any:
    return ATTENTION(X[None], X[None], X[None], need_weights=False)[0]


def smooth() -> Any:
    return nn.functional.interpolate(IMAGE, scale_factor=2, mode="bilinear", antialias=True)


def rough() -> Any:
    return nn.functional.interpolate(IMAGE, scale_factor=2, mode="bilinear")


@pytest.mark.parametrize(
    ("steps", "op", "key"),
    [
        ((exact, plain), "sum", "dtype"),
        ((square, thin), "_linalg_svd", "full_matrices"),
        ((divide, factor), "linalg_lstsq", "driver"),
        ((weights, no_weights), "_native_multi_head_attention", "need_weights"),
        ((smooth, rough), "_upsample_bilinear2d_aa", "antialias"),
    ],
)
def test_the_argument_is_the_first_finding(steps: tuple[Any, Any], op: str, key: str) -> None:
    a, b = record(no_grad(steps[0]), costs({op: 9.0})), record(no_grad(steps[1]), costs({}))
    found = diagnose(a, b).findings[0]
    assert (found.kind, found.cause.type, found.cause.key) == ("api_misuse", "argument", key)
    assert found.cause.location_a is not None and found.cause.location_a.function == steps[0].__name__


@pytest.mark.parametrize("step", [exact, square, divide, weights, smooth])
def test_a_program_and_itself_have_no_finding(step: Callable[[], Any]) -> None:
    assert not diagnose(record(no_grad(step), costs({})), record(no_grad(step), costs({}))).findings
