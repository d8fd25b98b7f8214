"""Run operators that are made of others, so that a dispatch mode sees those.

Autograd takes composite operators (`aten::linear`) apart before a mode sees them; in inference mode nothing does.
Operators of higher order (`torch.cond`, flex attention) are Python code that runs operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# How PyTorch's own code for such an operator refuses to run under a mode, before it does anything.
_REFUSAL = "Mode should never be enabled"


def run_parts(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Return what `func` returns, with `mode` around the operators it is made of."""
    run = _run_composite if hasattr(func, "_schema") else _run_higher_order
    return run(mode, func, args, kwargs)


def _run_composite(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    from torch._C import DispatchKey

    key = DispatchKey.CompositeImplicitAutograd
    code = func.py_kernels.get(key)
    with mode, _tracking_views():  # as OpOverload.decompose does, without its frame
        return func._op_dk(key, *args, **kwargs) if code is None else code(*args, **kwargs)  # noqa: SLF001


@contextmanager
def _tracking_views() -> Iterator[None]:
    """Let views know their base again, as they do outside of a mode's method.

    A view of a weight needs a gradient then, by which `matmul` chooses between `mm` and `bmm`.
    """
    from torch import _C as core  # noqa: N811

    key = core.DispatchKey.ADInplaceOrView
    was = core._dispatch_tls_is_dispatch_key_excluded(key)  # noqa: SLF001
    core._dispatch_tls_set_dispatch_key_excluded(key, False)  # noqa: SLF001
    try:
        yield
    finally:
        core._dispatch_tls_set_dispatch_key_excluded(key, was)  # noqa: SLF001


def _run_higher_order(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    from torch._C import DispatchKey

    code = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if code is not None:
        try:
            with mode:
                return code(*args, **kwargs)
        except AssertionError as error:
            if _REFUSAL not in str(error):
                raise
    return func(*(_under(mode, each) if callable(each) else each for each in args), **kwargs)


def _under(mode: Any, function: Callable[..., object]) -> Callable[..., object]:
    def run(*args: Any, **kwargs: Any) -> object:
        with mode:
            return function(*args, **kwargs)

    return run
