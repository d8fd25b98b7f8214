"""What an operator's schema says about it: its name, and which arguments it changes in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# These change running statistics although their schemas do not say so: places of the statistics, and
# of the argument that tells whether they are changed (torch 2.13, native_functions.yaml).
_UNSAID = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is always true of one operator."""

    name: str
    namespace: str
    overload: str
    places: tuple[int, ...]
    words: tuple[str, ...]

    @property
    def may_change(self) -> bool:
        """Whether it changes any argument."""
        return bool(self.places or self.words or self.name in _UNSAID)

    def changed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensors among the arguments that a call changes."""
        found = [args[place] for place in self.places if place < len(args)]
        found += [kwargs[word] for word in self.words if word in kwargs]
        if self.name in _UNSAID:
            places, switch = _UNSAID[self.name]
            if len(args) > switch and args[switch]:
                found += [args[place] for place in places]
        return list(_tensors(found))


class Schemas:
    """The facts of each operator, read once."""

    def __init__(self) -> None:
        self._facts: dict[Any, Facts] = {}

    def of(self, func: Any) -> Facts:
        """Return the facts of an operator."""
        found = self._facts.get(func)
        if found is None:
            found = self._facts[func] = _read(func)
        return found


def _read(func: Any) -> Facts:
    schema = func._schema
    changed = [
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    places, words = tuple(p for p, _ in changed), tuple(w for _, w in changed)
    return Facts(schema.name, schema.name.partition("::")[0], schema.overload_name or "default", places, words)


def _tensors(values: list[Any]) -> Iterator[Any]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(list(value))
