"""Records the operators that the program captures into CUDA graphs.

A replay runs kernels and no operator, so the operators are recorded when the graph is captured: the function, its
arguments with tensors by their place in memory, and how many nodes of the graph it made. No tensor is kept, and the
capture itself is not changed. Graphs of the compiler are left out: its code is known otherwise.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from joulediff.frameworks.torch.after_import import call_after_import
from joulediff.frameworks.torch.graphs.nodes import CountNodes, NodeCounter

if TYPE_CHECKING:
    import torch

_MODULE = "torch.cuda.graphs"
# The compiler's graphs, whose code is known otherwise, and those in which this package measures operators.
_OTHERS = ("torch._inductor.cudagraph_trees", "joulediff.frameworks.torch.replay.bursts")
_DYNAMO = "torch._dynamo"
Replay = Callable[[Any, Callable[[], None]], None]


@dataclass(slots=True, eq=False)
class Memory:
    """A storage that a captured operator reads or makes; the storage itself is not kept."""

    address: int
    size_bytes: int
    device: torch.device
    reference: Any
    maker: Recording | None
    """The recording of the graph that makes it; None if it was there before."""
    is_shared: bool = False
    """Whether another graph reads it."""
    fresh: Any = None
    """The storage with its contents while the operators run again."""

    def living(self) -> Any:
        """Return the storage if the program still holds it, else None."""
        import torch

        if self.reference.expired():
            return None
        return torch.UntypedStorage._new_with_weak_ptr(self.reference.cdata)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor, by its place in memory."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(slots=True)
class CapturedCall:
    """One captured operator. Tensors in arguments and results are pieces."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any
    made: tuple[Memory, ...]
    nodes: int
    """The kernels, copies and fills that it added to the graph."""
    module: weakref.ref[Any] | None = None
    """The innermost module that was running."""
    last_reads: list[Memory] = field(default_factory=list)
    """Memory that no later operator of the graph reads."""


@dataclass(slots=True, eq=False)
class Recording:
    """The operators of one graph, in order."""

    calls: list[CapturedCall] = field(default_factory=list)
    is_whole: bool = True
    """Whether the operators are all that the graph runs, so that running them does the same."""
    is_ordered: bool = True
    """Whether the graph runs on one stream: its kernels then run in the order of capture."""


class GraphWatch:
    """The graphs that were captured since the watch began."""

    def __init__(self) -> None:
        self.replay: Replay | None = None
        """Called in place of a replay, with the graph and the function that replays it."""
        self._recordings: weakref.WeakKeyDictionary[Any, Recording] = weakref.WeakKeyDictionary()
        self._open: dict[int, _Recorder] = {}
        self._memories: dict[int, Memory] = {}
        self.open_counter: Callable[[], CountNodes] = NodeCounter

    def recording_of(self, graph: Any) -> Recording | None:
        """Return the operators of a graph; None if it was captured unseen."""
        return self._recordings.get(graph)

    def begin(self, graph: Any) -> None:
        """Begin to record: the graph's capture has begun in this thread."""
        if self._open or not _can_watch() or _is_others(sys._getframe()):  # noqa: SLF001
            return
        recorder = self._open[id(graph)] = _Recorder(self._memories, self.open_counter())
        recorder.mode.__enter__()

    def end(self, graph: Any) -> None:
        """End the recording: the capture is about to end."""
        recorder = self._open.pop(id(graph), None)
        if recorder is not None:
            recorder.mode.__exit__(None, None, None)
            self._recordings[graph] = recorder.finish()

    def forget(self, graph: Any) -> None:
        """Drop the recording of a graph that was reset."""
        self._recordings.pop(graph, None)


WATCH = GraphWatch()


def watch_graphs() -> None:
    """Watch from now on, or as soon as the program imports PyTorch; a second call changes nothing."""
    call_after_import(_MODULE, _wrap)


def _wrap(module: ModuleType) -> None:
    kind = getattr(module, "CUDAGraph", None)
    if kind is None or hasattr(kind.replay, "__wrapped__"):
        return
    begin, end, replay, reset = kind.capture_begin, kind.capture_end, kind.replay, kind.reset

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = begin(self, *args, **kwargs)
        WATCH.begin(self)
        return found

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        WATCH.end(self)
        return end(self, *args, **kwargs)

    @functools.wraps(replay)
    def replay_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        if WATCH.replay is None:
            return replay(self, *args, **kwargs)
        return WATCH.replay(self, lambda: replay(self, *args, **kwargs))

    @functools.wraps(reset)
    def reset_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        WATCH.forget(self)
        return reset(self, *args, **kwargs)

    kind.capture_begin, kind.capture_end, kind.replay, kind.reset = (
        capture_begin,
        capture_end,
        replay_graph,
        reset_graph,
    )


