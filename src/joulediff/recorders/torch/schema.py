"""What an operator's schema says about it: its name, which arguments it changes, and whether it is made of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# These change running statistics although their schemas do not say so: places of the statistics, and of the
# argument that tells whether they are changed, where there is one (torch 2.13, native_functions.yaml).
_UNSAID: dict[str, tuple[tuple[int, ...], int | None]] = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::batch_norm_update_stats": ((1, 2), None),
    "aten::batch_norm_gather_stats": ((3, 4), None),
    "aten::batch_norm_gather_stats_with_counts": ((3, 4), None),
}
# These say that they change a tensor, and only make it refer to other memory.
_REFERRING = frozenset({"aten::set_"})
# These return memory and leave it as it is.
_BLANK = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "_empty_affine_quantized"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_"),
    )
)
# Marks of the profiler and questions about a tensor.
_IDLE_NAMESPACES = ("profiler", "prim")
# The devices that may have a kernel of their own for an operator that is otherwise made of others.
_BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "PrivateUse1")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is always true of one operator."""

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
    """Return the facts of something that is no operator of the framework's, and known by its name only."""
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
