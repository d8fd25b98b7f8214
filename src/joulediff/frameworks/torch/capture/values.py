"""Numbers the values that operators read and produce: tensors are distinguished by memory, not by Python object.

A tensor is a piece of a storage. A write to a storage is recorded with the bytes it changed; a tensor that is read
after a write to bytes it shares is a new value, whichever view the write went through.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from joulediff.frameworks.torch.capture.geometry import Dims, Extent, covers, extent_of, overlap
from joulediff.frameworks.torch.capture.signature import Signers
from joulediff.model.run import Value, ValueKind

if TYPE_CHECKING:
    import torch


class Name(NamedTuple):
    """The name and kind of a tensor from before the step."""

    kind: ValueKind
    text: str


class _Piece(NamedTuple):
    """The part of a storage that a tensor shows, and how."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    bits: int = 0
    """Whether elements are seen conjugated (1) or negated (2): views that only PyTorch's operators resolve."""


class _Write(NamedTuple):
    op: int
    at_bytes: int
    dims: Dims


@dataclass(slots=True)
class _PendingValue:
    """A value while its name and signature are still open."""

    storage: _Storage
    piece: _Piece
    device: torch.device
    kind: ValueKind
    name: str | None
    writers: Sequence[int]
    previous: int | None
    is_blank: bool
    """Uninitialised memory: there is nothing to sign."""
    signature: int | None = None
    unsketched: dict[Dims, int | None] | None = None
    """The signatures of its elements in other orders, until it has one of its own."""
    unsigned: torch.Tensor | None = None
    """The tensor itself, only if signing it can wait: a weight, which the program keeps anyway."""


@dataclass(slots=True)
class _Storage:
    id: int
    maker: int | None
    """The operator that returned it first; None for one that was there before."""
    is_alive: Callable[[], bool]
    """Keeps the address, not the memory: no other storage is given it."""
    is_opaque: bool
    address: int = 0
    """The address of its memory on its device; 0 if unknown."""
    writes: list[_Write] = field(default_factory=list)
    newest: dict[_Piece, tuple[int, int]] = field(default_factory=dict)
    """The newest value of a piece, and the number of writes it takes into account."""
    signed: dict[tuple[object, ...], tuple[dict[Dims, int | None], int]] = field(default_factory=dict)
    """The same for signatures, by the elements themselves: views of one extent share one for each order of it."""
    names: dict[_Piece, Name] = field(default_factory=dict)
    unsigned: list[int] = field(default_factory=list)
    is_weights: bool = False


