"""Run a record again: every operator in order, on real tensors, from the archive's structure alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from joulediff.recorders.torch.geometry import extent_of
from joulediff.recorders.torch.rebuild import rebuild
from joulediff.recorders.torch.signature import Signers
from joulediff.runs import Run, Signature


def interpret(run: Run, given: Mapping[int, torch.Tensor], *, check: bool = True) -> dict[int, torch.Tensor]:
    """Return the tensor of each value, computed by the recorded operators from what was `given` by value id.

    Tensors that share memory in the record share it here: writes go through.
    """
    tensors = dict(given)
    for op in run.ops:
        inputs = [tensor_of(run, tensors, value) for value in op.inputs]
        with torch.no_grad():
            output = rebuild(op)(inputs)
        made = [t for t in flatten(output) if isinstance(t, torch.Tensor)]
        assert len(made) == len(op.outputs), f"{op.name} made {len(made)} tensors, recorded {len(op.outputs)}"
        for value, tensor in zip(op.outputs, made, strict=True):
            tensors[value] = tensor
            recorded = run.values[value]
            assert tuple(tensor.shape) == recorded.shape, (op, recorded)
            assert tuple(tensor.stride()) == recorded.strides, (op, recorded)
        if check:
            for value in (*op.outputs, *op.writes):
                assert same(sign(tensor_of(run, tensors, value)), run.signature_of(value)), (op, run.values[value])
    return tensors


def tensor_of(run: Run, tensors: dict[int, torch.Tensor], value: int) -> torch.Tensor:
    """Return the tensor of a value: its own, what it was before a write, or a view of one with the same memory."""
    at: int | None = value
    while at is not None:
        if at in tensors:
            tensors[value] = tensors[at]
            return tensors[at]
        at = run.values[at].previous
    wanted = run.values[value]
    other = next(v for v in run.values if v.storage == wanted.storage and v.id in tensors)
    tensors[value] = tensors[other.id].as_strided(wanted.shape, wanted.strides, wanted.offset)
    return tensors[value]


def flatten(output: object) -> list[object]:
    if isinstance(output, list | tuple):
        return [each for part in output for each in flatten(part)]
    return [output]


def sign(tensor: torch.Tensor) -> Signature:
    signers = Signers()
    with torch.no_grad():
        assert signers.sign(tensor, extent_of(tuple(tensor.shape), tuple(tensor.stride()))) is not None
    return signers.finish()[0].repeated(extent_of(tuple(tensor.shape), tuple(tensor.stride())).repeats)


def same(found: Signature, recorded: Signature | None) -> bool:
    return recorded is not None and repr(found) == repr(recorded)
