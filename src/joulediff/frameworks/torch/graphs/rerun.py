"""Runs the operators of a CUDA graph one by one in place of its replay, so that the recording sees them.

Every operator reads and writes the memory that the graph does, in the same order, so the graph's tensors hold the same
contents afterwards. A graph whose operators are not all known is replayed, and recorded as one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from joulediff.frameworks.torch.capture.arguments import Facts, named
from joulediff.frameworks.torch.graphs.watch import WATCH, CapturedCall, Memory, Piece, Recording, watch_graphs
from joulediff.frameworks.torch.trace.traced import GraphReplay

if TYPE_CHECKING:
    import torch

    from joulediff.frameworks.torch.capture.dispatch_mode import Sieve

REPLAY = "cuda_graph::replay"
"""The name of a replay whose operators are not known."""


@dataclass(frozen=True, slots=True)
class _Writing(Facts):
    """The facts of an operator that also writes its results to tensors which the program holds."""

    targets: tuple[Any, ...] = ()

    def changed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        return [*Facts.changed(self, args, kwargs), *self.targets]


class GraphRuns:
    """The replays of one recorded step. `number` returns that of the next operator."""

    def __init__(self, sieve: Sieve, number: Callable[[], int]) -> None:
        self._sieve = sieve
        self._number = number
        self.module: Any = None
        """The module in which the operator that runs now was captured."""
        self.replays: list[GraphReplay] = []
        self.remade: list[int] = []
        """Operators whose results were written to tensors from before the step, which they replace as a whole."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Run graphs operator by operator within the context."""
        watch_graphs()
        WATCH.replay = self._replay
        try:
            yield
        finally:
            WATCH.replay = None

    def _replay(self, graph: Any, replay: Callable[[], None]) -> None:
        recording, first = WATCH.recording_of(graph), self._number()
        if recording is None or not recording.is_whole or _has_lost(recording):
            self._replay_whole(recording, replay, first)
            return
        nodes: list[int] = []
        try:
            for call in recording.calls:
                before = self._number()
                self.module = None if call.module is None else call.module()
                self._run(call)
                nodes += [call.nodes] if self._number() > before else []
        except (RuntimeError, TypeError):
            # The program does not run this itself, so it must not see the failure: there may be no memory for it.
            recording.is_whole = False
            self._replay_whole(recording, replay, first)
            return
        finally:
            self.module = None
        ops = tuple(range(first, self._number()))
        is_random = any(_is_random(call.function) for call in recording.calls)
        counts = tuple(nodes) if recording.is_ordered and len(nodes) == len(ops) else None
        self.replays.append(GraphReplay(ops, counts, is_random, is_known=True))

    def _replay_whole(self, recording: Recording | None, replay: Callable[[], None], first: int) -> None:
        """Replay the graph, and record it as one operator on the tensors that the program still holds.

        Operators from `first` on were recorded for the same graph.
        """
        reads: list[Any] = []
        targets: list[Any] = []
        if recording is not None:
            with self._sieve.paused():
                reads, targets = _boundary(recording)

        def run(*_: Any) -> None:
            replay()

        number = self._number()
        self._sieve.run(_writing(named(REPLAY), targets), run, tuple(reads), {})
        self.remade.append(number)
        ops = tuple(range(first, self._number()))
        self.replays.append(GraphReplay(ops[::-1], None, is_random=False, is_known=False))

    def _run(self, call: CapturedCall) -> None:
        import torch
        from torch.utils._pytree import tree_map_only

        with torch.no_grad():
            with self._sieve.paused():
                args, kwargs = tree_map_only(Piece, _to_tensor, (call.args, call.kwargs))
                targets = {id(memory): storage for memory in call.made if (storage := memory.living()) is not None}
                written = [_over(piece, targets[id(piece.memory)]) for piece in _made_pieces(call, targets)]
            facts, first = self._sieve.facts_of(call.function), self._number()

            def run(*args: Any, **kwargs: Any) -> object:
                return _place(call, call.function(*args, **kwargs), targets)

            if facts is None or not facts.is_work:
                with self._sieve.paused():
                    run(*args, **kwargs)
            else:
                self._sieve.run(_writing(facts, written) if written else facts, run, args, kwargs)
                self.remade += range(first, self._number()) if written and not facts.may_change else ()
        for memory in call.last_reads:
            if not memory.is_shared:
                memory.fresh = None


