"""The options and parts of PyTorch's objects: modules, optimizers and their groups. Tensors have none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from joulediff.frameworks.references import Reference, Undo, Write, object_references, refuse, write_item
from joulediff.frameworks.torch.models import COMPILED_PREFIX
from joulediff.model.errors import JoulediffError

if TYPE_CHECKING:
    import torch

# Sizes of weights, which a program cannot change without new weights.
_SIZES = frozenset(
    """
    in_features out_features in1_features in2_features num_embeddings embedding_dim normalized_shape in_channels
    out_channels num_features embed_dim kdim vdim head_dim input_size hidden_size num_parameters
    """.split()  # noqa: SIM905 - read as words
)
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# Options with which an optimizer expects its step counts on the device of its parameters.
_ON_DEVICE = ("fused", "capturable")
# The module inside of the wrapper that `torch.compile` returns.
_WRAPPED = COMPILED_PREFIX.removesuffix(".")
_CONSTANT = re.compile(r"[a-z]\w*(:\d+)?")


def references_of(thing: object) -> Iterable[Reference] | None:
    """Return the options and parts of a module or an optimizer, nothing for a tensor; None for any other object."""
    import torch
    from torch.utils.hooks import RemovableHandle

    kind = type(thing)
    if issubclass(kind, (torch.Tensor, torch.Generator, torch.Stream, torch.Event, RemovableHandle)):
        return ()
    if issubclass(kind, torch.nn.Module):
        return _module_references(thing)
    if issubclass(kind, torch.optim.Optimizer):
        return _optimizer_references(thing)
    return None


def _module_references(module: Any) -> Iterator[Reference]:
    import torch

    inner = module.__dict__.get(_WRAPPED, module._modules.get(_WRAPPED))  # noqa: SLF001
    if inner is not None:
        yield Reference("", inner, refuse("a module cannot be replaced by text"), "same")
        return
    own = type(module).__module__.partition(".")[0] == "torch"
    for each in object_references(module, until=torch.nn.Module):
        if each.name not in _base_attributes() and not (own and each.name in _SIZES):
            yield each
    tables = [table for name in _HOOKS if isinstance(table := vars(module).get(name), dict)]
    yield Reference("hooks", sum(map(len, tables)), _write_hooks(tables))
    write = refuse("a module cannot be replaced by text")
    for name, child in list(module._modules.items()):  # noqa: SLF001
        yield Reference(name, child, write)


@cache
def _base_attributes() -> frozenset[str]:
    """Return the attributes that every module has, except for its mode."""
    import torch

    return frozenset(vars(torch.nn.Module())) - {"training"}


def _write_hooks(tables: Sequence[MutableMapping[Any, Any]]) -> Write:
    def write(value: object) -> Undo:
        if value != 0:
            raise JoulediffError("hooks can be removed for a trial, and not added")
        before = [dict(table) for table in tables]
        for table in tables:
            table.clear()

        def undo() -> None:
            for table, kept in zip(tables, before, strict=True):
                table.update(kept)

        return undo

    return write


def _optimizer_references(optimizer: Any) -> Iterator[Reference]:
    import torch

    for at, group in enumerate(optimizer.param_groups):
        for name, value in list(group.items()):
            if name != "params":
                write = write_item(group, name)
                if name in _ON_DEVICE:
                    write = _write_with_steps(write, optimizer, group)
                yield Reference(f"param_groups[{at}]['{name}']", value, write)
    for name, value in list(optimizer.defaults.items()):
        yield Reference(f"defaults['{name}']", value, write_item(optimizer.defaults, name))
    for each in object_references(optimizer, until=torch.optim.Optimizer):
        if each.name not in ("param_groups", "defaults", "state") and not each.name.startswith("_"):
            yield each


def _write_with_steps(write: Write, optimizer: Any, group: MutableMapping[str, Any]) -> Write:
    """Return the write of an option together with the transfer of step counts to the parameters' device."""

    def write_both(value: object) -> Undo:
        undo_option = write(value)
        moved = _move_steps(optimizer, group) if value else []

        def undo() -> None:
            undo_option()
            for state, before in moved:
                if state["step"].numel() == 1:
                    before.copy_(state["step"])  # the program has made steps since
                state["step"] = before

        return undo

    return write_both


def _move_steps(optimizer: Any, group: MutableMapping[str, Any]) -> list[tuple[Any, torch.Tensor]]:
    import torch

    moved = []
    for parameter in group["params"]:
        state = optimizer.state.get(parameter)
        step = None if state is None else state.get("step")
        if isinstance(step, torch.Tensor) and step.device != parameter.device:
            moved.append((state, step))
            state["step"] = step.to(parameter.device)
    return moved


def read_constant(text: str) -> object | None:
    """Return a data type, layout, memory format or device by its recorded text; None if there is none."""
    import torch

    if not _CONSTANT.fullmatch(text):
        return None
    found = getattr(torch, text, None)
    if type(found) in (torch.dtype, torch.layout, torch.memory_format):
        return cast("object", found)
    try:
        device: object = torch.device(text)
    except RuntimeError:
        return None
    return device