class Values:
    """Every value of one captured step, in the order they were first seen."""

    def __init__(self, signers: Signers) -> None:
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._weak = StorageWeakRef
        self._signers = signers
        self._by_address: dict[int, _Storage] = {}
        self._storages: list[_Storage] = []
        self._pending: list[_PendingValue] = []
        self._blank_ops: set[int] = set()

    def name(self, tensor: torch.Tensor, name: Name) -> None:
        """Name a tensor from before the step."""
        storage, piece = self._locate(tensor)
        storage.names.setdefault(piece, name)
        storage.is_weights |= name.kind != "input"

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """Return the name of a tensor, if it has one."""
        storage, piece = self._locate(tensor)
        return storage.names[piece].text if piece in storage.names else None

    def read(self, tensor: torch.Tensor) -> int:
        """Return the value that an operator sees when it reads `tensor` now."""
        value = self._read(tensor, *self._locate(tensor))
        if self._pending[value].unsketched is not None:
            self._sketch(self._pending[value], tensor)
        return value

    def see(self, tensor: torch.Tensor) -> int:
        """Do the same for an operator that makes views and reads no elements: the sketch of a view can wait."""
        return self._read(tensor, *self._locate(tensor))

    def before_write(self, tensors: Iterable[torch.Tensor]) -> None:
        """Sign the unsigned values in the storages of `tensors`: an operator is about to change them."""
        for tensor in tensors:
            storage, _ = self._locate(tensor)
            self._sign_waiting(storage.unsigned)
            storage.unsigned.clear()

    def write(self, tensors: Sequence[torch.Tensor], op: int) -> tuple[int, ...]:
        """Record that operator `op` changed `tensors`, and return their new values."""
        places = [self._locate(tensor, op) for tensor in tensors]
        for storage, piece in places:
            if 0 not in piece.shape:
                storage.writes.append(_Write(op, *_bytes(piece)))
        return tuple([self._read(tensor, *place) for tensor, place in zip(tensors, places, strict=True)])

    def make(self, tensor: torch.Tensor, op: int) -> int:
        """Return the value of a tensor that operator `op` returned: an existing one, if the tensor is not new."""
        storage, piece = self._locate(tensor, op)
        value, checked = storage.newest.get(piece, (None, 0))
        if value is None and storage.maker == op:
            return self._add(tensor, storage, piece, [op], None)
        if value is not None and checked == len(storage.writes):
            return value
        writers = _visible(storage, checked, piece)
        if value is not None and not writers:
            return value
        return self._add(tensor, storage, piece, writers, value, maker=op)

    def leave_blank(self, op: int) -> None:
        """Record that the memory which operator `op` allocates has no contents yet."""
        self._blank_ops.add(op)

    def is_blank(self, value: int) -> bool:
        """Return whether a value is uninitialised memory."""
        return self._pending[value].is_blank

    def rename(self, value: int, name: str) -> None:
        """Give a value a name, beside one it may have."""
        entry = self._pending[value]
        entry.name = f"{entry.name}, {name}" if entry.name else name

    def changed(self, *, fresh: Iterable[int] = ()) -> Iterator[Name | None]:
        """Yield the names of tensors that were there before the step, changed in it, and are still there; None unnamed.

        `fresh` are values that only seem to have been there before.
        """
        passed = {self._pending[value].storage.id for value in fresh}
        for storage in self._storages:
            if storage.maker is None and storage.writes and storage.id not in passed and storage.is_alive():
                named: list[Name | None] = [
                    name for piece, name in storage.names.items() if _visible(storage, 0, piece)
                ]
                yield from named or [None]

    def addresses(self) -> tuple[int, ...]:
        """Return the address of each storage: storages may reuse the memory of earlier ones."""
        return tuple(storage.address for storage in self._storages)

    def finish(self) -> tuple[Value, ...]:
        """Sign the remaining values, and return all."""
        self._sign_waiting(range(len(self._pending)))
        for entry in self._pending:
            if entry.unsketched is not None:
                self._sketch(entry, None)
        return tuple(_to_value(number, entry) for number, entry in enumerate(self._pending))

    def _read(self, tensor: torch.Tensor, storage: _Storage, piece: _Piece) -> int:
        value, checked = storage.newest.get(piece, (None, 0))
        if value is not None and checked == len(storage.writes):
            return value
        writers = _visible(storage, checked, piece)
        if value is None or writers:
            return self._add(tensor, storage, piece, writers, value)
        storage.newest[piece] = (value, len(storage.writes))
        return value

    def _add(
        self,
        tensor: torch.Tensor,
        storage: _Storage,
        piece: _Piece,
        writers: list[int],
        previous: int | None,
        *,
        maker: int | None = None,
    ) -> int:
        is_blank = bool(writers) and self._blank_ops.issuperset(writers)
        if maker is not None and maker not in writers:
            writers.append(maker)
        name = storage.names.get(piece)
        kind: ValueKind = "produced" if writers else name.kind if name else "input"
        number = len(self._pending)
        entry = _PendingValue(
            storage, piece, tensor.device, kind, name.text if name else None, writers, previous, is_blank
        )
        self._pending.append(entry)
        storage.newest[piece] = (number, len(storage.writes))
        if storage.is_weights and not storage.writes:
            # Weights are many and mostly stay as they are: signed after the step, or before the first write.
            entry.unsigned = tensor
            storage.unsigned.append(number)
        elif not is_blank:
            self._sign(entry, tensor)
        return number

    def _sign_waiting(self, values: Iterable[int]) -> None:
        for value in values:
            entry = self._pending[value]
            tensor, entry.unsigned = entry.unsigned, None
            if tensor is not None:
                self._sign(entry, tensor)

    def _sign(self, entry: _PendingValue, tensor: torch.Tensor) -> None:
        storage, piece = entry.storage, entry.piece
        if storage.is_opaque:
            return
        extent = extent_of(piece.shape, piece.strides)
        key = (piece.offset, extent.dims, piece.dtype, piece.bits)
        known, checked = storage.signed.get(key, (None, 0))
        if known is None or (checked < len(storage.writes) and _visible(storage, checked, piece)):
            known = {extent.order: self._signers.sign(tensor, extent)}
        storage.signed[key] = (known, len(storage.writes))
        if extent.order in known:
            entry.signature = known[extent.order]
        else:
            entry.unsketched = known

    def _sketch(self, entry: _PendingValue, tensor: torch.Tensor | None) -> None:
        """Give a value the signature of its elements in its own order; without a sketch if no operator reads them."""
        extent = extent_of(entry.piece.shape, entry.piece.strides)
        known, entry.unsketched = entry.unsketched, None
        assert known is not None
        if extent.order not in known:
            known[extent.order] = self._sign_again(entry, tensor, extent, next(iter(known.values())))
        entry.signature = known[extent.order]

    def _sign_again(
        self, entry: _PendingValue, tensor: torch.Tensor | None, extent: Extent, signature: int | None
    ) -> int | None:
        if signature is None:
            return None
        # A weight is found by its sums, which are exact; a transposed one is read by many operators.
        if tensor is None or (entry.storage.is_weights and not entry.storage.writes):
            return self._signers.without_sketch(signature)
        return self._signers.sketch(tensor, extent, signature)

    def _locate(self, tensor: torch.Tensor, maker: int | None = None) -> tuple[_Storage, _Piece]:
        """Return the storage of a tensor and its piece of it. A storage that is not known yet is the `maker`'s."""
        try:
            bits = tensor.is_conj() + 2 * tensor.is_neg()
            piece = _Piece(tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, bits)
            memory = tensor.untyped_storage()
        except RuntimeError:  # sparse and nested tensors, and some devices'
            return self._locate_opaque(tensor, maker)
        address = memory._cdata  # noqa: SLF001 - the only identity a storage has
        storage = self._by_address.get(address)
        if storage is None:
            hold = self._weak(memory)
            storage = self._new_storage(address, maker, lambda: not hold.expired(), is_opaque=False)
            storage.address = self._address_of(tensor, memory)
            if maker is not None:
                storage.writes.append(_Write(maker, 0, ((memory.nbytes(), 1),)))
        return storage, piece

    def _address_of(self, tensor: torch.Tensor, memory: torch.UntypedStorage) -> int:
        if type(tensor) not in self._plain:
            return 0  # a fake tensor warns of the question
        try:
            return int(memory.data_ptr())
        except RuntimeError:  # a placeholder of a traced program has no memory
            return 0

    def _locate_opaque(self, tensor: torch.Tensor, maker: int | None) -> tuple[_Storage, _Piece]:
        """Do the same for a tensor without its own single memory: the object is its identity."""
        storage = self._by_address.get(-id(tensor))
        if storage is None or not storage.is_alive():
            hold = weakref.ref(tensor)
            storage = self._new_storage(-id(tensor), maker, lambda: hold() is not None, is_opaque=True)
            if maker is not None:
                storage.writes.append(_Write(maker, 0, _SOMEWHERE))
        try:
            return storage, _Piece(0, tensor.shape, (), tensor.dtype)
        except RuntimeError:  # a nested tensor has no one shape, a lazy parameter none yet
            return storage, _Piece(0, (), (), tensor.dtype)

    def _new_storage(
        self, address: int, maker: int | None, is_alive: Callable[[], bool], *, is_opaque: bool
    ) -> _Storage:
        storage = self._by_address[address] = _Storage(len(self._storages), maker, is_alive, is_opaque)
        self._storages.append(storage)
        return storage


