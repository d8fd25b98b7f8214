"""What is put around the captured step: the dispatch mode, compiled code run as written, no warnings of ours."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Dispatch = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], object]

# Compiled functions run as they are written, with hooks on every module.
_OWN_WARNINGS = (
    r"Using `torch.compile\(module\)` when there are global hooks",
    "flex_attention called without torch.compile",
)


def make_mode(dispatch: Dispatch) -> Any:
    """Return a dispatch mode that hands every operator to `dispatch`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Capture(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled meanwhile, so it need not be kept out

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
            return dispatch(func, types, args, kwargs or {})

    return Capture()


@contextmanager
def compiled_as_written() -> Iterator[None]:
    """Run compiled functions as they are written, for as long as it lasts."""
    import torch

    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None:
        yield  # older versions do that under a dispatch mode by themselves
        return
    with set_stance("force_eager"):
        yield


@contextmanager
def without_own_warnings() -> Iterator[None]:
    """Keep PyTorch from warning the user of what is our doing. Other warnings pass."""
    if "torch._dynamo" not in sys.modules:
        yield  # nothing is compiled
        return
    before = list(warnings.filters)
    for message in _OWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    ours = [each for each in warnings.filters if each not in before]
    try:
        yield
    finally:
        for each in ours:
            if each in warnings.filters:
                warnings.filters.remove(each)  # type: ignore[attr-defined]
