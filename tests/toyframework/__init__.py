"""A framework of eager arrays on an invented accelerator, for tests of everything that must work with any framework.

`matmul` has a slow kernel for a right side that is not contiguous, and `exp` a slow one unless `fast_math` is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from joulediff.measuring.meters.scripted import FakeClock
from replay_fakes import FakeCard, Work

DEVICE = "toy:0"
KERNELS = {
    "gemm": Work(600.0, 2e-3),
    "gemm_strided": Work(600.0, 4e-3),
    "exp_fast": Work(500.0, 1e-3),
    "exp_exact": Work(500.0, 2e-3),
    "add": Work(400.0, 1e-3),
}
clock = FakeClock()
card = FakeCard(clock, limit_w=None)
fast_math = False


class Array:
    """A view of numbers on the accelerator."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def t(self) -> Array:
        return _run("transpose", [self], lambda x: x.T, kernel=None)


@dataclass(frozen=True)
class Call:
    """One executed operator."""

    name: str
    inputs: tuple[Array, ...]
    output: Array
    kernel: str | None
    start_s: float
    compute: Callable[..., np.ndarray]


_listeners: list[Callable[[Call], None]] = []


@contextmanager
def listening(listener: Callable[[Call], None]) -> Iterator[None]:
    """Call a function after each operator."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def set_fast_math(enabled: bool) -> None:
    global fast_math
    fast_math = enabled


def array(data: np.ndarray) -> Array:
    return Array(data)


def matmul(left: Array, right: Array) -> Array:
    kernel = "gemm" if right.data.flags.c_contiguous else "gemm_strided"
    return _run("matmul", [left, right], lambda x, y: np.ascontiguousarray(x @ y), kernel=kernel)


def exp(x: Array) -> Array:
    return _run("exp", [x], np.exp, kernel="exp_fast" if fast_math else "exp_exact")


def add(left: Array, right: Array) -> Array:
    return _run("add", [left, right], np.add, kernel="add")


def _run(name: str, inputs: list[Array], compute: Callable[..., np.ndarray], *, kernel: str | None) -> Array:
    start_s = clock.now()
    if kernel is not None:
        card.work(KERNELS[kernel], 1)
    call = Call(
        f"toy::{name}", tuple(inputs), Array(compute(*(each.data for each in inputs))), kernel, start_s, compute
    )
    for listener in _listeners:
        listener(call)
    return call.output
