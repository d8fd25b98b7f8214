"""Any value as a setting: plain ones as they are, others by what can be said of them without running their code."""

from __future__ import annotations

import enum
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from joulediff.recorders.settings import to_setting
from joulediff.runs import Setting

MAX_CHARS = 200
# Sizes, strides and paddings are worth telling; longer ones are data.
MAX_ITEMS = 8
# What a record can store: 64 bits.
MAX_INT = 2**64

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
# PyTorch's classes by name, so that this file does not load it.
_TENSOR = "torch.Tensor"
_MODULE = "torch.nn.modules.module.Module"


def describe(value: Any) -> tuple[Setting, bool]:
    """Return a value as a setting, and whether it is the value itself rather than a description of it."""
    text = f"<{type(value).__name__}>"
    with suppress(Exception):  # a class of the program's own may raise anything
        if (found := _exact(value)) is not NotImplemented:
            return (found[:MAX_CHARS] if isinstance(found, str) else found), True
        text = _description(value) or text
    return str(to_setting(text))[:MAX_CHARS], False


def _exact(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple | list):
        items = [_exact(each) for each in value[:MAX_ITEMS] if not isinstance(each, tuple | list)]
        told = len(items) == len(value) and NotImplemented not in items
        texts = [each if isinstance(own, slice) else repr(each) for own, each in zip(value, items, strict=False)]
        return f"({', '.join(texts)})" if told else NotImplemented
    if isinstance(value, slice):
        parts = [_exact(each) for each in (value.start, value.stop, value.step)]
        return NotImplemented if NotImplemented in parts else f"slice({', '.join(map(repr, parts))})"
    if isinstance(value, int) and abs(value) >= MAX_INT:
        return NotImplemented
    with suppress(TypeError):
        return to_setting(value)
    return NotImplemented


def _description(value: Any) -> str | None:
    kinds = {qualified(kind) for kind in type(value).__mro__}
    if _TENSOR in kinds:
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"tensor({shape}, {to_setting(value.dtype)}, {value.device})"
    if _MODULE in kinds:
        return qualified(type(value))
    if isinstance(value, ModuleType):
        return value.__name__
    return qualified(value) if isinstance(value, _FUNCTIONS) else None


def qualified(thing: Any) -> str:
    """Return the name of a class or function, with its module where it has one."""
    name = getattr(thing, "__qualname__", None) or thing.__name__
    module = getattr(thing, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else str(name)
