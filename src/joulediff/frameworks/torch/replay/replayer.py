"""Runs recorded PyTorch operators again, each alone, in the process that recorded them.

No memory of the program is written to: an operator gets copies of all memory that it or the step changes. The session
restores the random generators that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from joulediff.frameworks.recorder import Load
from joulediff.frameworks.torch.capture.threads import Key
from joulediff.frameworks.torch.replay.bursts import (
    Call,
    CudaLoad,
    CudaRest,
    HostLoad,
    as_joulediff_errors,
    as_recorded,
    is_out_of_memory,
)
from joulediff.frameworks.torch.replay.inputs import KeptInputs, collect_inputs, count_turns, draw_inputs
from joulediff.frameworks.torch.replay.loops import open_loop
from joulediff.frameworks.torch.replay.rebuild import bind, refuse
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Op, Run
from joulediff.pysource.programs import Step

# Half of the free memory: the other half is for outputs, workspaces and the allocator's rounding.
BUDGET_SHARE = 0.5
# Inputs and outputs that take turns fill the cache this many times, so that none is still in it when its turn comes.
CACHE_FILLS = 2
MAX_COPIES = 64
# Chosen: a call of more than a third of a millisecond on so little data that copies would have to take turns computes
# far longer than it reads.
TURNS_S = 0.02
# The last-level cache of most server CPUs has 16 to 64 MB; PyTorch does not report it.
HOST_CACHE_BYTES = 32 << 20


class TorchReplayer:
    """The operators of one captured run. Holds inputs only from `collect` until they are used or dropped."""

    def __init__(
        self,
        step: Step,
        run: Run,
        *,
        begin: Callable[[], None],
        addresses: Sequence[int] = (),
        tasks: Sequence[Key] = (),
    ) -> None:
        self._step = step
        self._tasks = tasks
        self._run = run
        self._begin = begin
        self.addresses = addresses
        self._kept: dict[int, KeptInputs | JoulediffError] = {}
        self._waiting = {wait.op for wait in run.waits}

    def refusal(self, op: Op) -> str | None:
        kind = op.device.partition(":")[0]
        if kind not in ("cuda", "cpu"):
            return f"operators on {kind} are not replayed"
        if not op.outputs and not op.writes:
            return "it makes no tensor and changes none"
        values = [self._run.values[number] for number in (*op.inputs, *op.outputs)]
        if any(len(value.strides) != len(value.shape) for value in values):
            return "it works on sparse or nested tensors"
        try:
            refuse(op)
        except JoulediffError as error:
            return error.what
        return None

    def budget_bytes(self, device: str) -> int:
        import psutil
        import torch

        if not device.startswith("cuda"):
            return int(BUDGET_SHARE * psutil.virtual_memory().available)
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(BUDGET_SHARE * (free + cached))

    def _cache_bytes(self, device: str) -> int:
        import torch

        if not device.startswith("cuda"):
            return HOST_CACHE_BYTES
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", HOST_CACHE_BYTES))

    def collect(self, ops: Sequence[int]) -> None:
        self._kept.clear()
        if not ops:
            return
        try:
            self._kept = collect_inputs(self._step, self._run, ops, begin=self._begin, tasks=self._tasks)
        except (MemoryError, RuntimeError) as error:
            # The step ran before, so it lacks the memory of the kept inputs: free it, and draw values instead.
            if not is_out_of_memory(error):
                raise
            error.__traceback__ = None  # its frames refer to the kept inputs, and to the step's own tensors

    def open_load(
        self, op: int, *, inputs: Sequence[float], outputs: float = math.inf, device_s: float | None = None
    ) -> Load:
        found = self._run.ops[op]
        try:
            with as_joulediff_errors(), as_recorded():
                return self._open(found, self._inputs(op), inputs, outputs, device_s)
        except (MemoryError, RuntimeError) as error:  # failures_told lets nothing else through
            raise JoulediffError("its inputs and outputs do not fit into memory a second time") from error

    def _inputs(self, op: int) -> KeptInputs:
        kept = self._kept.pop(op, None)
        if isinstance(kept, JoulediffError):
            raise kept
        return draw_inputs(self._run, self._run.ops[op]) if kept is None else kept

    def _open(self, op: Op, kept: KeptInputs, inputs: Sequence[float], outputs: float, device_s: float | None) -> Load:
        outputs_bytes = sum(self._run.values[number].size_bytes for number in op.outputs)
        touched = max(1, kept.size_bytes + outputs_bytes)
        budget = self.budget_bytes(op.device)
        if touched > 2 * budget:
            raise JoulediffError("its inputs and outputs do not fit into memory a second time")
        # Beyond this many turns the cache has forgotten everything, the memory is full, or a burst would last too long.
        most = min(-(-CACHE_FILLS * self._cache_bytes(op.device) // touched), MAX_COPIES, max(1, budget // touched))
        if device_s and op.device.startswith("cuda"):
            most = min(most, max(1, int(TURNS_S / device_s)))
        sets = kept.copies(kept.turns(inputs, touched, most))
        calls, renew = [bind(op, each.tensors()) for each in sets], self._renewal(op, sets)
        if not op.device.startswith("cuda"):
            return HostLoad(calls, inputs=kept.kind, renew=renew, open_loop=lambda: open_loop(calls))
        return CudaLoad(
            calls,
            device=op.device,
            inputs=kept.kind,
            ring=count_turns(outputs, touched, most),
            may_capture=op.id not in self._waiting,
            renew=renew,
            aim_s=device_s,
        )

    def _renewal(self, op: Op, sets: Sequence[KeptInputs]) -> Call | None:
        """Return a function that restores the inputs that an operator writes to, or None."""
        storages = {self._run.values[number].storage for number in op.writes}
        numbers = [at for at, value in enumerate(op.inputs) if self._run.values[value].storage in storages]
        if not numbers:
            return None
        first = {buffer: sets[0].buffers[buffer].clone() for buffer in sets[0].written(numbers)}
        pairs = {id(each.buffers[at]): (each.buffers[at], values) for each in sets for at, values in first.items()}

        def renew() -> None:
            for buffer, values in pairs.values():
                buffer.copy_(values)

        return renew

    def open_rest(self, device: str) -> Load | None:
        return CudaRest(device) if device.startswith("cuda") else None

    def is_alive(self, device: str) -> bool:
        import torch

        try:
            torch.zeros(1, device=device).item()
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        import torch

        self._kept.clear()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # memory of the replay is no part of the program's allocator cache
