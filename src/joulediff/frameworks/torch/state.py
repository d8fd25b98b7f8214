"""Restores the state that a step starts from before each recorded pass.

A training step continues where the last one ended, and the number of steps in the metered pass depends on time. So the
state before that pass is copied to host memory: how much device memory the step needs is not known yet. Before each
recorded pass it is written into the program's own tensors. At the end the program has the state that the metered pass
left, as if the step had only run there.

The state is: parameters, buffers and tensor attributes of the models that the step holds, tensors it holds itself, the
gradients of both, its own random generators (of PyTorch, Python and NumPy), and every optimizer of these parameters
with its options, schedulers and scalers.
Parameters are copied only if something trains: an optimizer, or a model in training mode that requires gradients.
Copies of tensors that the metered pass did not change are dropped. Not restored are caches of keys and values and
other containers, plain attributes of models, variables that the step rebinds, data loaders, and tensors made of
tensors.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from joulediff.frameworks.generators import SEED, Generator, as_generator, find_generators, host_seeded, seed_host
from joulediff.frameworks.torch.capture.geometry import extent_of
from joulediff.frameworks.torch.models import (
    MAX_DEPTH,
    MAX_THINGS,
    Holdings,
    clean_name,
    find_holdings,
    join_names,
)
from joulediff.model.errors import JoulediffError

if TYPE_CHECKING:
    import torch

# Shares of the free host memory, for each of the two states, and of the device memory that the step leaves free.
BUDGET_SHARE = 0.5
_MAPPINGS = (dict, defaultdict, OrderedDict)


@contextmanager
def keep_state(step: object) -> Iterator[State]:
    """Copy the state that `step` starts from now, and yield the object that restores it.

    At the end the program has the state that it had at the first `put_back`.
    """
    state = State(step)
    try:
        yield state
    finally:
        state.leave()


class State:
    """The state of a step before its first call, and its state after the metered pass."""

    def __init__(self, step: object) -> None:
        self.refusal: str | None = None
        """The reason why nothing is copied, or None."""
        self.makers: tuple[str, ...] = ()
        """The optimizers that created their state while the step ran: in a recorded pass they create it again."""
        self._reach = _Reach(find_holdings(step), _find_generators(step))
        self._last: _Snapshot | None = None
        self._first: _Snapshot | None = self._take()

    @property
    def size_bytes(self) -> int:
        """Return the memory of the copies."""
        states = [state for state in (self._first, self._last) if state is not None]
        return sum(kept.values.nbytes for state in states for kept in state.kept())

    def put_back(self) -> None:
        """Restore the first state. The first call copies the present state, which the program has again at the end."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():  # an active capture must not see it
            try:
                if self._first is not None and self._last is None:
                    self._settle(self._first)
                if self._first is not None:
                    self._first.put_back()
            except RuntimeError as error:
                raise JoulediffError(f"the initial state of the step cannot be restored: {error}") from error

    def _settle(self, first: _Snapshot) -> None:
        """Copy the present state, and drop unchanged tensors from the first one."""
        self._last = self._take()
        if self._last is None:
            self._first = None
        else:
            self.makers = _drop_unchanged(first, self._last)
            _move_near([*first.kept()])

    def leave(self) -> None:
        """Restore the state that the program's own calls left, and drop all copies."""
        last, self._first, self._last = self._last, None, None
        with suppress(RuntimeError):  # a device that has failed
            if last is not None:
                last.put_back()

    def left_out(self, changed: Sequence[str | None], written: Collection[int]) -> list[str | None]:
        """Return the tensors that a step changed and that are not restored.

        `changed` are their names, as the captured pass gives them; `written` are the addresses of unnamed memory that
        the step wrote to.
        """
        if self._first is None:
            return list(changed)
        names = [name for name in changed if name is not None and not self._reach.knows(name)]
        known = sum(address in written for address in self._reach.unnamed_addresses())
        return [*names, *([None] * max(0, changed.count(None) - known))]

    def _take(self) -> _Snapshot | None:
        store = _Store(_host_room())
        try:
            return _Snapshot.take(self._reach, store)
        except (JoulediffError, MemoryError, RuntimeError) as error:
            self.refusal = error.what if isinstance(error, JoulediffError) else " ".join(str(error).split())
            return None


