"""Long runs whose tensors cannot be told apart by their values, made without a framework.

- `converging`: x = cos(x) until all elements are one number.
- `settling`: x = cos(w * x) until nothing changes; the elements stay different.
- `repeating`: the same product and activation of the same tensors, again and again.
- `constant`: every tensor holds one number, which changes from operator to operator.
- `nan`: the logarithm of negative numbers, and arithmetic with it.
- `layers`: layers of random tensors, as models have; the second recording differs by rounding.

A recording of such a program must match itself, and another recording of it: every operator with itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from invented import sign
from joulediff.model.finding import Region
from joulediff.model.run import Run
from joulediff.model.signature import Signature
from rewrites.synthetic import draw_signature, round_signature
from run_builders import RunBuilder

SIZE = 64


class _Recorder:
    """Adds operators to a run. Arrays that were signed before are not signed again."""

    def __init__(self) -> None:
        self.builder = RunBuilder("cpu")
        self.signatures: list[Signature] = []
        self.frame = self.builder.frame("program.py", 4, "step")
        self._known: dict[bytes, Signature] = {}

    def give(self, content: np.ndarray | Signature, name: str) -> int:
        return self._value(content, kind="input", name=name)

    def add(self, name: str, inputs: Sequence[int], content: np.ndarray | Signature) -> int:
        op = len(self.builder.ops)
        value = self._value(content, producer=op, writers=(op,))
        self.builder.op(f"aten::{name}", inputs=inputs, outputs=[value], frame=self.frame)
        return value

    def _value(self, content: np.ndarray | Signature, **facts: object) -> int:
        signature = content if isinstance(content, Signature) else self._sign(content)
        self.signatures.append(signature)
        shape = (signature.count,) if isinstance(content, Signature) else content.shape
        return self.builder.value(shape, signature=len(self.signatures) - 1, **facts)

    def _sign(self, array: np.ndarray) -> Signature:
        key = array.tobytes()
        if key not in self._known:
            self._known[key] = sign(array)
        return self._known[key]


Steps = Iterator[int]
"""The output of each operator, as they are added."""


def _converging(run: _Recorder) -> Steps:
    x = np.random.default_rng(0).standard_normal(SIZE)
    at = run.give(x, "x")
    while True:
        x = np.cos(x)
        at = run.add("cos", [at], x)
        yield at


def _settling(run: _Recorder) -> Steps:
    chance = np.random.default_rng(0)
    x, w = chance.standard_normal(SIZE), chance.uniform(0.2, 0.9, SIZE)
    at, weight = run.give(x, "x"), run.give(w, "w")
    while True:
        product = run.add("mul", [at, weight], w * x)
        yield product
        x = np.cos(w * x)
        at = run.add("cos", [product], x)
        yield at


def _repeating(run: _Recorder) -> Steps:
    chance = np.random.default_rng(0)
    x, w = chance.standard_normal((8, 8)), chance.standard_normal((8, 8))
    given, weight = run.give(x, "x"), run.give(w, "w")
    while True:
        product = run.add("mm", [given, weight], x @ w)
        yield product
        yield run.add("tanh", [product], np.tanh(x @ w))


def _constant(run: _Recorder) -> Steps:
    number = 1.0
    at = run.give(np.full(SIZE, number), "x")
    while True:
        number = 0.5 + 0.999 * number if number < 400 else 1.0
        at = run.add("mul", [at], np.full(SIZE, number))
        yield at


def _nan(run: _Recorder) -> Steps:
    x = np.random.default_rng(0).standard_normal(SIZE)
    given = at = run.give(x, "x")
    with np.errstate(invalid="ignore"):
        x = np.log(-np.abs(x))
    at = run.add("log", [given], x)
    yield at
    while True:
        at = run.add("mul", [at, given], x)
        yield at
        at = run.add("add", [at, given], x)
        yield at


def _layers(run: _Recorder) -> Steps:
    chance = random.Random(0)

    def draw() -> Signature:
        return draw_signature(chance, with_sketch=True)

    x = run.give(draw(), "x")
    while True:
        product = run.add("mm", [x, run.give(draw(), "w")], draw())
        yield product
        active = run.add("tanh", [product], draw())
        yield active
        x = run.add("add", [active, x], draw())
        yield x


PROGRAMS: dict[str, Callable[[_Recorder], Steps]] = {
    "converging": _converging,
    "settling": _settling,
    "repeating": _repeating,
    "constant": _constant,
    "nan": _nan,
    "layers": _layers,
}


def make_repetitive(program: str, ops: int) -> Run:
    """Return a recording of a program of this number of operators. The last tensor is the output of the step."""
    run = _Recorder()
    last = next(islice(PROGRAMS[program](run), ops - 1, None))
    run.builder.values[last] = replace(run.builder.values[last], name="output")
    return run.builder.build(label=program, signatures=tuple(run.signatures))


def record_again(run: Run, *, seed: int = 1) -> Run:
    """Return another recording of a program. The layers differ by rounding, the other programs by nothing."""
    if run.label != "layers":
        return replace(run, label=run.label)
    chance = random.Random(seed)
    return replace(run, signatures=tuple(round_signature(each, chance) for each in run.signatures))


def share_with_itself(run: Run, regions: Sequence[Region]) -> float:
    """Return the share of operators in regions whose two sides are the same operators."""
    return sum(len(each.a) for each in regions if each.a == each.b) / len(run.ops)
