"""Encodes an operator's arguments as JSON, with tensors by number: `{"tensor": 0}` is the first one it reads.

Everything but tensors is stored in full, so that the operator can be called again. Strings are shared: the same
arguments give the same string.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from joulediff.model.errors import JoulediffError

# Deeper than any operator's arguments; a file may contain anything.
MAX_DEPTH = 16
MAX_LENGTH = 1_000_000


class Encoder:
    """Turns arguments into text and collects their tensors."""

    def __init__(self) -> None:
        import torch

        self._tensor = torch.Tensor
        self._texts: dict[tuple[object, ...], str] = {}

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return the text of a call's arguments, and the tensors in it."""
        tensors: list[Any] = []
        key = self._key(args, tensors)
        if kwargs:
            key = (key, *kwargs, self._key(tuple(kwargs.values()), tensors))
        text = self._texts.get(key)
        if text is None:
            count = [0]
            plain = {"args": self._plain(args, count), "kwargs": {k: self._plain(v, count) for k, v in kwargs.items()}}
            text = self._texts[key] = json.dumps(plain, separators=(",", ":"))
        return text, tensors

    def returns(self, output: Any) -> tuple[str, list[Any]]:
        """Return the text of a call's results, and the tensors in it."""
        if isinstance(output, self._tensor):
            return '{"tensor":0}', [output]
        tensors: list[Any] = []
        self._key((output,), tensors)
        return json.dumps(self._plain(output, [0]), separators=(",", ":")), tensors

    def _key(self, values: Any, tensors: list[Any]) -> tuple[object, ...]:
        key: list[object] = []
        for value in values:
            kind = value.__class__
            if isinstance(value, self._tensor):
                key.append(0)
                tensors.append(value)
            elif kind in _PLAIN:
                key.append(kind)  # 1, 1.0 and True are equal
                key.append(value or repr(value))  # so are 0.0 and -0.0
            elif isinstance(value, list | tuple):
                key.append(kind)
                key.append(self._key(value, tensors))
            else:
                key.append(repr(value))
        return tuple(key)

    def _plain(self, value: Any, count: list[int]) -> Any:
        if isinstance(value, self._tensor):
            count[0] += 1
            return {"tensor": count[0] - 1}
        if isinstance(value, list | tuple):
            return [self._plain(each, count) for each in value]
        return _scalar(value)


_PLAIN = frozenset({int, float, bool, str, type(None)})
_NAMED = ("dtype", "layout", "memory_format", "qscheme")


def _scalar(value: Any) -> Any:
    import torch

    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, torch.SymInt | torch.SymBool | int):
        return int(value)
    if isinstance(value, float | torch.SymFloat):
        number = float(value)
        return number if math.isfinite(number) else {"float": str(number)}
    if isinstance(value, complex):
        return {"complex": [_scalar(value.real), _scalar(value.imag)]}
    for name in _NAMED:
        if isinstance(value, getattr(torch, name)):
            return {name: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Generator):
        return {"generator": str(value.device)}
    return {"opaque": type(value).__name__}


def decode(text: str, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call from their text, with `tensors` in their places."""
    if len(text) > MAX_LENGTH:
        raise JoulediffError(f"the arguments of an operator are {len(text)} characters long: not a recorded operator's")
    try:
        plain = json.loads(text)
        args, kwargs = plain["args"], plain["kwargs"]
        return [_value(each, tensors, 0) for each in args], {k: _value(v, tensors, 0) for k, v in kwargs.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise JoulediffError(f"the arguments of an operator cannot be read: {text[:80]!r}") from error


def _value(plain: Any, tensors: Any, depth: int) -> Any:
    import torch

    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(plain, list):
        return [_value(each, tensors, depth + 1) for each in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind == "complex":
        real, imaginary = (_value(each, (), depth) for each in content)
        return complex(real, imaginary)
    if kind in _NAMED:
        found = getattr(torch, content)
        if not isinstance(found, getattr(torch, kind)):
            raise ValueError(content)
        return found
    if kind == "device":
        return torch.device(content)
    if kind == "generator":
        return torch.Generator(content) if content == "cpu" else None
    raise JoulediffError(f"an operator's argument of type {content} cannot be made again")


# These change running statistics although their schemas do not say so: places of the statistics, and of the
# argument that says whether they are changed, where there is one (torch 2.13, native_functions.yaml).
_UNSAID: dict[str, tuple[tuple[int, ...], int | None]] = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::batch_norm_update_stats": ((1, 2), None),
    "aten::batch_norm_gather_stats": ((3, 4), None),
    "aten::batch_norm_gather_stats_with_counts": ((3, 4), None),
}
# Their schemas say that they change a tensor, but they only make it refer to other memory.
_REFERRING = frozenset({"aten::set_"})
# These return memory and leave it as it is.
_BLANK = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "_empty_affine_quantized"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_"),
    )
)
# Marks of the profiler, and operators that only return a fact about a tensor.
_IDLE_NAMESPACES = ("profiler", "prim")
# The devices that may have a separate kernel for an operator that is otherwise composed of others.
_BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "PrivateUse1")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that are the same for every call of an operator."""

    name: str
    overload: str
    places: tuple[int, ...]
    words: tuple[str, ...]
    may_change: bool
    """Whether it changes any argument."""
    is_blank: bool
    """Whether it returns memory without contents."""
    is_composite: bool
    """Whether it is a sequence of other operators on every device."""
    is_work: bool
    is_view: bool = False
    """Whether it may return memory of an argument: it reads no elements then."""

    def changed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensors among the arguments that a call changes."""
        found = [args[place] for place in self.places if place < len(args)]
        found += [kwargs[word] for word in self.words if word in kwargs]
        if self.name in _UNSAID:
            places, switch = _UNSAID[self.name]
            if switch is None or args[switch]:
                found += [args[place] for place in places]
        return list(_tensors(found))


class Schemas:
    """The facts of each operator, read once."""

    def __init__(self) -> None:
        self._facts: dict[Any, Facts | None] = {}

    def of(self, func: Any) -> Facts | None:
        """Return the facts of an operator; None for one of higher order, which has no schema."""
        try:
            return self._facts[func]
        except KeyError:
            found = self._facts[func] = _read(func) if hasattr(func, "_schema") else None
            return found


def named(name: str) -> Facts:
    """Return the facts of a call that is not an operator of the framework: only its name is known."""
    return Facts(name, "", (), (), may_change=True, is_blank=False, is_composite=False, is_work=True)


def _read(func: Any) -> Facts:
    schema = func._schema  # noqa: SLF001 - what PyTorch's own modes read
    is_work = schema.name.partition("::")[0] not in _IDLE_NAMESPACES
    changed = [
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and schema.name not in _REFERRING
    ]
    return Facts(
        name=schema.name,
        overload=schema.overload_name or "default",
        places=tuple(place for place, _ in changed),
        words=tuple(word for _, word in changed),
        may_change=bool(changed) or schema.name in _UNSAID,
        is_blank=schema.name in _BLANK,
        is_composite=is_work and _is_composite(func.name()),
        is_work=is_work,
        is_view=any(each.alias_info is not None and not each.alias_info.is_write for each in schema.arguments),
    )


def _is_composite(name: str) -> bool:
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    return has_kernel(name, "CompositeImplicitAutograd") and not any(has_kernel(name, key) for key in _BACKENDS)


def _tensors(values: list[Any]) -> Iterator[Any]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(list(value))