def _visible(storage: _Storage, since: int, piece: _Piece) -> list[int]:
    """Return the operators whose writes a piece shows, in order, after the first `since` writes.

    A write that a later one covers is left out.
    """
    if since == len(storage.writes):
        return []
    found: dict[int, None] = {}
    at_bytes, dims = _bytes(piece)
    for place in range(len(storage.writes) - 1, since - 1, -1):
        op, write_at, write_dims = storage.writes[place]
        if covers(write_dims, write_at, dims, at_bytes):
            found[op] = None
            break
        if overlap(write_dims, write_at, dims, at_bytes):
            found[op] = None
    return list(found)[::-1]


_SOMEWHERE: Dims = ((1, 1),)


@lru_cache(maxsize=65536)
def _bytes(piece: _Piece) -> tuple[int, Dims]:
    """Return where a piece begins and its dimensions, in bytes."""
    if len(piece.strides) != len(piece.shape):
        return 0, _SOMEWHERE
    size = piece.dtype.itemsize
    dims = [(count, stride * size) for count, stride in extent_of(piece.shape, piece.strides).dims]
    if dims and dims[-1][1] == size:
        dims[-1] = (dims[-1][0] * size, 1)
    elif not any(count == 0 for count, _ in dims):
        dims.append((size, 1))
    return piece.offset * size, tuple(dims)


def _to_value(number: int, entry: _PendingValue) -> Value:
    piece = entry.piece
    return Value(
        id=number,
        shape=tuple(piece.shape),
        strides=tuple(piece.strides),
        offset=piece.offset,
        dtype=str(piece.dtype).removeprefix("torch."),
        device=str(entry.device),
        storage=entry.storage.id,
        kind=entry.kind,
        name=entry.name,
        producer=entry.writers[-1] if entry.writers else None,
        previous=entry.previous,
        writers=tuple(entry.writers),
        signature=entry.signature,
        repeats=1 if entry.storage.is_opaque else extent_of(piece.shape, piece.strides).repeats,
    )
