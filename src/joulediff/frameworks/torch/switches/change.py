"""Change settings of PyTorch while a program runs, by the names under which they are recorded, and put all back.

Not every setting has a switch: the environment, versions and the model itself are as they are.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple

from joulediff.frameworks.settings import UNREADABLE
from joulediff.frameworks.torch.switches import precision
from joulediff.frameworks.torch.switches.aliases import aliases, group_aliases
from joulediff.frameworks.torch.switches.schedule import read_schedule, schedule_index, write_schedule
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Setting, to_setting

__all__ = ["aliases", "can_change", "changed", "group_aliases"]

_MATMUL = "torch.backends.cuda.matmul."
# Settings that one function tells and another one sets.
_PAIRS = {
    "torch.num_threads": ("get_num_threads", "set_num_threads"),
    "torch.grad_enabled": ("is_grad_enabled", "_C._set_grad_enabled"),
    "torch.autocast.cache": ("is_autocast_cache_enabled", "set_autocast_cache_enabled"),
    "torch.backends.mha.get_fastpath_enabled": (
        "backends.mha.get_fastpath_enabled",
        "backends.mha.set_fastpath_enabled",
    ),
    "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed": (
        "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
    ),
    **{
        f"torch.backends.cuda.{kind}_sdp_enabled": (
            f"backends.cuda.{kind}_sdp_enabled",
            f"backends.cuda.enable_{kind}_sdp",
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    },
    # These set what they are given, and only tell when they are given nothing.
    **{
        f"torch.backends.cuda.{name}": (f"backends.cuda.{name}", f"backends.cuda.{name}")
        for name in (
            "preferred_linalg_library",
            "preferred_blas_library",
            "cublas_workspace_size",
            "cublaslt_workspace_size",
        )
    },
}
_ATTRIBUTES = {
    "torch.deterministic.fill_uninitialized_memory": "utils.deterministic.fill_uninitialized_memory",
    f"{_MATMUL}allow_fp16_accumulation": "backends.cuda.matmul.allow_fp16_accumulation",
    "torch.backends.python_native.cutedsl.enabled": "backends.python_native.cutedsl.enabled",
    "torch.backends.python_native.triton.enabled": "backends.python_native.triton.enabled",
}
_PLANS = "torch.backends.cuda.cufft_plan_cache.max_size"
_DETERMINISTIC = ("torch.deterministic.enabled", "torch.deterministic.warn_only")
_REDUCTIONS = tuple(f"{_MATMUL}allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16"))
_SPLIT = "_split_k"
# Old switches of precision set new ones, and new ones are set from above to below.
_ORDER = {name: at for at, name in enumerate((*precision.OLD, *precision.NEW))}


class _Switch(NamedTuple):
    """A setting's value; and what holds it with others, where they are set together."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    keep: Callable[[], Any] | None = None
    put: Callable[[Any], object] | None = None


def can_change(name: str) -> bool:
    """Return whether this PyTorch lets a setting be changed while a program runs."""
    return _find_switch(name) is not None


