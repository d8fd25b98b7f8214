"""Changes settings of PyTorch while a program runs, by their recorded names, and restores them.

Not every setting can be changed: the environment, versions and the model itself cannot.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, reduce
from typing import Any, NamedTuple

from joulediff.frameworks.settings import UNREADABLE
from joulediff.frameworks.torch.switches import precision
from joulediff.frameworks.torch.switches.schedule import read_schedule, schedule_index, write_schedule
from joulediff.frameworks.torch.switches.table import BY_NAME, SWITCHES, Change, Switch
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Setting, to_setting

_SPLIT = "_split_k"
# Old switches of precision set new ones, and a new one is set before those that follow it.
_ORDER = {name: at for at, name in enumerate((*precision.OLD, *precision.NEW))}


class _Access(NamedTuple):
    """The functions that read and write a setting; `keep` and `put` do so with others that are set together."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    keep: Callable[[], Any] | None = None
    put: Callable[[Any], object] | None = None


@contextmanager
def changed(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Give settings these values within the context, and then restore the previous ones exactly.

    Raises JoulediffError for a setting that cannot be changed or rejects its value; then nothing is changed.
    """
    accesses = {name: _access_to(name) for name in sorted(settings, key=lambda name: (_ORDER.get(name, -1), name))}
    with ExitStack() as undo:
        with _quiet():
            if any(name in _ORDER for name in accesses):
                undo.callback(_put_back, precision.put_precision, precision.read_precision())
            for name, access in accesses.items():
                _change(name, access, settings[name], undo)
            for name, access in accesses.items():
                _check(name, access, settings[name])
        yield


@contextmanager
def kept() -> Iterator[None]:
    """Restore every switch that can be changed at the end, whatever the code within the context sets."""
    import torch

    with ExitStack() as undo:
        with _quiet():
            undo.callback(_put_back, precision.put_precision, precision.read_precision())
            for name in BY_NAME:
                access = None if name in _ORDER else _find_access(name)
                if access is not None:
                    with suppress(*UNREADABLE):
                        undo.callback(_put_back, access.put or access.write, (access.keep or access.read)())
            chosen = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001
            undo.callback(_put_back_device, None if chosen is None else chosen.device)
        yield


def can_change(name: str) -> bool:
    """Return whether a setting can be changed while the program runs."""
    return _find_access(name) is not None


def _put_back_device(device: Any) -> None:
    import torch

    chosen = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001
    if (None if chosen is None else chosen.device) != device:
        torch.set_default_device(device)


def _change(name: str, access: _Access, value: Setting, undo: ExitStack) -> None:
    try:
        if name not in _ORDER:
            undo.callback(_put_back, access.put or access.write, (access.keep or access.read)())
        access.write(value)
    except UNREADABLE as error:
        raise JoulediffError(f"{name} cannot be changed to {value}: {error}") from error


def _check(name: str, access: _Access, value: Setting) -> None:
    try:
        found = _to_setting(access.read())
    except UNREADABLE as error:
        raise JoulediffError(f"{name} cannot be {value} together with the others: {error}") from error
    if found != value:
        raise JoulediffError(f"{name} stays {found}, although it was changed to {value}")


def _put_back(write: Callable[[Any], object], value: object) -> None:
    with _quiet():
        write(value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of deprecated switches, which are the program's choice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _access_to(name: str) -> _Access:
    found = _find_access(name)
    if found is None:
        raise JoulediffError(f"{name} cannot be changed at run time")
    return found


def _find_access(name: str) -> _Access | None:
    if (index := schedule_index(name)) is not None:
        return _Access(partial(read_schedule, index), partial(write_schedule, index))
    switch = BY_NAME.get(name)
    if switch is None or switch.change is None:
        return _flag(name)
    return _MAKERS[switch.change](switch)


def _precision(switch: Switch) -> _Access | None:
    if not precision.has_new():
        return None
    return _Access(partial(precision.read_new, switch.name), partial(precision.write_new, switch.name))


def _tf32(switch: Switch) -> _Access | None:
    import torch

    if not hasattr(torch._C, switch.core[1]):  # noqa: SLF001
        return None
    return _Access(partial(precision.read_old, switch.name), partial(precision.write_old, switch.name))


def _dtype(_: Switch) -> _Access:
    import torch

    return _Access(torch.get_default_dtype, lambda value: torch.set_default_dtype(_to_dtype(value)))


def _functions(switch: Switch) -> _Access | None:
    assert switch.getter is not None and switch.setter is not None
    try:
        return _Access(_get(switch.getter), _get(switch.setter))
    except AttributeError:
        return None


def _held(switch: Switch) -> _Access | None:
    import torch

    if switch.needs_cuda and not torch.cuda.is_initialized():  # reading it would start CUDA
        return None
    return _attribute(switch.path)


def _flag(name: str) -> _Access | None:
    """Return the access to a property of a backend, also one that the table does not have."""
    module, _, flag = name.rpartition(".")
    if not module.startswith("torch.backends.") or module not in sys.modules:
        return None
    is_property = hasattr(vars(type(sys.modules[module])).get(flag), "__set__")
    return _attribute(name.removeprefix("torch.")) if is_property else None


def _attribute(path: str) -> _Access | None:
    owner, _, name = path.rpartition(".")
    try:
        holder = _get(owner)
        getattr(holder, name)
    except AttributeError:
        return None
    return _Access(lambda: getattr(holder, name), lambda value: setattr(holder, name, value))


def _deterministic(switch: Switch) -> _Access:
    """Return the access through torch._C: the public function also loads the compiler and sets a flag of it."""
    import torch

    pair = [each for each in SWITCHES if each.change == "deterministic"]
    reads = [_get(each.getter or each.path) for each in pair]
    part = pair.index(switch)

    def write(value: Any) -> None:
        mode, warn_only = (value if at == part else read() for at, read in enumerate(reads))
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)  # noqa: SLF001

    return _Access(reads[part], write)


def _reduction(switch: Switch) -> _Access | None:
    """Return the access to one of two flags that are set together: split K is on wherever reduction is."""
    import torch

    matmul = torch.backends.cuda.matmul
    own = switch.name.rpartition(".")[2]
    plain = own.removesuffix(_SPLIT)
    if not hasattr(matmul, own):
        return None
    if not hasattr(matmul, plain + _SPLIT):
        return _attribute(switch.path.removesuffix(_SPLIT))

    def keep() -> tuple[bool, bool]:
        return getattr(matmul, plain), getattr(matmul, plain + _SPLIT)

    def write(value: Any) -> None:
        both = (value, value or keep()[1]) if own == plain else (keep()[0], value)
        setattr(matmul, plain, both)

    return _Access(lambda: getattr(matmul, own), write, keep, lambda both: setattr(matmul, plain, both))


_MAKERS: dict[Change, Callable[[Switch], _Access | None]] = {
    "functions": _functions,
    "attribute": _held,
    "precision": _precision,
    "tf32": _tf32,
    "dtype": _dtype,
    "deterministic": _deterministic,
    "reduction": _reduction,
}


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
