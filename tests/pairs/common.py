"""Shared by the pairs: the device, sizes for it, and the record of an expected finding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
MARK = "# <- here"


@dataclass(frozen=True)
class Expected:
    """The expected first finding of a pair. `devices` are those on which the waste exists."""

    kind: str
    key: str
    type: str
    devices: tuple[str, ...] = ("cpu", "cuda")
    confirmed: bool = True


def marked_line(module_file: str) -> int:
    """Return the number of the line that a finding must name."""
    lines = Path(module_file).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith(MARK))


def pick(on_cpu: int, on_gpu: int) -> int:
    """Return a size for the device of this machine."""
    return on_gpu if ON_GPU else on_cpu