class _Reach:
    """The objects that make up the state of a step."""

    def __init__(self, holdings: Holdings, generators: Sequence[Generator]) -> None:
        models, self.generators = holdings.models, generators
        self.modules = [module for model in models.values() for module in model.modules()]
        self.tensors = [tensor for tensor in holdings.tensors.values() if _is_plain(tensor)]
        weights = [weight for model in models.values() for weight in model.parameters() if _is_plain(weight)]
        self.leaves = [tensor for tensor in (*weights, *self.tensors) if tensor.is_leaf]
        self.optimizers, self.options = _find_optimizers({id(leaf) for leaf in self.leaves})
        self.trains = bool(self.optimizers) or any(
            model.training and any(weight.requires_grad for weight in model.parameters()) for model in models.values()
        )
        self.fixed = [*(weights if self.trains else ()), *self.tensors]
        self.devices = {tensor.device for tensor in (*weights, *self.tensors)}
        self._names = {name for name, tensor in holdings.tensors.items() if _is_plain(tensor)}
        for name, model in models.items():
            self._name(name if len(models) > 1 else "", model)
        self._prefixes = tuple(f"{type(each).__name__}." for each in self.optimizers)

    def _name(self, root: str, model: torch.nn.Module) -> None:
        for path, tensor in model.named_parameters(remove_duplicate=False):
            name = join_names(root, clean_name(path))
            if _is_plain(tensor):
                self._names |= {name, f"{name}.grad"} if self.trains else {f"{name}.grad"}
        buffers = model.named_buffers(remove_duplicate=False)
        self._names |= {join_names(root, clean_name(path)) for path, tensor in buffers if _is_plain(tensor)}

    def knows(self, name: str) -> bool:
        """Return whether a tensor of this name is restored."""
        return name in self._names or name.startswith(self._prefixes)

    def tables(self) -> Iterator[MutableMapping[Any, Any]]:
        """Yield the dictionaries of options of optimizers, and of counters of schedulers and scalers."""
        yield from (group for optimizer in self.optimizers for group in optimizer.param_groups)
        yield from (vars(each) for each in self.options)

    def bindings(self) -> Iterator[tuple[torch.nn.Module, MutableMapping[str, Any], str]]:
        """Yield the dictionaries of models that hold tensors other than parameters."""
        for module in self.modules:
            for table in (module._buffers, vars(module)):  # noqa: SLF001
                yield from ((module, table, name) for name, each in list(table.items()) if _is_plain(each))

    def unnamed_addresses(self) -> set[int]:
        """Return the addresses of memory that is restored and that the captured pass has no name for."""
        attributes = [each for module in self.modules for each in vars(module).values()]
        options = [each for table in self.tables() for each in table.values()]
        grads = [tensor.grad for tensor in self.tensors if tensor.is_leaf]
        plain = filter(_is_plain, (*attributes, *options, *grads))
        return {int(each.untyped_storage().data_ptr()) for each in plain}


@dataclass(slots=True)
class _Kept:
    """The values of one tensor. The tensor is referred to weakly: the program may drop it for another."""

    tensor: Callable[[], torch.Tensor | None]
    values: torch.Tensor
    device: torch.device
    strides: tuple[int, ...]
    version: int | None
    """PyTorch's count of writes to it."""

    def put_back(self) -> torch.Tensor:
        """Return the tensor with its values: the program's own if it still exists with the same form."""
        import torch

        tensor = self.tensor()
        if tensor is None or tensor.shape != self.values.shape:
            form = {"dtype": self.values.dtype, "device": self.device}
            tensor = torch.empty_strided(self.values.shape, self.strides, **form)
            self.tensor = weakref.ref(tensor)
        with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
            tensor.data.copy_(self.values)
        return tensor

    def is_as(self, other: _Kept) -> bool:
        """Return whether two moments of one tensor have the same bytes and no write between them."""
        import torch

        if self.tensor() is not other.tensor() or self.version != other.version:
            return False
        mine, its = (each.values.reshape(-1).view(torch.uint8) for each in (self, other))
        # Writes through `.data`, a CUDA graph or a Triton kernel are not counted, so the values are compared.
        return bool(torch.equal(mine, its))


@dataclass(slots=True)
class _Store:
    """Copies of tensors in host memory, one each; raises an error beyond `room_bytes`."""

    room_bytes: int
    by_id: dict[int, _Kept] = field(default_factory=dict)

    def keep(self, tensor: torch.Tensor) -> _Kept:
        if id(tensor) not in self.by_id:
            self.room_bytes -= tensor.nbytes
            if self.room_bytes < 0:
                raise JoulediffError("host memory has no room for a copy of it")
            values = tensor.detach().to("cpu", copy=True).contiguous()
            version = None if tensor.is_inference() else tensor._version  # noqa: SLF001
            kept = _Kept(weakref.ref(tensor), values, tensor.device, tuple(tensor.stride()), version)
            self.by_id[id(tensor)] = kept
        return self.by_id[id(tensor)]

    def keep_tree(self, thing: Any) -> Any:
        """Return nested lists, tuples and mappings with every tensor kept; anything else as it is."""
        return self.keep(thing) if _is_plain(thing) else _map_parts(self.keep_tree, thing)


