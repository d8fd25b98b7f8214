"""Run a record again: every operator in order, on real tensors, from the record's structure alone.

`interpret` shares memory as the program did: writes go through views. `replay` shares nothing: an operator gets
copies of the values it reads, and a value that no operator returned is put together from the one before it and the
writes it shows. The first proves that the operators are all there, the second that the dataflow is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.capture.geometry import extent_of
from joulediff.frameworks.torch.capture.signature import Signers
from joulediff.frameworks.torch.replay.rebuild import bind
from joulediff.model.run import Op, Run, Value
from joulediff.model.signature import Signature

Tensors = dict[int, torch.Tensor]
SEED = 7
# Memory that an operator hands to its gradient, filled in part and from call to call anew.
WORKSPACES = {"aten::mkldnn_rnn_layer": 3}


class Constants(TorchDispatchMode):
    """Keeps what the program hands to the dispatcher without having made it there: `torch.tensor([1, 2])`.

    It sits below the capture and sees what that sees.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        if func is torch.ops.aten.lift_fresh.default:
            self.kept.append(args[0].detach().clone())
        return func(*args, **(kwargs or {}))


def record(step: Callable[[], object], **options: Any) -> tuple[Run, list[torch.Tensor], Captured]:
    """Return the record of a step, having been written and read, its constants, and what the capture said besides."""
    with Constants() as constants:
        captured = capture_step(step, begin=lambda: seed_all(SEED), **options)
    return to_run(captured), constants.kept, captured


def to_run(captured: Captured) -> Run:
    return from_wire(
        to_wire(
            Run(
                label="step",
                program=None,
                created="2026-01-01T00:00:00+00:00",
                tool="0",
                ops=captured.ops,
                values=captured.values,
                signatures=captured.signatures,
                frames=captured.frames,
            )
        )
    )


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)


def inputs_of(run: Run, named: Mapping[str, torch.Tensor], constants: list[torch.Tensor] | None = None) -> Tensors:
    """Return copies of what was there before the step, by value: named tensors and the program's constants."""
    given = {
        value.id: copy(named[plain_name(value)])
        for value in run.values
        if value.producer is None and value.name and plain_name(value) in named
    }
    made = iter(constants or [])
    for op in run.ops:
        if op.name == "aten::lift_fresh":
            given[op.inputs[0]] = copy(next(made))
    for value in run.values:
        if value.producer is None and value.id not in given:
            given[value.id] = from_signature(run, value)
    return given


def plain_name(value: Value) -> str:
    """Return what a value was called before the step; one that it returned has a second name."""
    return (value.name or "").split(", ")[0]


def from_signature(run: Run, value: Value) -> torch.Tensor:
    """Return a tensor that nothing but its signature is known of: an empty or a constant one."""
    signature = run.signature_of(value.id)
    assert signature is not None, f"nothing is known of {value}"
    assert signature.count == 0 or signature.constant, f"{value} has to be given"
    return torch.full(value.shape, signature.low or 0, dtype=getattr(torch, value.dtype))


def interpret(run: Run, given: Tensors, *, check: bool = True) -> Tensors:
    """Return the tensor of each value, computed by the recorded operators from what was `given` by value id.

    Tensors that share memory in the record share it here, so each shows what its memory holds at the end.
    """
    tensors = dict(given)
    for value, tensor in given.items():
        check_signature(run, value, tensor, None)
    seed_all(SEED)
    for op in run.ops:
        inputs = [shared(run, tensors, value) for value in op.inputs]
        with torch.set_grad_enabled(op.grad):  # some operators look at it
            output = bind(op, inputs)()
        tensors.update(returned(run, op, output))
        if check:
            for value in (*op.outputs, *op.writes):
                check_signature(run, value, shared(run, tensors, value), op)
    for value in run.values:
        shared(run, tensors, value.id)
    return tensors


def shared(run: Run, tensors: Tensors, value: int) -> torch.Tensor:
    """Return the tensor of a value: its own, what it was before a write, or a view of one with the same memory."""
    at: int | None = value
    while at is not None:
        if at in tensors:
            tensors[value] = tensors[at]
            return tensors[at]
        at = run.values[at].previous
    wanted = run.values[value]
    same = (v for v in run.values if v.storage == wanted.storage and v.dtype == wanted.dtype and v.id in tensors)
    tensors[value] = tensors[next(same).id].as_strided(wanted.shape, wanted.strides, wanted.offset)
    return tensors[value]


def replay(run: Run, given: Tensors) -> Tensors:
    """Return the contents of each value, every one in memory of its own."""
    contents = {value: laid_out(run.values[value], tensor) for value, tensor in given.items()}
    for value, tensor in contents.items():
        check_signature(run, value, tensor, None)
    seed_all(SEED)
    for op in run.ops:
        copies = {value: copy(content_of(run, contents, value)) for value in op.inputs}
        with torch.set_grad_enabled(op.grad):  # some operators look at it
            output = bind(op, [copies[value] for value in op.inputs])()
        for value in op.writes:
            contents[value] = copy(written(run, op, value, copies))
        for value, tensor in returned(run, op, output).items():
            contents.setdefault(value, copy(tensor))
        for made in (*op.outputs, *op.writes):
            check_signature(run, made, contents[made], op)
    for value in run.values:
        content_of(run, contents, value.id)
    return contents