def _can_watch() -> bool:
    """Return whether a dispatch mode leaves compiled code alone: older versions run it eagerly under any mode."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return _DYNAMO not in sys.modules or hasattr(TorchDispatchMode, "is_infra_mode")


def _is_others(frame: FrameType | None) -> bool:
    """Return whether a graph is not captured by the program itself."""
    while frame is not None:
        if frame.f_globals.get("__name__") in _OTHERS:
            return True
        frame = frame.f_back
    return False


class _Recorder:
    def __init__(self, memories: dict[int, Memory], count: CountNodes) -> None:
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.utils._pytree import tree_map_only

        self._torch, self._weak, self._map = torch, StorageWeakRef, tree_map_only
        self._memories = memories
        self._count = count
        self._recording = Recording()
        self._streams: set[object] = set()
        self._seen_nodes = 0
        self.mode = self._make_mode()

    def finish(self) -> Recording:
        """Return the recording; the capture is still open."""
        recording = self._recording
        counted = self._count()
        recording.is_whole &= counted is not None and counted.total == self._seen_nodes
        recording.is_ordered = len(self._streams) < 2
        seen: set[int] = set()
        for call in reversed(recording.calls):
            for memory in {id(each): each for each in (*_memories_of(call), *call.made)}.values():
                if id(memory) not in seen:
                    seen.add(id(memory))
                    call.last_reads.append(memory)
        return recording

    def _make_mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode

        take = self._take

        class Record(TorchDispatchMode):  # type: ignore[misc]
            @classmethod
            def is_infra_mode(cls) -> bool:
                return True

            @classmethod
            def ignore_compile_internals(cls) -> bool:
                return True

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
                return take(func, args, kwargs or {})

        return Record()

    def _take(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        before = self._count()
        plain_args, plain_kwargs = self._map(self._torch.Tensor, self._to_piece, (args, kwargs))
        output = func(*args, **kwargs)
        after = self._count()
        if before is None or after is None or before.total != self._seen_nodes:
            self._recording.is_whole = False  # something else than operators added to the graph
        nodes = 0 if after is None or before is None else after.works - before.works
        self._seen_nodes = self._seen_nodes if after is None else after.total
        if after is not None and after.total > (0 if before is None else before.total):
            self._streams.add(after.stream)
        made: list[Memory] = []
        results = self._map(self._torch.Tensor, lambda each: self._to_piece(each, made), output)
        self._recording.is_whole &= hasattr(func, "_schema")
        module = _module_around(sys._getframe())  # noqa: SLF001
        call = CapturedCall(func, plain_args, plain_kwargs, results, tuple(made), nodes, module)
        self._recording.calls.append(call)
        return output

    def _to_piece(self, tensor: torch.Tensor, made: list[Memory] | None = None) -> Piece | None:
        torch = self._torch
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not is_plain or tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            self._recording.is_whole = False
            return None
        storage = tensor.untyped_storage()
        memory = self._memories.get(storage._cdata)  # noqa: SLF001
        if memory is None:
            memory = Memory(
                storage.data_ptr(),
                storage.nbytes(),
                tensor.device,
                self._weak(storage),
                None if made is None else self._recording,
            )
            self._memories[storage._cdata] = memory  # noqa: SLF001 - the reference keeps the number from being reused
            if made is not None:
                made.append(memory)
        memory.is_shared |= memory.maker is not None and memory.maker is not self._recording
        return Piece(memory, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


# How a module calls its `forward`.
_MODULE_CALL, _MODULE_NAME = "_call_impl", "torch.nn.modules.module"


def _module_around(frame: FrameType | None) -> weakref.ref[Any] | None:
    while frame is not None:
        if frame.f_code.co_name == _MODULE_CALL and frame.f_globals.get("__name__") == _MODULE_NAME:
            module = frame.f_locals.get("self")
            return None if module is None else weakref.ref(module)
        frame = frame.f_back
    return None


def _memories_of(call: CapturedCall) -> list[Memory]:
    from torch.utils._pytree import tree_leaves

    return [each.memory for each in tree_leaves((call.args, call.kwargs)) if isinstance(each, Piece)]