class _Bound(NamedTuple):
    """A tensor of a model other than a parameter: an entry in a dictionary of the model."""

    module: torch.nn.Module
    table: MutableMapping[str, Any]
    kept: _Kept


@dataclass(slots=True)
class _Snapshot:
    """A state at one moment."""

    devices: Collection[torch.device]
    fixed: dict[int, _Kept]
    bindings: dict[tuple[int, str], _Bound]
    grads: list[tuple[torch.Tensor, _Kept | None]]
    tables: list[tuple[MutableMapping[Any, Any], dict[Any, Any]]]
    states: list[tuple[Any, dict[Any, Any]]]
    generators: list[tuple[Generator, Any]]

    @staticmethod
    def take(reach: _Reach, store: _Store) -> _Snapshot:
        _synchronise(reach.devices)
        bound = [
            (table, name, _Bound(module, table, store.keep(table[name]))) for module, table, name in reach.bindings()
        ]
        return _Snapshot(
            devices=reach.devices,
            fixed={id(tensor): store.keep(tensor) for tensor in reach.fixed},
            bindings={(id(table), name): each for table, name, each in bound},
            grads=[(leaf, store.keep(leaf.grad) if _is_plain(leaf.grad) else None) for leaf in reach.leaves],
            tables=[
                (table, {key: store.keep_tree(each) for key, each in table.items() if key != "params"})
                for table in reach.tables()
            ],
            states=[(each, store.keep_tree(dict(each.state))) for each in reach.optimizers],
            generators=[(each, each.read()) for each in reach.generators],
        )

    def put_back(self) -> None:
        for kept in self.fixed.values():
            kept.put_back()
        for (_, name), bound in self.bindings.items():
            bound.table[name] = bound.kept.put_back()
        for leaf, grad in self.grads:
            leaf.grad = None if grad is None else grad.put_back()
        for table, values in self.tables:
            table.update(_restore(values))
        for optimizer, values in self.states:
            for key in [key for key in optimizer.state if key not in values]:
                del optimizer.state[key]
            optimizer.state.update(_restore(values))
        for generator, drawn in self.generators:
            generator.write(drawn)
        _synchronise(self.devices)

    def kept(self) -> Iterator[_Kept]:
        """Yield every tensor's values once."""
        grads = [grad for _, grad in self.grads if grad is not None]
        bound = [each.kept for each in self.bindings.values()]
        nested = [kept for _, values in (*self.tables, *self.states) for kept in _leaves(values)]
        yield from {id(kept): kept for kept in (*self.fixed.values(), *bound, *grads, *nested)}.values()


def _drop_unchanged(first: _Snapshot, last: _Snapshot) -> tuple[str, ...]:
    """Drop tensors that are equal in both states; return the optimizers that created a state between them."""
    for key in [key for key, kept in first.fixed.items() if kept.is_as(last.fixed[key])]:
        del first.fixed[key], last.fixed[key]
    moved = {key for key, bound in first.bindings.items() if _is_state(bound, last.bindings.get(key))}
    for state in (first, last):
        state.bindings = {key: bound for key, bound in state.bindings.items() if key in moved}
    pairs = zip(first.states, last.states, strict=True)
    makers = [optimizer for (optimizer, before), (_, after) in pairs if after.keys() - before.keys()]
    return tuple(dict.fromkeys(type(each).__name__ for each in makers))


def _is_state(before: _Bound, after: _Bound | None) -> bool:
    """Return whether a model's tensor is updated from call to call, unlike one that is created once or grows."""
    if after is None or before.kept.is_as(after.kept):
        return False
    if before.kept.tensor() is after.kept.tensor():
        return True
    forms = [(each.kept.values.shape, each.kept.values.dtype, each.kept.device) for each in (before, after)]
    return before.module.training and forms[0] == forms[1]


def may_be_first_step(step: object) -> bool:
    """Return whether a step trains and may not have run yet: its first call differs from all others.

    An optimizer of PyTorch's has no state before its first call. Of an optimizer that the program defines nothing is
    known: it starts from the same weights as one of PyTorch's if both have run once.
    """
    reach = _Reach(find_holdings(step), [])
    if reach.optimizers:
        return not all(_has_stepped(each) for each in reach.optimizers if any(g["params"] for g in each.param_groups))
    return reach.trains or any(tensor.requires_grad for tensor in reach.tensors if tensor.is_leaf)


