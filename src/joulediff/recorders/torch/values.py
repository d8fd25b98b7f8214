"""Which value an operator reads and makes: tensors told apart by their memory, not by their Python objects.

A tensor is a piece of a storage. A write to a storage is noted with the bytes it touched; a tensor that is
read after a write to bytes it shares is a new value, whichever view the write went through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from joulediff.recorders.torch.geometry import Dims, extent_of, overlap
from joulediff.recorders.torch.signature import Signers
from joulediff.runs import Value, ValueKind

if TYPE_CHECKING:
    import torch


class Name(NamedTuple):
    """What a tensor that was there before the step is called."""

    kind: ValueKind
    text: str


class _Piece(NamedTuple):
    """The part of a storage that a tensor shows, and how."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype | None


class _Write(NamedTuple):
    op: int
    at_bytes: int
    dims: Dims


@dataclass(slots=True)
class _Draft:
    """A value while its name and signature are still open."""

    storage: _Storage
    piece: _Piece
    device: torch.device
    kind: ValueKind
    name: str | None
    writers: Sequence[int]
    previous: int | None
    signature: int | None = None
    unsigned: torch.Tensor | None = None
    """The tensor itself, only where signing it can wait: a weight, which lives on anyway."""


@dataclass(slots=True)
class _Storage:
    id: int
    hold: object
    """Keeps the storage's identity from being given to another one; not its memory."""
    writes: list[_Write] = field(default_factory=list)
    newest: dict[_Piece, tuple[int, int]] = field(default_factory=dict)
    """The newest value of a piece, and how many writes it has been held against."""
    signed: dict[tuple[object, ...], tuple[int | None, int]] = field(default_factory=dict)
    """The same for signatures, by the elements themselves: views of one extent share one."""
    names: dict[_Piece, Name] = field(default_factory=dict)
    unsigned: list[int] = field(default_factory=list)
    is_weights: bool = False


