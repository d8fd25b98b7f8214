"""The device that a case runs on, and sizes for it: small ones run on a CPU in moments, large ones fill a GPU.

Read from the program's own arguments, `--device` and `--size`, so that a case runs without joulediff's command too.
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
