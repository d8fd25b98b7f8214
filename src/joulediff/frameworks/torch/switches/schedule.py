"""Reads and sets how the host waits for a CUDA device: a spinning wait keeps a core busy, a blocking one sleeps.

The driver is asked, which knows the setting whichever library made it. No context is created.
"""

from __future__ import annotations

import ctypes

# CUctx_flags in cuda.h; the other flags are not about waiting.
_NAMES = {0: "auto", 1: "spin", 2: "yield", 4: "blocking_sync"}
_MASK = 7
_PREFIX, _SUFFIX = "device.cuda:", ".schedule"


def read_schedule(index: int) -> str:
    """Return how the host waits for a device; raises if it has no context, or for a value without a name in cuda.h."""
    return _NAMES[_flags(index) & _MASK]


def write_schedule(index: int, name: object) -> None:
    """Set how the host waits for a device from now on."""
    wanted = next((flag for flag, each in _NAMES.items() if each == name), None)
    if wanted is None:
        raise ValueError(f"there is no schedule called {name}")
    flags = _flags(index)
    if flags & _MASK == wanted:
        return
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuDevicePrimaryCtxSetFlags_v2(_device(cuda, index), (flags & ~_MASK) | wanted):
        raise RuntimeError("the driver does not let it be changed")


def schedule_index(setting: str) -> int | None:
    """Return the device that a setting of this kind belongs to; None for another kind."""
    number = setting.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(number) if setting == f"{_PREFIX}{number}{_SUFFIX}" and number.isdigit() else None


def _flags(index: int) -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    flags, active = ctypes.c_uint(), ctypes.c_int()
    if cuda.cuDevicePrimaryCtxGetState(_device(cuda, index), ctypes.byref(flags), ctypes.byref(active)):
        raise RuntimeError("the driver does not report the device's setting")
    if not active.value:
        raise RuntimeError("the device has no context")
    return flags.value


def _device(cuda: ctypes.CDLL, index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        raise RuntimeError("the driver does not know this device")
    return device