class Values:
    """Every value of one captured step, in the order they were first seen."""

    def __init__(self, signers: Signers) -> None:
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        self._hold = StorageWeakRef
        self._strided = torch.strided
        self._signers = signers
        self._storages: dict[int, _Storage] = {}
        self._drafts: list[_Draft] = []

    def name(self, tensor: torch.Tensor, name: Name) -> None:
        """Say what a tensor is called that was there before the step."""
        storage = self._storage(tensor)
        storage.names.setdefault(self._piece(tensor), name)
        storage.is_weights |= name.kind != "input"

    def read(self, tensor: torch.Tensor) -> int:
        """Return the value that an operator sees when it reads `tensor` now."""
        storage, piece = self._storage(tensor), self._piece(tensor)
        value, checked = storage.newest.get(piece, (None, 0))
        if value is not None and checked == len(storage.writes):
            return value
        writers = _overlapping(storage, checked, piece)
        if value is None or writers:
            return self._add(tensor, storage, piece, writers, value)
        storage.newest[piece] = (value, len(storage.writes))
        return value

    def before_write(self, tensor: torch.Tensor) -> None:
        """Sign what is still unsigned in the storage of `tensor`: an operator is about to change it."""
        storage = self._storage(tensor)
        self._sign_waiting(storage.unsigned)
        storage.unsigned.clear()

    def write(self, tensor: torch.Tensor, op: int) -> int:
        """Note that operator `op` changed `tensor`, and return its new value."""
        storage, piece = self._storage(tensor), self._piece(tensor)
        storage.writes.append(_Write(op, *_bytes(piece)))
        return self.read(tensor)

    def make(self, tensor: torch.Tensor, op: int) -> int:
        """Return the value of a tensor that operator `op` returned: a known one, where nothing is new about it."""
        is_new = self._key(tensor) not in self._storages
        storage, piece = self._storage(tensor), self._piece(tensor)
        if is_new:
            storage.writes.append(_Write(op, *_bytes(piece)))
        value, checked = storage.newest.get(piece, (None, 0))
        if value is not None and not _overlapping(storage, checked, piece):
            return value
        return self._add(tensor, storage, piece, (op,), value)

    def signature(self, value: int) -> int | None:
        """Return the number of a value's signature; None while it has none."""
        return self._drafts[value].signature

    def rename(self, value: int, name: str) -> None:
        """Give a value a name, beside one it may have."""
        draft = self._drafts[value]
        draft.name = f"{draft.name}, {name}" if draft.name else name

    def changed(self) -> Iterable[Name | None]:
        """Return the names of tensors that were there before the step and that it changed; None without a name."""
        for draft in self._drafts:
            if draft.writers and draft.previous is not None:
                before = self._drafts[draft.previous]
                if not before.writers:
                    yield before.storage.names.get(before.piece)

    def finish(self) -> tuple[Value, ...]:
        """Sign what was put off, and return all values."""
        self._sign_waiting(range(len(self._drafts)))
        return tuple(_to_value(number, draft) for number, draft in enumerate(self._drafts))

    def _add(
        self, tensor: torch.Tensor, storage: _Storage, piece: _Piece, writers: Sequence[int], previous: int | None
    ) -> int:
        name = storage.names.get(piece) if not writers or previous is not None else None
        kind: ValueKind = "produced" if writers else name.kind if name else "input"
        number = len(self._drafts)
        draft = _Draft(storage, piece, tensor.device, kind, name.text if name else None, writers, previous)
        self._drafts.append(draft)
        storage.newest[piece] = (number, len(storage.writes))
        if storage.is_weights and not storage.writes:
            # Weights are many and mostly stay as they are: signed after the step, or before the first write.
            draft.unsigned = tensor
            storage.unsigned.append(number)
        else:
            self._sign(draft, tensor)
        return number

    def _sign_waiting(self, values: Iterable[int]) -> None:
        for value in values:
            draft = self._drafts[value]
            tensor, draft.unsigned = draft.unsigned, None
            if tensor is not None:
                self._sign(draft, tensor)

    def _sign(self, draft: _Draft, tensor: torch.Tensor) -> None:
        if tensor.layout is not self._strided:
            return
        storage, piece = draft.storage, draft.piece
        extent = extent_of(piece.shape, piece.strides)
        key = (piece.offset, extent.dims, piece.dtype)
        known, checked = storage.signed.get(key, (None, -1))
        if checked < 0 or _overlapping(storage, checked, piece):
            known = self._signers.sign(tensor, extent)
        storage.signed[key] = (known, len(storage.writes))
        draft.signature = known

    def _key(self, tensor: torch.Tensor) -> int:
        if tensor.layout is self._strided:
            return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the only identity a storage has
        return -id(tensor)

    def _storage(self, tensor: torch.Tensor) -> _Storage:
        key = self._key(tensor)
        found = self._storages.get(key)
        if found is None:
            # A sparse tensor has no storage of its own: the object is its identity, and has to be kept.
            hold = self._hold(tensor.untyped_storage()) if key > 0 else tensor
            found = self._storages[key] = _Storage(len(self._storages), hold)
        return found

    def _piece(self, tensor: torch.Tensor) -> _Piece:
        if tensor.layout is self._strided:
            return _Piece(tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        return _Piece(0, tensor.shape, (), tensor.dtype)


def _overlapping(storage: _Storage, since: int, piece: _Piece) -> list[int]:
    """Return the operators that have written to a piece since so many writes."""
    writes = storage.writes[since:] if since < len(storage.writes) else ()
    if not writes:
        return []
    at_bytes, dims = _bytes(piece)
    return list(dict.fromkeys(w.op for w in writes if overlap(w.dims, w.at_bytes, dims, at_bytes)))


@lru_cache(maxsize=65536)
def _bytes(piece: _Piece) -> tuple[int, Dims]:
    """Return where a piece begins and its dimensions, in bytes."""
    if piece.dtype is None or len(piece.strides) != len(piece.shape):
        return 0, ((1, 1),)
    size = piece.dtype.itemsize
    dims = [(count, stride * size) for count, stride in extent_of(piece.shape, piece.strides).dims]
    if dims and dims[-1][1] == size:
        dims[-1] = (dims[-1][0] * size, 1)
    elif not any(count == 0 for count, _ in dims):
        dims.append((size, 1))
    return piece.offset * size, tuple(dims)


def _to_value(number: int, draft: _Draft) -> Value:
    piece = draft.piece
    strided = len(piece.strides) == len(piece.shape)
    return Value(
        id=number,
        shape=tuple(piece.shape),
        strides=tuple(piece.strides),
        offset=piece.offset,
        dtype=str(piece.dtype).removeprefix("torch."),
        device=str(draft.device),
        storage=draft.storage.id,
        kind=draft.kind,
        name=draft.name,
        producer=draft.writers[-1] if draft.writers else None,
        previous=draft.previous,
        writers=tuple(draft.writers),
        signature=draft.signature,
        repeats=extent_of(piece.shape, piece.strides).repeats if strided else 1,
    )
