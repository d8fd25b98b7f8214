"""The contexts around a recorded step: the dispatch mode, compiled code run eagerly, and no warnings caused by us.

`Sieve` decides which dispatched calls count as operators. The captured pass and the one that collects inputs for replay
share it, so that operators have the same numbers in both.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

from joulediff.frameworks.torch.capture.arguments import Facts, Schemas
from joulediff.frameworks.torch.tensor_tree import is_made_of_tensors

Take = Callable[[Facts, Any, tuple[Any, ...], dict[str, Any]], object]
Dispatch = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], object]

# Compiled functions run eagerly, with hooks on every module.
_OWN_WARNINGS = (
    r"Using `torch.compile\(module\)` when there are global hooks",
    "flex_attention called without torch.compile",
)


class Sieve:
    """Passes every operator that does work to `take`, which runs it; decomposes others or runs them unrecorded."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._schemas = Schemas()
        self._made_of_tensors: dict[Any, bool] = {}
        self._process = os.getpid()
        self._overload = _overload()
        self._is_open = True
        self.inside: set[int] = set()
        """Threads in which an operator is running: operators that it calls are part of it."""
        self.mode = make_mode(self._dispatch)

    def close(self) -> None:
        """Let every operator run unrecorded: a thread may outlive the step with the mode active."""
        self._is_open = False

    def is_inside(self) -> bool:
        """Return whether this thread runs an operator."""
        return threading.get_ident() in self.inside

    def activate(self) -> Callable[[], None]:
        """Activate the mode in this thread, unless it is, and return how to end that.

        The mode as a context sets variables of all threads, too; the thread of the step has done so.
        """
        from torch.utils import _python_dispatch as modes

        if any(each is self.mode for each in modes._get_current_dispatch_mode_stack()):  # noqa: SLF001
            return _do_nothing
        modes._push_mode(self.mode)  # noqa: SLF001

        def deactivate() -> None:
            if modes._get_current_dispatch_mode() is self.mode:  # noqa: SLF001
                modes._pop_mode()  # noqa: SLF001

        return deactivate

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        me = threading.get_ident()
        if not self._is_open or me in self.inside or os.getpid() != self._process:  # in a worker that the step started
            return func(*args, **kwargs)
        if types and any(self._is_made_of_tensors(kind) for kind in types):
            return NotImplemented  # the operators on its parts come next
        asked = as_asked(func, args) if isinstance(func, self._overload) else None
        if asked is not None:
            func, args, adapt = asked
            return adapt(self._run(func, args, kwargs))
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        facts = self._schemas.of(func)
        if facts is None or facts.is_composite:
            return run_parts(self.mode, func, args, kwargs)
        if not facts.is_work:
            return func(*args, **kwargs)
        return self.run(facts, func, args, kwargs)

    def run(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Pass one call to `take`: operators that it calls are part of it."""
        with self.paused():
            return self._take(facts, func, args, kwargs)

    def facts_of(self, func: Any) -> Facts | None:
        """Return the facts of an operator."""
        return self._schemas.of(func)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the operators of this thread pass unrecorded within the context."""
        me = threading.get_ident()
        self.inside.add(me)
        try:
            yield
        finally:
            self.inside.discard(me)

    def _is_made_of_tensors(self, kind: Any) -> bool:
        found = self._made_of_tensors.get(kind)
        if found is None:
            found = self._made_of_tensors[kind] = is_made_of_tensors(kind)
        return found


def _do_nothing() -> None:
    pass


def _overload() -> type:
    from torch._ops import OpOverload

    return OpOverload  # type: ignore[no-any-return]


def make_mode(dispatch: Dispatch) -> Any:
    """Return a dispatch mode that passes every operator to `dispatch`."""
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
    """Run compiled functions eagerly within the context.

    A program that has not loaded the compiler has no compiled function. Setting the stance would load it: 800 modules,
    3.5 s on an H200's machine (`benchmarks/live_diff.py`).
    """
    import torch

    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None or "torch._dynamo" not in sys.modules:
        yield  # older versions do that under a dispatch mode by themselves
        return
    with set_stance("force_eager"):
        yield


@contextmanager
def without_own_warnings() -> Iterator[None]:
    """Suppress PyTorch's warnings that the recording causes. Other warnings pass."""
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


# How PyTorch's own code for such an operator refuses to run under a mode, before it does anything.
_REFUSAL = "Mode should never be enabled"


def run_parts(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Return the result of `func`, with `mode` active for the operators it is made of."""
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


# Operators that the functions for eigenvalues and singular values dispatch, and the position of the parameter that
# asks for vectors, too.
_WITH_VECTORS = {"aten::linalg_eig": None, "aten::_linalg_eigh": 2, "aten::_linalg_svd": 2}
_FOR_VALUES = ("eigvalsh", "eigvals", "svdvals", "matrix_rank", "cond", "matrix_norm", "norm")
_NOTHING = object()

Call = tuple[Any, tuple[Any, ...], Callable[[Any], Any]]


def as_asked(func: Any, args: tuple[Any, ...]) -> Call | None:
    """Return the call that PyTorch makes without a mode, and how to convert its result; None for most operators."""
    name = func._schema.name  # noqa: SLF001
    if name not in _WITH_VECTORS or _needs_gradient(args) or not _asks_for_values():
        return None
    at = _WITH_VECTORS[name]
    if at is not None:
        return func, (*_filled(func, args, at), False, *args[at + 1 :]), lambda found: found
    import torch

    alone = getattr(torch.ops.aten, "_linalg_eigvals", None)
    return None if alone is None else (alone.default, args, lambda found: (found, found.new_empty(0)))


def _filled(func: Any, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return the first arguments of a call, with defaults where it gives fewer."""
    given = args[:count]
    return (*given, *(each.default_value for each in func._schema.arguments[len(given) : count]))  # noqa: SLF001


def _needs_gradient(args: tuple[Any, ...]) -> bool:
    import torch

    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def _asks_for_values() -> bool:
    """Return whether the running call is one of PyTorch's functions for eigenvalues or singular values alone.

    A name is not enough: it may refer to another function, or to another call in the same line. So the running call is
    read from the source, and the function that it names is looked up in its frame.
    """
    import torch

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("joulediff.frameworks.", "torch.utils.")
    ):
        frame = frame.f_back
    called = None if frame is None else _find_called(frame)
    return any(called is getattr(torch.linalg, name, _NOTHING) for name in _FOR_VALUES)


def _find_called(frame: FrameType) -> object:
    """Return the function that a frame is calling; None if its source is not known."""
    text = _running_text(frame)
    try:
        found = ast.parse(text.strip(), mode="eval").body if text else None
    except (SyntaxError, ValueError):
        return None
    return _look_up(found.func, frame) if isinstance(found, ast.Call) else None


def _running_text(frame: FrameType) -> str | None:
    """Return the expression that a frame executes; None before Python 3.11, which does not record it."""
    positions = getattr(frame.f_code, "co_positions", None)
    found = None if positions is None else next(islice(positions(), frame.f_lasti // 2, None), None)
    if found is None or None in found:
        return None
    first, last, begin, end = found
    file = frame.f_code.co_filename
    lines = [linecache.getline(file, number).encode() for number in range(first, last + 1)]  # columns are bytes
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


def _look_up(name: ast.expr, frame: FrameType) -> object:
    """Return the value of a name in a frame. Attributes are read from modules alone: others may run code."""
    if isinstance(name, ast.Name):
        scopes = (frame.f_locals, frame.f_globals)
        return next((scope[name.id] for scope in scopes if name.id in scope), None)
    owner = _look_up(name.value, frame) if isinstance(name, ast.Attribute) else None
    return (
        getattr(owner, name.attr, None) if isinstance(owner, ModuleType) and isinstance(name, ast.Attribute) else None
    )