def _has_stepped(optimizer: torch.optim.Optimizer) -> bool:
    return bool(optimizer.state) and type(optimizer).__module__.startswith("torch.")


def _find_optimizers(leaves: Collection[int]) -> tuple[list[Any], list[Any]]:
    """Return the optimizers of these tensors, by their ids, and all schedulers and scalers.

    They are searched among all objects of the process: a trainer may store its optimizer deep inside.
    """
    import torch

    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
    kinds = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, scaler)
    # By class and not by isinstance, which may run code of the object. One that failed to be made lacks attributes.
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]
    groups = [(each, getattr(each, "param_groups", ())) for each in found if isinstance(each, kinds[0])]
    mine = [each for each, of in groups if any(id(weight) in leaves for group in of for weight in group["params"])]
    ids = {id(each) for each in mine}
    steps = [each for each in found if isinstance(each, kinds[1]) and id(getattr(each, "optimizer", None)) in ids]
    return mine, [*steps, *(each for each in found if mine and isinstance(each, scaler))]


def _is_plain(thing: object) -> bool:
    """Return whether this is a tensor whose memory can be read and written directly."""
    import torch

    if not issubclass(type(thing), torch.Tensor):
        return False
    tensor: Any = thing
    ordinary = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001
    if type(tensor).__torch_dispatch__ is not ordinary or torch.nn.parameter.is_lazy(tensor):
        return False
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return False
    return not (tensor.is_conj() or tensor.is_neg()) and extent_of(tensor.shape, tensor.stride()).repeats == 1


def _map_parts(change: Callable[[Any], Any], thing: Any) -> Any:
    """Return a new container like `thing` with changed parts; any other object unchanged."""
    if type(thing) in (list, tuple):
        return type(thing)(change(each) for each in thing)
    if type(thing) not in _MAPPINGS:
        return thing
    made = copy.copy(thing)
    made.update({key: change(each) for key, each in thing.items()})
    return made


def _restore(tree: Any) -> Any:
    return tree.put_back() if isinstance(tree, _Kept) else _map_parts(_restore, tree)


def _leaves(tree: Any) -> Iterator[_Kept]:
    if isinstance(tree, _Kept):
        yield tree
    elif type(tree) in (list, tuple, *_MAPPINGS):
        for each in tree.values() if type(tree) in _MAPPINGS else tree:
            yield from _leaves(each)


def _host_room() -> int:
    import psutil

    return int(BUDGET_SHARE * psutil.virtual_memory().available)


def _move_near(kept: Sequence[_Kept]) -> None:
    """Move copies to their device if it has room: by now the step has allocated all it needs."""
    import torch

    for device in {each.device for each in kept if each.device.type == "cuda"}:
        mine = [each for each in kept if each.device == device]
        free_bytes, _ = torch.cuda.mem_get_info(device)
        if sum(each.values.nbytes for each in mine) <= BUDGET_SHARE * free_bytes:
            for each in mine:
                each.values = each.values.to(device)


def _synchronise(devices: Collection[torch.device]) -> None:
    """Wait for work on any stream, which may still read or write the copied tensors."""
    import torch

    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def seed() -> None:
    """Seed every generator alike."""
    import torch

    seed_host()
    torch.manual_seed(SEED)


# The seed of PyTorch's generators in a new process.
_FIRST_SEED = 67280421310721


def seed_as_at_first() -> None:
    """Seed PyTorch's generators as in a new process: a program without a seed of its own draws the same numbers."""
    import torch

    torch.manual_seed(_FIRST_SEED)


def _find_generators(step: object) -> list[Generator]:
    """Return the random generators of its own that a step refers to: those of PyTorch, Python and NumPy."""
    import torch

    def as_any(thing: object) -> Generator | None:
        if isinstance(thing, torch.Generator):
            return Generator(thing.get_state, thing.set_state)
        return as_generator(thing)

    def is_tensor(thing: object) -> bool:
        return isinstance(thing, torch.Tensor)

    return find_generators(step, as_other=as_any, is_leaf=is_tensor, max_depth=MAX_DEPTH, max_things=MAX_THINGS)


@contextmanager
def seeded() -> Iterator[Callable[[], None]]:
    """Seed every generator, and restore all at the end."""
    import torch

    torch_state = torch.get_rng_state()
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if on_gpu else []

    with host_seeded():
        try:
            yield seed
        finally:
            torch.set_rng_state(torch_state)
            if cuda_states:
                torch.cuda.set_rng_state_all(cuda_states)
