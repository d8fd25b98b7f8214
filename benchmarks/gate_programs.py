"""Programs with a known extra cost: a step of 20 equal units of work, or of 21, 22 or 24.

Each function of this module is named after a kind of work and an extra cost in percent, such as `operators_10`.
`operators` repeats products of the step, `host` runs Python, and `unmatched` multiplies other tensors; no output of the
step depends on the extra units.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

UNITS = 20
KINDS = ("operators", "host", "unmatched")
EXTRA_PERCENT = (0, 5, 10, 20)
# Python work of about half a millisecond.
_HOST_LOOPS = 10_000

Step = Callable[[], object]


def extra_units(percent: int) -> int:
    """Return the number of units that are `percent` of those of a step."""
    units, rest = divmod(UNITS * percent, 100)
    if rest:
        raise ValueError(f"{percent} % of {UNITS} units is no whole number of units")
    return units


class _Chain:
    """Products that follow each other: each unit multiplies the result of the one before by the same matrix."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)  # threads that wait for each other make a CPU's energy hard to repeat
        on_gpu = torch.cuda.is_available()
        rows, width = (4096, 2048) if on_gpu else (128, 512)
        device = "cuda" if on_gpu else "cpu"
        self.x, self.other = (torch.randn(rows, width, device=device) for _ in range(2))
        # An orthogonal matrix keeps the size of the numbers, so every unit is the same work.
        self.weight = torch.linalg.qr(torch.randn(width, width, device=device))[0]
        if on_gpu:
            self.x, self.other, self.weight = (each.bfloat16() for each in (self.x, self.other, self.weight))

    def multiply(self, x: torch.Tensor, units: int) -> torch.Tensor:
        for _ in range(units):
            x = x @ self.weight
        return x


def _operators(extra: int) -> Step:
    chain = _Chain()

    def step() -> torch.Tensor:
        chain.multiply(chain.x, extra)
        return chain.multiply(chain.x, UNITS)

    return step


def _unmatched(extra: int) -> Step:
    chain = _Chain()

    def step() -> torch.Tensor:
        chain.multiply(chain.other, extra)
        return chain.multiply(chain.x, UNITS)

    return step


def _host(extra: int) -> Step:
    chain = _Chain()
    x = chain.x[:8, :8].contiguous()  # takes a thousandth of the step

    def step() -> torch.Tensor:
        for _ in range(UNITS + extra):
            _count(_HOST_LOOPS)
        return x + 1

    return step


def _count(loops: int) -> int:
    total = 0
    for each in range(loops):
        total += each & 7
    return total


_BUILDERS = {"operators": _operators, "host": _host, "unmatched": _unmatched}
globals().update(
    {f"{kind}_{percent}": partial(_BUILDERS[kind], extra_units(percent)) for kind in KINDS for percent in EXTRA_PERCENT}
)
