"""Counts the calls of modules in the main thread, with hooks that see every module."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class ModuleCalls:
    """Counts the calls of outermost modules until it is closed."""

    def __init__(self) -> None:
        from torch.nn.modules import module as hooks

        self.calls = 0
        self._depth = 0
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    @property
    def is_inside(self) -> bool:
        """Whether a module is being called now."""
        return self._depth > 0

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _enter(self, _module: torch.nn.Module, _inputs: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self.calls += self._depth == 0
            self._depth += 1

    def _leave(self, _module: torch.nn.Module, *_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._depth = max(0, self._depth - 1)
