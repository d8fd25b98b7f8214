"""Run the step once more to get hold of the inputs of chosen operators, as they are when the operator is called.

The step runs as it does in the captured pass, operator by operator; one that comes in another place than it was
captured in is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any

from joulediff.errors import JoulediffError
from joulediff.recorders.torch.arguments import Encoder
from joulediff.recorders.torch.inputs import KeptInputs, keep_inputs
from joulediff.recorders.torch.mode import Sieve, compiled_as_written, without_own_warnings
from joulediff.recorders.torch.schema import Facts
from joulediff.recorders.torch.watching import watch_triton
from joulediff.runs import Run

Step = Callable[[], object]


def collect_inputs(
    step: Step, run: Run, ops: Collection[int], *, begin: Callable[[], None]
) -> dict[int, KeptInputs | JoulediffError]:
    """Run `step` and return the inputs of each of `ops`, or why it has none that can be kept.

    One whose inputs were others this time, or had no room, is not there.
    """
    collector = _Collector(run, ops)
    with ExitStack() as stack:
        stack.enter_context(watch_triton(collector.count_triton))
        stack.enter_context(without_own_warnings())
        stack.enter_context(compiled_as_written())
        begin()
        with collector.sieve.mode:
            step()
    return collector.found


class _Collector:
    def __init__(self, run: Run, ops: Collection[int]) -> None:
        self._run = run
        self._ops = frozenset(ops)
        self._encoder = Encoder()
        self._lock = threading.RLock()
        self._next = 0
        # A view has an operator that made it, too: only `writes` tell that memory was changed.
        written = {run.values[value].storage for op in run.ops for value in op.writes}
        steady = {value.storage for value in run.values if value.producer is None} - written
        self._is_steady = [value.storage in steady for value in run.values]
        self.sieve = Sieve(self.take)
        self.found: dict[int, KeptInputs | JoulediffError] = {}

    def take(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        with self._lock:
            number, self._next = self._next, self._next + 1
            kept = self._keep(number, facts, args, kwargs) if number in self._ops else None
            if kept is not None:
                self.found[number] = kept
        return self._count(lambda: func(*args, **kwargs))

    def count_triton(self, _: str, run: Callable[[], object], __: tuple[Any, ...], ___: dict[str, Any]) -> object:
        me = threading.get_ident()
        if me in self.sieve.inside:
            return run()
        with self._lock:
            self._next += 1
        self.sieve.inside.add(me)
        try:
            return self._count(run)
        finally:
            self.sieve.inside.discard(me)

    def _count(self, run: Callable[[], object]) -> object:
        """Run what has a number; one that fails gives it to the next, as in the captured pass."""
        try:
            return run()
        except BaseException:
            with self._lock:
                self._next -= 1
                self.found.pop(self._next, None)
            raise

    def _keep(
        self, number: int, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KeptInputs | JoulediffError | None:
        op = self._run.ops[number]
        _, tensors = self._encoder.arguments(args, kwargs)
        values = [self._run.values[value] for value in op.inputs]
        if (facts.name, facts.overload, len(tensors)) != (op.name, op.overload, len(values)):
            return None
        try:
            kept = keep_inputs(tensors, [self._is_steady[value] for value in op.inputs])
        except JoulediffError as error:
            return error
        except RuntimeError:  # there is no memory left for it now
            return None
        # Numbers may differ: an optimizer counts its steps.
        forms = [(piece.shape, piece.strides, str(piece.dtype).removeprefix("torch.")) for piece in kept.pieces]
        return kept if forms == [(v.shape, v.strides, v.dtype) for v in values] else None
