"""Two synthetic runs of any length, made of layers of 8 operators.

A layer reads the output of the last layer and a weight: a product, an activation of five operators that differ between
the runs, a view, and a sum with the input of the layer. Signatures are random; equal tensors differ by rounding.
"""

from __future__ import annotations

import math
import random
from typing import Any

from joulediff.model.run import Run
from joulediff.model.signature import Signature
from run_builders import RunBuilder

OPS = 8


def make_runs(layers: int, seed: int = 0) -> tuple[Run, Run]:
    """Return two runs with this number of layers."""
    chance = random.Random(seed)
    a, b = _Builder("a"), _Builder("b")
    x = _draw(chance)
    last_a, last_b = a.give(x), b.give(_round(x, chance))
    for _ in range(layers):
        weight, product, active, total = (_draw(chance) for _ in range(4))
        layer_a = a.add("mm", [last_a, a.give(weight)], product)
        layer_b = b.add("mm", [last_b, b.give(weight)], _round(product, chance))
        inner_a, inner_b = layer_a, layer_b
        for name_a, name_b in (("pow", "mul"), ("mul", "exp"), ("tanh", "add"), ("add", "div")):
            inner_a, inner_b = a.add(name_a, [inner_a], _draw(chance)), b.add(name_b, [inner_b], _draw(chance))
        done_a = a.add("mul", [inner_a, layer_a], active)
        done_b = b.add("mul", [inner_b, layer_b], _round(active, chance))
        view_a, view_b = a.add("view", [done_a], active), b.add("view", [done_b], b.signatures[done_b])
        last_a = a.add("add", [view_a, last_a], total)
        last_b = b.add("add", [view_b, last_b], _round(total, chance))
    return a.build(), b.build()


def _draw(chance: random.Random) -> Signature:
    """Return the signature of a tensor of many random numbers."""
    count, scale, shift = 4096, math.exp(chance.gauss(0, 1)), 0.1 * chance.gauss(0, 1)

    def near(value: float) -> float:
        return value * (1 + 0.02 * chance.gauss(0, 1))

    return Signature(
        count,
        0,
        0,
        0,
        0,
        False,
        -near(3.6) * scale,
        near(3.6) * scale,
        count * scale * shift,
        count * scale * near(0.798),
        count * scale**2,
        count * scale**3 * near(3 * shift),
        count * scale**4 * near(3.0),
    )


def _round(signature: Signature, chance: random.Random) -> Signature:
    """Return a signature with the rounding errors of another order of computation."""
    names = ("low", "high", "sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
    facts = {name: getattr(signature, name) for name in Signature.__dataclass_fields__}
    return Signature(**{**facts, **{name: facts[name] * (1 + 1e-7 * chance.gauss(0, 1)) for name in names}})


class _Builder:
    def __init__(self, label: str) -> None:
        self.label = label
        self.builder = RunBuilder("cpu")
        self.signatures: list[Signature] = []

    def give(self, signature: Signature) -> int:
        return self._value(signature, kind="input")

    def add(self, name: str, inputs: list[int], signature: Signature) -> int:
        op = len(self.builder.ops)
        value = self._value(signature, producer=op, writers=(op,))
        self.builder.op(f"aten::{name}", inputs=inputs, outputs=[value])
        return value

    def build(self) -> Run:
        return self.builder.build(label=self.label, signatures=tuple(self.signatures))

    def _value(self, signature: Signature, **facts: Any) -> int:
        self.signatures.append(signature)
        return self.builder.value((4096,), signature=len(self.signatures) - 1, **facts)
