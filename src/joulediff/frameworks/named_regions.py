"""Parts of a program that its author names: `with joulediff.region("prefill"): ...`.

A region costs a list operation and nothing else unless the program is being recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Names(threading.local):
    def __init__(self) -> None:
        self.stack: list[str] = []


_names = _Names()


@contextmanager
def region(name: str) -> Iterator[None]:
    """Name the operators that run inside; regions may be nested. Also usable as a decorator."""
    stack = _names.stack
    stack.append(str(name).replace("/", "∕"))  # a slash separates regions
    try:
        yield
    finally:
        stack.pop()


def current_region() -> str | None:
    """Return the regions of this thread, outermost first, with slashes."""
    return "/".join(_names.stack) or None


def join_regions(outer: str | None, inner: str | None) -> str | None:
    """Return the regions around a task together with those inside it."""
    return f"{outer}/{inner}" if outer and inner else outer or inner
