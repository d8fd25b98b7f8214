"""What is put around a watched step: the dispatch mode, compiled code run as written, no warnings of ours.

`Sieve` decides what counts as an operator. The captured pass and the one that collects inputs for replay share it,
so the number of an operator means the same in both.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from joulediff.recorders.torch.composite import run_parts
from joulediff.recorders.torch.outputs import is_made_of_tensors
from joulediff.recorders.torch.schema import Facts, Schemas
from joulediff.recorders.torch.vectors import as_asked

Take = Callable[[Facts, Any, tuple[Any, ...], dict[str, Any]], object]
Dispatch = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], object]

# Compiled functions run as they are written, with hooks on every module.
_OWN_WARNINGS = (
    r"Using `torch.compile\(module\)` when there are global hooks",
    "flex_attention called without torch.compile",
)


class Sieve:
    """Hands every operator that is work to `take`, which runs it; takes others apart or lets them pass."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._schemas = Schemas()
        self._made_of_tensors: dict[Any, bool] = {}
        self._process = os.getpid()
        self._overload = _overload()
        self.inside: set[int] = set()
        """Threads in which an operator is being taken: what it calls itself is part of it."""
        self.mode = make_mode(self._dispatch)

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        me = threading.get_ident()
        if me in self.inside or os.getpid() != self._process:  # the latter in a worker that the step started
            return func(*args, **kwargs)
        if types and any(self._is_made_of_tensors(kind) for kind in types):
            return NotImplemented  # the operators on its parts come next
        asked = as_asked(func, args) if isinstance(func, self._overload) else None
        if asked is not None:
            func, args, adapt = asked
            return adapt(self._run(func, args, kwargs))
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        me, facts = threading.get_ident(), self._schemas.of(func)
        if facts is None or facts.is_composite:
            return run_parts(self.mode, func, args, kwargs)
        if not facts.is_work:
            return func(*args, **kwargs)
        self.inside.add(me)
        try:
            return self._take(facts, func, args, kwargs)
        finally:
            self.inside.discard(me)

    def _is_made_of_tensors(self, kind: Any) -> bool:
        found = self._made_of_tensors.get(kind)
        if found is None:
            found = self._made_of_tensors[kind] = is_made_of_tensors(kind)
        return found


def _overload() -> type:
    from torch._ops import OpOverload

    return OpOverload  # type: ignore[no-any-return]


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
