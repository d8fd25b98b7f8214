"""Two synthetic runs of any length, made of layers of 8 operators.

A layer reads the output of the last layer and a weight: a product, an activation of five operators that differ between
the runs, a view, and a sum with the input of the layer. Signatures are random, with sketches or without, as those of
old recordings; equal tensors differ by rounding.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from joulediff.model.run import Run
from joulediff.model.signature import SKETCH, SKETCH_STEP, Signature
from run_builders import RunBuilder

OPS = 8


def make_runs(layers: int, seed: int = 0, *, sketches: bool = False) -> tuple[Run, Run]:
    """Return two runs with this number of layers."""
    chance = random.Random(seed)
    a, b = _Builder("a"), _Builder("b")

    def draw() -> Signature:
        return draw_signature(chance, with_sketch=sketches)

    x = draw()
    last_a, last_b = a.give(x), b.give(round_signature(x, chance))
    for _ in range(layers):
        weight, product, active, total = (draw() for _ in range(4))
        layer_a = a.add("mm", [last_a, a.give(weight)], product)
        layer_b = b.add("mm", [last_b, b.give(weight)], round_signature(product, chance))
        inner_a, inner_b = layer_a, layer_b
        for name_a, name_b in (("pow", "mul"), ("mul", "exp"), ("tanh", "add"), ("add", "div")):
            inner_a, inner_b = a.add(name_a, [inner_a], draw()), b.add(name_b, [inner_b], draw())
        done_a = a.add("mul", [inner_a, layer_a], active)
        done_b = b.add("mul", [inner_b, layer_b], round_signature(active, chance))
        view_a, view_b = a.add("view", [done_a], active), b.add("view", [done_b], b.signatures[done_b])
        last_a = a.add("add", [view_a, last_a], total)
        last_b = b.add("add", [view_b, last_b], round_signature(total, chance))
    return a.build(), b.build()


def draw_signature(chance: random.Random, *, with_sketch: bool = False) -> Signature:
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
        # The sums of random signs have a variance of 1 / SKETCH each.
        tuple(round(chance.gauss(0, SKETCH**-0.5) / SKETCH_STEP) for _ in range(SKETCH)) if with_sketch else None,
    )


def round_signature(signature: Signature, chance: random.Random) -> Signature:
    """Return a signature with the rounding errors of another order of computation."""
    names = ("low", "high", "sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
    changes = {name: getattr(signature, name) * (1 + 1e-7 * chance.gauss(0, 1)) for name in names}
    if signature.sketch is None:
        return replace(signature, **changes)
    # Another multiple of the step is the nearest one for few of the sums.
    sketch = tuple(each + (1 if chance.random() < 0.01 else 0) for each in signature.sketch)
    return replace(signature, **changes, sketch=sketch)


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
