"""Operators as they are noted while the step runs, and what is known of each once all are there.

Noting is all that happens beside the program; what follows from call paths is worked out afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from joulediff.runs import Frame, Op, Phase

# C++ frames worth showing; the others are the machinery that takes the picture.
_CPP_NAMES = ("at::", "c10::impl", "torch::autograd", "torch::jit", "torch::nn")
# The functions that torch.compile puts around the program's own, and the files of optimizers.
_COMPILER_FUNCTIONS = ("_TorchDynamoContext.", "OptimizedModule.", "compile_wrapper")
_OPTIMIZER_FILES = f"torch{os.sep}optim{os.sep}"
# The function from which autograd's engine runs.
_BACKWARD_CALL = "_engine_run_backward"


@dataclass(slots=True)
class Draft:
    """An operator before all operators are known. `place` is its module and the module's class."""

    name: str
    overload: str
    arguments: str
    returns: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    frame: int | None
    place: tuple[str | None, str | None]
    phase: Phase
    forward: int | None
    thread: int
    device: str
    stream: int | None
    region: str | None
    grad: bool
    inference: bool
    autocast: str | None
    cpp: object = None
    """C++ frames as PyTorch took them, where they were asked for."""
    compiled: bool = False


def to_ops(drafts: Sequence[Draft], frames: Sequence[Frame], *, cpp: bool) -> tuple[Op, ...]:
    """Return the operators, with what only their call paths tell."""
    _learn_from_frames(drafts, frames)
    texts = _cpp_texts(drafts) if cpp else [None] * len(drafts)
    return tuple(_to_op(number, draft, texts[number]) for number, draft in enumerate(drafts))


def _learn_from_frames(drafts: Sequence[Draft], frames: Sequence[Frame]) -> None:
    """Say what only a call path tells; a backward operator is where its forward one is.

    Autograd computes gradients from C++. Python code with gradients on, inside of it, is a forward pass that is
    computed again.
    """
    compiled = _inside(frames, lambda f: f.owner == "torch" and f.function.startswith(_COMPILER_FUNCTIONS))
    optimizer = _inside(frames, lambda f: f.owner == "torch" and f.file.startswith(_OPTIMIZER_FILES))
    for draft in drafts:
        draft.compiled = draft.frame in compiled
        if draft.phase == "forward" and draft.frame in optimizer and draft.place[0] is None:
            draft.phase = "optimizer"  # in a module it is the closure that an optimizer calls
        if draft.grad and draft.frame is not None and frames[draft.frame].function != _BACKWARD_CALL:
            draft.forward = None
        if draft.forward is not None:
            forward = drafts[draft.forward]
            draft.compiled |= forward.compiled
            draft.place = forward.place if draft.place[0] is None else draft.place


def _inside(frames: Sequence[Frame], is_entry: Callable[[Frame], bool]) -> set[int]:
    """Return the frames that are such an entry or lie inside of one."""
    inside: set[int] = set()
    for number, frame in enumerate(frames):
        if frame.parent in inside or is_entry(frame):
            inside.add(number)
    return inside


def _cpp_texts(drafts: Sequence[Draft]) -> list[str | None]:
    import torch

    found: list[Any] = torch._C._profiler.symbolize_tracebacks([draft.cpp for draft in drafts])  # noqa: SLF001
    return ["\n".join(f["name"] for f in frames if f["name"].startswith(_CPP_NAMES)) for frames in found]


def _to_op(number: int, draft: Draft, cpp: str | None) -> Op:
    return Op(
        id=number,
        name=draft.name,
        overload=draft.overload,
        arguments=draft.arguments,
        returns=draft.returns,
        inputs=draft.inputs,
        outputs=draft.outputs,
        writes=draft.writes,
        frame=draft.frame,
        module=draft.place[0],
        module_type=draft.place[1],
        phase=draft.phase,
        forward=draft.forward,
        thread=draft.thread,
        device=draft.device,
        stream=draft.stream,
        region=draft.region,
        grad=draft.grad,
        inference=draft.inference,
        autocast=draft.autocast,
        compiled=draft.compiled,
        cpp=cpp,
    )
