"""Reads every setting of PyTorch that may choose kernels, and the devices that the program has started.

Besides the settings of the table, flags are discovered in `torch.backends`, since each release adds some. Reading
changes nothing: no setter is called, CUDA is not started (functions that would start it are called only after the
program has), and no warning is shown. PyTorch has two interfaces to TF32 and refuses to read the old one after the new
one was used: both are tried, and those that can be read are recorded.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

from joulediff.frameworks.settings import UNREADABLE, put
from joulediff.frameworks.torch.switches.schedule import read_schedule
from joulediff.frameworks.torch.switches.table import ARCHITECTURES, BY_NAME, COMPILER, DEFAULT_DEVICE, SWITCHES, Switch
from joulediff.model.run import Setting

# Functions without parameters that only read a flag.
_GETTERS = re.compile(r"is_\w+|\w+_(enabled|allowed)|get_cpu_capability")
_GIB = 2**30


def read_torch() -> dict[str, Setting]:
    """Return the settings of PyTorch."""
    found: dict[str, Setting] = {}
    put_torch(found)
    return found


def put_torch(found: dict[str, Setting]) -> None:
    """Add the settings of PyTorch, under `torch.` and, once CUDA is started, `device.`."""
    import torch

    started = torch.cuda.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _put_backends(found)
        _put_switches(found, started=started)
        _put_compiler(found)
        if started:
            _put_cuda(found)


def _put_switches(found: dict[str, Setting], *, started: bool) -> None:
    for switch in SWITCHES:
        if started or not switch.needs_cuda:
            put(found, switch.name, _read, switch)
    put(found, DEFAULT_DEVICE, _default_device)


def _read(switch: Switch) -> object:
    import torch

    if switch.getter is None:
        return _get(torch, switch.path)
    return _call(torch, switch.getter, *([switch.argument] if switch.argument else []))


def _default_device() -> str:
    """Return the default device as it was set: `get_default_device` creates a tensor to find a missing index."""
    import torch
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    active = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, DeviceContext)]
    chosen = active[-1] if active else getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001
    return "cpu" if chosen is None else str(chosen.device)


def _put_backends(found: dict[str, Setting]) -> None:
    """Add the flags of `torch.backends`, also those that the table does not have."""
    for path, backend in sorted(_backends()):
        for name in _public_names(backend):
            known = BY_NAME.get(f"{path}.{name}")
            if known is None or not known.needs_cuda:
                put(found, f"{path}.{name}", _read_flag, backend, name)


def _backends() -> Iterator[tuple[str, Any]]:
    """Yield the modules of `torch.backends` by their paths: those that exist, not those that could be imported."""
    for path, module in list(sys.modules.items()):
        if re.fullmatch(r"torch\.backends(\.[a-z]\w*)*", path) and module is not None:
            yield path, module


def _public_names(backend: Any) -> list[str]:
    """Return names that may be flags. Backends with properties are objects that wrap their module as `m`."""
    inner = vars(backend).get("m")
    names = {*vars(type(backend)), *vars(backend), *(vars(inner) if inner is not None else ())}
    return sorted(name for name in names if re.fullmatch("[a-z][a-z0-9_]*", name) and name != "m")


def _read_flag(backend: Any, name: str) -> object:
    value = getattr(backend, name)
    if not callable(value):
        return value
    if _GETTERS.fullmatch(name) and not inspect.isclass(value) and not inspect.signature(value).parameters:
        return value()
    raise TypeError(f"{name} is no flag")


def _get(start: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), start)


def _call(start: Any, path: str, *arguments: object) -> object:
    """Return the result of a function; an enumeration's member by name: `_BlasBackend.Default` is `default`."""
    value = _get(start, path)(*arguments)
    is_member = type(value).__name__.endswith("Backend")
    return str(value).rpartition(".")[2].lower() if is_member else value


def _put_compiler(found: dict[str, Setting]) -> None:
    for path, names in COMPILER.items():
        if (config := sys.modules.get(path)) is not None:
            for name in names:
                put(found, f"{path}.{name}", _get, config, name)


def _put_cuda(found: dict[str, Setting]) -> None:
    import torch

    put(found, "torch.cuda.allocator", _call, torch, "cuda.memory.get_allocator_backend")
    put(found, ARCHITECTURES, lambda: ",".join(torch.cuda.get_arch_list()))
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda _: True)  # noqa: SLF001
    for index in range(torch.cuda.device_count()):
        if has_context(index):
            _put_device(found, index)


def _put_device(found: dict[str, Setting], index: int) -> None:
    import torch

    at = f"device.cuda:{index}"
    put(found, f"{at}.driver", _driver_version)
    if torch.version.hip is None:
        put(found, f"{at}.schedule", read_schedule, index)
    with suppress(*UNREADABLE):
        card = torch.cuda.get_device_properties(index)
        put(found, f"{at}.name", lambda: card.name)
        put(found, f"{at}.capability", lambda: f"{card.major}.{card.minor}")
        put(found, f"{at}.memory_gib", lambda: round(card.total_memory / _GIB, 1))
        put(found, f"{at}.multiprocessors", lambda: card.multi_processor_count)


def _driver_version() -> str:
    text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    version = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    if version is None:
        raise ValueError("the driver's version is unknown")
    return version.group(1)
