"""Runs a step without the waits of one line: the numbers that it reads from a device there are those of an earlier run.

The program computes the same as before, without the wait. So the difference in energy is the cost of waiting.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from joulediff.frameworks.framework import source_hints
from joulediff.model.errors import JoulediffError
from joulediff.pysource.call_path import name_file
from joulediff.pysource.programs import Step

# Methods that read a tensor as a number.
_READS = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__")


@contextmanager
def without_sync(step: Step, *, file: str, line: int, root: str, begin: Callable[[], None]) -> Iterator[Step]:
    """Yield the step without the waits of a line; raises JoulediffError if the line reads no number."""
    import torch

    memory = _Memory(file, line, root)
    before = {name: vars(torch.Tensor).get(name) for name in _READS}
    for name in _READS:
        setattr(torch.Tensor, name, memory.reading(getattr(torch.Tensor, name)))
    try:
        begin()
        step()
        if not memory.values:
            raise JoulediffError(f"{file}:{line} reads no number of a tensor that could be remembered")
        memory.known = True

        def remembering() -> object:
            memory.at = 0
            return step()

        yield remembering
    finally:
        for name, function in before.items():
            if function is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, function)


class _Memory:
    """The numbers that a line read, in order."""

    def __init__(self, file: str, line: int, root: str) -> None:
        self._place = (file, line)
        self._root = root
        self._files: dict[str, str] = {}
        self.values: list[Any] = []
        self.known = False
        self.at = 0

    def reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def remember(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_here(sys._getframe(1)):  # noqa: SLF001
                return read(tensor, *args, **kwargs)
            if self.known and self.at < len(self.values):
                self.at += 1
                return copy.deepcopy(self.values[self.at - 1])  # the program may change the list
            value = read(tensor, *args, **kwargs)
            if not self.known:
                self.values.append(copy.deepcopy(value))
            return value

        return remember

    def _is_here(self, frame: Any) -> bool:
        real = frame.f_code.co_filename
        if real not in self._files:
            self._files[real] = name_file(real, self._root, source_hints())[0]
        return (self._files[real], frame.f_lineno) == self._place