def _writing(facts: Facts, targets: list[Any]) -> Facts:
    known = {each.name: getattr(facts, each.name) for each in fields(Facts)}
    return _Writing(**{**known, "may_change": True}, targets=tuple(targets))


def _has_lost(recording: Recording) -> bool:
    """Return whether the graph reads memory of the host that does not exist any more: it is not read then."""
    from torch.utils._pytree import tree_leaves

    pieces = [each for call in recording.calls for each in tree_leaves((call.args, call.kwargs))]
    read = [each.memory for each in pieces if isinstance(each, Piece) and each.memory.maker is not recording]
    return any(memory.device.type == "cpu" and memory.living() is None for memory in read)


def _boundary(recording: Recording) -> tuple[list[Any], list[Any]]:
    """Return the tensors that a graph reads from outside, and those that it makes, as far as they still exist."""
    from torch.utils._pytree import tree_leaves

    reads: dict[int, Piece] = {}
    makes: dict[int, Piece] = {}
    for call in recording.calls:
        pieces = [each for each in tree_leaves((call.args, call.kwargs)) if isinstance(each, Piece)]
        reads |= {id(each.memory): each for each in pieces if each.memory.maker is not recording}
        makes |= {id(each.memory): each for each in _results(call) if each is not None and each.memory in call.made}
    return _living(reads.values()), _living(makes.values())


def _living(pieces: Iterable[Piece]) -> list[Any]:
    return [_over(piece, storage) for piece in pieces if (storage := piece.memory.living()) is not None]


def _results(call: CapturedCall) -> list[Piece | None]:
    from torch.utils._pytree import tree_leaves

    return [each if isinstance(each, Piece) else None for each in tree_leaves(call.results)]


def _made_pieces(call: CapturedCall, among: Mapping[int, Any]) -> list[Piece]:
    return [each for each in _results(call) if each is not None and id(each.memory) in among]


def _place(call: CapturedCall, output: object, targets: Mapping[int, Any]) -> object:
    """Return the results, written to the memory that the graph writes: to the program's tensors where they exist."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, form = tree_flatten(output)
    pieces = _results(call)
    made = {id(memory) for memory in call.made}
    for at, (leaf, piece) in enumerate(zip(leaves, pieces, strict=True)):
        if piece is None or id(piece.memory) not in made or not isinstance(leaf, torch.Tensor):
            continue
        if (storage := targets.get(id(piece.memory))) is not None:
            leaves[at] = _over(piece, storage).copy_(leaf)
            continue
        piece.memory.fresh = leaf.untyped_storage()
        if leaf.is_cuda and leaf.numel():
            _over(piece, _raw(piece.memory)).copy_(leaf)
        if _geometry(leaf) != (piece.offset, piece.shape, piece.strides):
            piece.memory.fresh = _raw(piece.memory)
    return tree_unflatten(leaves, form)


def _geometry(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _to_tensor(piece: Piece) -> torch.Tensor:
    memory = piece.memory
    storage = memory.living()
    if storage is None:
        storage = memory.fresh if memory.fresh is not None else _raw(memory)
    return _over(piece, storage)


def _over(piece: Piece, storage: Any) -> torch.Tensor:
    import torch

    empty: Any = torch.empty(0, dtype=piece.dtype, device=piece.memory.device)
    tensor: torch.Tensor = empty.set_(storage, piece.offset, piece.shape, piece.strides)
    return tensor


def _raw(memory: Memory) -> Any:
    """Return a storage over memory that only the graph's pool keeps."""
    import torch

    make = torch._C._construct_storage_from_data_pointer  # noqa: SLF001
    return make(memory.address, memory.device, memory.size_bytes)


def _is_random(function: Any) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