@contextmanager
def changed(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Give settings these values for as long as it lasts, and then put back exactly what was there.

    Raises JoulediffError for one that cannot be changed, or does not take its value; then nothing is changed.
    """
    switches = {name: _switch_of(name) for name in sorted(settings, key=lambda name: (_ORDER.get(name, -1), name))}
    with ExitStack() as undo:
        with _quiet():
            if any(name in _ORDER for name in switches):
                undo.callback(_put_back, precision.put_precision, precision.read_precision())
            for name, switch in switches.items():
                _change(name, switch, settings[name], undo)
            for name, switch in switches.items():
                _check(name, switch, settings[name])
        yield


def _change(name: str, switch: _Switch, value: Setting, undo: ExitStack) -> None:
    try:
        if name not in _ORDER:
            undo.callback(_put_back, switch.put or switch.write, (switch.keep or switch.read)())
        switch.write(value)
    except UNREADABLE as error:
        raise JoulediffError(f"{name} cannot be changed to {value}: {error}") from error


def _check(name: str, switch: _Switch, value: Setting) -> None:
    try:
        found = _to_setting(switch.read())
    except UNREADABLE as error:
        raise JoulediffError(f"{name} cannot be {value} together with the others: {error}") from error
    if found != value:
        raise JoulediffError(f"{name} stays {found}, although it was changed to {value}")


def _put_back(write: Callable[[Any], object], value: object) -> None:
    with _quiet():
        write(value)


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch warns of its old switches, which are the program's choice and not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _switch_of(name: str) -> _Switch:
    found = _find_switch(name)
    if found is None:
        raise JoulediffError(f"{name} cannot be changed at run time")
    return found


def _find_switch(name: str) -> _Switch | None:
    import torch

    if name in precision.OLD:
        known = hasattr(torch._C, precision.OLD[name][1])  # noqa: SLF001
        return _Switch(partial(precision.read_old, name), partial(precision.write_old, name)) if known else None
    if name in precision.NEW:
        return (
            _Switch(partial(precision.read_new, name), partial(precision.write_new, name))
            if precision.has_new()
            else None
        )
    if name == "torch.default_dtype":
        return _Switch(torch.get_default_dtype, lambda value: torch.set_default_dtype(_to_dtype(value)))
    if (index := schedule_index(name)) is not None:
        return _Switch(partial(read_schedule, index), partial(write_schedule, index))
    if name in _DETERMINISTIC:
        return _deterministic(_DETERMINISTIC.index(name))
    if name.removesuffix(_SPLIT) in _REDUCTIONS:
        return _reduction(name)
    if name in _PAIRS:
        return _pair(*_PAIRS[name])
    if name in _ATTRIBUTES:
        return _attribute(_ATTRIBUTES[name])
    if name == _PLANS and torch.cuda.is_initialized():  # looking for it would start CUDA
        return _attribute(name.removeprefix("torch."))
    return _flag(name)


def _pair(tells: str, sets: str) -> _Switch | None:
    try:
        return _Switch(_get(tells), _get(sets))
    except AttributeError:
        return None


def _flag(name: str) -> _Switch | None:
    """Return the switch of a backend's property, as each release brings new ones."""
    module, _, flag = name.rpartition(".")
    if not module.startswith("torch.backends.") or module not in sys.modules:
        return None
    is_property = hasattr(vars(type(sys.modules[module])).get(flag), "__set__")
    return _attribute(name.removeprefix("torch.")) if is_property else None


def _attribute(path: str) -> _Switch | None:
    owner, _, name = path.rpartition(".")
    try:
        holder = _get(owner)
        getattr(holder, name)
    except AttributeError:
        return None
    return _Switch(lambda: getattr(holder, name), lambda value: setattr(holder, name, value))


def _deterministic(part: int) -> _Switch:
    """Return a switch of the core: the public function also loads the compiler and sets a flag of it."""
    import torch

    reads = (torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled)

    def write(value: Any) -> None:
        mode, warn_only = (value if at == part else read() for at, read in enumerate(reads))
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)  # noqa: SLF001

    return _Switch(reads[part], write)


def _reduction(name: str) -> _Switch | None:
    """Return the switch of one of two flags that are set together: split K is on wherever reduction is."""
    import torch

    matmul = torch.backends.cuda.matmul
    own = name.rpartition(".")[2]
    plain = own.removesuffix(_SPLIT)
    if not hasattr(matmul, own):
        return None
    if not hasattr(matmul, plain + _SPLIT):
        return _attribute(f"backends.cuda.matmul.{plain}")

    def keep() -> tuple[bool, bool]:
        return getattr(matmul, plain), getattr(matmul, plain + _SPLIT)

    def write(value: Any) -> None:
        both = (value, value or keep()[1]) if own == plain else (keep()[0], value)
        setattr(matmul, plain, both)

    return _Switch(lambda: getattr(matmul, own), write, keep, lambda both: setattr(matmul, plain, both))


def _get(path: str) -> Any:
    import torch

    return reduce(getattr, path.split("."), torch)


def _to_dtype(value: object) -> Any:
    import torch

    return getattr(torch, str(value)) if isinstance(value, str) else value


def _to_setting(value: object) -> Setting:
    """Return a value as it is recorded; a member of an enumeration by its name."""
    is_member = type(value).__name__.endswith("Backend")
    return str(value).rpartition(".")[2].lower() if is_member else to_setting(value)