def content_of(run: Run, contents: Tensors, value: int) -> torch.Tensor:
    """Return what a value holds, put together from writes if no operator returned it."""
    if value not in contents:
        wanted = run.values[value]
        memory = Memory(run, wanted.storage)
        if wanted.previous is not None:
            memory.put(wanted.previous, content_of(run, contents, wanted.previous))
        for writer in wanted.writers:
            op = run.ops[writer]
            for part in op.writes or op.outputs:
                if run.values[part].storage == wanted.storage:
                    memory.put(part, contents[part])
        contents[value] = memory.get(value)
        check_signature(run, value, contents[value], None)
    return contents[value]


class Memory:
    """The bytes of one storage of the record."""

    def __init__(self, run: Run, storage: int) -> None:
        self._run = run
        ends = [end_bytes(value) for value in run.values if value.storage == storage]
        self._bytes = torch.zeros(-(-max(ends) // 16) * 16, dtype=torch.uint8)

    def put(self, value: int, content: torch.Tensor) -> None:
        place, content = distinct(self._view(value)), distinct(content)
        place.copy_(content)

    def get(self, value: int) -> torch.Tensor:
        return laid_out(self._run.values[value], self._view(value))

    def _view(self, value: int) -> torch.Tensor:
        return view_of(self._run.values[value], self._bytes)


def laid_out(value: Value, content: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides and the offset of a value: operators look at them."""
    if content.layout is not torch.strided:
        return content
    place = view_of(value, torch.zeros(-(-max(end_bytes(value), 16) // 16) * 16, dtype=torch.uint8))
    distinct(place).copy_(distinct(content.as_strided(value.shape, content.stride(), content.storage_offset())))
    return place


def view_of(value: Value, memory: torch.Tensor) -> torch.Tensor:
    return memory.view(getattr(torch, value.dtype)).as_strided(value.shape, value.strides, value.offset)


def end_bytes(value: Value) -> int:
    if 0 in value.shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True))
    return (value.offset + last + 1) * getattr(torch, value.dtype).itemsize


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with every element once: one that repeats cannot be written."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, in memory of its own."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = torch.zeros(tensor.storage_offset() + max(reach, 1), dtype=tensor.dtype)
    place = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    distinct(place).copy_(distinct(tensor.detach()))
    return place


def written(run: Run, op: Op, value: int, copies: Tensors) -> torch.Tensor:
    """Return the argument that became a value: the one that was at its place, or in its storage if it was resized."""
    if value in copies:
        return copies[value]
    of = run.values[value]
    if of.previous in copies:
        return copies[of.previous]
    return next(copies[each] for each in op.inputs if run.values[each].storage == of.storage)


def returned(run: Run, op: Op, output: object) -> Tensors:
    """Return the tensors that an operator returned, by value."""
    made = [each for each in flatten(output) if isinstance(each, torch.Tensor)]
    assert len(made) == len(op.outputs), f"{op.name} made {len(made)} tensors, recorded {len(op.outputs)}"
    for value, tensor in zip(op.outputs, made, strict=True):
        recorded = run.values[value]
        assert tuple(tensor.shape) == recorded.shape, (op, recorded)
        if tensor.layout is torch.strided:
            assert same_strides(tuple(tensor.stride()), recorded), (op, recorded)
    return dict(zip(op.outputs, made, strict=True))


def same_strides(strides: tuple[int, ...], recorded: Value) -> bool:
    if math.prod(recorded.shape) == 0:
        return True
    return all(a == b for a, b, n in zip(strides, recorded.strides, recorded.shape, strict=True) if n > 1)


def flatten(output: object) -> Iterator[object]:
    if isinstance(output, list | tuple):
        for part in output:
            yield from flatten(part)
    else:
        yield output


def check_signature(run: Run, value: int, tensor: torch.Tensor, op: Op | None) -> None:
    recorded = run.signature_of(value)
    workspace = op.outputs[WORKSPACES[op.name]] if op is not None and op.name in WORKSPACES else None
    if recorded is not None and value != workspace:
        found = sign(tensor)
        if recorded.sketch is None and _is_view_or_weight(run, value):
            found = replace(found, sketch=None)
        assert repr(found) == repr(recorded), (op, run.values[value], found, recorded)


def _is_view_or_weight(run: Run, value: int) -> bool:
    """Return whether a value shows memory of others: weights, and views that only views read, may have no sketch."""
    same = [each for each in run.values if each.storage == run.values[value].storage]
    return same[0].id != value or same[0].kind in ("parameter", "buffer")


def sign(tensor: torch.Tensor) -> Signature:
    extent = extent_of(tuple(tensor.shape), tuple(tensor.stride()))
    signers = Signers()
    with torch.no_grad():
        assert signers.sign(tensor, extent) is not None
    return signers.finish()[0].repeated(extent.repeats)


def save_and_load(run: Run, folder: Path) -> Run:
    from joulediff.archive.reader import load
    from joulediff.archive.writer import save

    save(run, folder / "run.jd")
    return load(folder / "run.jd")
