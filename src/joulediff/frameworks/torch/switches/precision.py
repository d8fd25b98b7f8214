"""Reads and restores the state of PyTorch's switches of float32 precision, the old ones (TF32 or not) and the new ones.

An old switch also sets new ones, a new one with the value `none` follows the one above it, and reading an old one
raises an error if they disagree. So the values that can be read are not enough to restore the state: each switch is
read while the ones that hide it are set to other values for a moment. One state cannot be restored: a switch that was
never set follows those above it and reads `tf32` without them; once it was changed it is set to `tf32` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from joulediff.frameworks.torch.switches.table import MATMUL_TF32, MATMUL_WORD, SWITCHES

# The new switches, each after the ones it follows, and the old ones, the coarser of two that set the same first.
NEW = {switch.name: switch.key for switch in SWITCHES if switch.key is not None}
OLD = {switch.name: switch for switch in SWITCHES if switch.change == "tf32"}
# Of the two that set the same, the finer one is stored: it has three values.
_KEPT = tuple(name for name in OLD if name != MATMUL_TF32)
_TOP = ("generic", "all")
_BACKENDS = (("cuda", "all"), ("mkldnn", "all"))
_PARTS = tuple(key for key in NEW.values() if key[1] != "all")
_MATMULS = OLD[MATMUL_WORD].controls
# A switch that was never set: PyTorch has no word for it.
_UNSET = "unset"


@dataclass(frozen=True, slots=True)
class Precision:
    """The state of all these switches."""

    old: dict[str, Any]
    new: dict[tuple[str, str], str]


def has_new() -> bool:
    """Return whether this PyTorch has the new switches: from 2.9 on."""
    return hasattr(_core(), "_set_fp32_precision_setter")


def read_precision() -> Precision:
    """Return the state, without changing it."""
    new = _read_behind() if has_new() else {}
    return Precision({name: value for name in _KEPT if (value := _read_old(name, new)) is not None}, new)


def put_precision(state: Precision) -> None:
    """Restore a state. Old switches come first, since they set new ones; unchanged ones are not written."""
    now = read_precision()
    for name, value in state.old.items():
        if now.old.get(name) != value:
            write_old(name, value)
    if state.new:
        behind = _read_behind()
        _set_new({key: value for key, value in state.new.items() if behind[key] != value})


def read_old(name: str) -> Any:
    """Return the value of an old switch; raises RuntimeError if it disagrees with a new one."""
    return getattr(_core(), OLD[name].core[0])()


def write_old(name: str, value: object) -> None:
    """Set an old switch, and with it the new ones that it controls."""
    getattr(_core(), OLD[name].core[1])(value)


def read_new(name: str) -> str:
    """Return the value of a new switch, or of the switch that it follows."""
    return _get_new(NEW[name])


def write_new(name: str, value: object) -> None:
    """Set a new switch alone."""
    _set_new({NEW[name]: value})


def _read_behind() -> dict[tuple[str, str], str]:
    """Return each new switch's own value, not the value that it follows: read under three values of the top switch."""
    found = {_TOP: _get_new(_TOP)}
    try:
        for keys in (_BACKENDS, _PARTS):
            found |= {key: _value_behind(key) for key in keys}
            _set_new(dict.fromkeys(_BACKENDS, "none"))
    finally:
        _set_new({key: found[key] for key in (_TOP, *_BACKENDS) if key in found})
    return found


def _value_behind(key: tuple[str, str]) -> str:
    none, ieee, tf32 = (_read_under(value, key) for value in ("none", "ieee", "tf32"))
    if ieee == tf32:
        return ieee
    return none if none == "none" else _UNSET


def _read_under(value: str, key: tuple[str, str]) -> str:
    _set_new({_TOP: value})
    return _get_new(key)


def _read_old(name: str, new: Mapping[tuple[str, str], str]) -> Any:
    """Return the value of an old switch even if it disagrees: with some value of the new ones it can be read."""
    read: Callable[[], Any] | None = getattr(_core(), OLD[name].core[0], None)
    if read is None:
        return None
    with suppress(RuntimeError):
        return read()
    hiders = OLD[name].controls or _MATMULS
    if any(new[key] == _UNSET for key in hiders):
        return True  # the old switch would have set them, so it was not used either and is on
    try:
        for value in ("ieee", "tf32", "none"):
            _set_new(dict.fromkeys(hiders, value))
            with suppress(RuntimeError):
                return read()
    finally:
        _set_new({key: new[key] for key in hiders})
    return None


def _get_new(key: tuple[str, str]) -> str:
    return str(_core()._get_fp32_precision_getter(*key))  # noqa: SLF001


def _set_new(values: Mapping[tuple[str, str], object]) -> None:
    for key, value in values.items():
        word = "tf32" if value == _UNSET else value
        _core()._set_fp32_precision_setter(*key, word)  # noqa: SLF001


def _core() -> Any:
    import torch

    return torch._C  # noqa: SLF001
