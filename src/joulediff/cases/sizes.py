"""The device that a case runs on, and sizes for it: small ones take moments on a CPU, large ones fill a GPU.

Both come from the program's arguments, `--device` and `--size`, so that a case also runs without joulediff.
"""

from __future__ import annotations

import argparse


def _read() -> tuple[str, str]:
    arguments = argparse.ArgumentParser(add_help=False)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--size", choices=("small", "large"))
    found, _ = arguments.parse_known_args()
    return found.device, found.size or ("small" if found.device == "cpu" else "large")


DEVICE, SIZE = _read()


def pick(small: int, large: int) -> int:
    """Return the size that was asked for."""
    return large if SIZE == "large" else small
