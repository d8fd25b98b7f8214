"""Run recorded PyTorch operators again, alone, in the process that recorded them.

Nothing of the program is written to: an operator gets copies of all memory that it or the step changes. Random
numbers that it draws come from generators whose states the session puts back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from joulediff.errors import JoulediffError
from joulediff.recorders.recorder import Load
from joulediff.recorders.torch.collect import collect_inputs
from joulediff.recorders.torch.inputs import KeptInputs, draw_inputs
from joulediff.recorders.torch.loads import Call, CudaLoad, CudaRest, HostLoad
from joulediff.recorders.torch.rebuild import bind, refuse
from joulediff.runs import Op, Run

Step = Callable[[], object]

# Collectives wait for other processes, which do not replay.
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor")
# Half of what is free: the other half is for outputs, workspaces and the allocator's rounding.
BUDGET_SHARE = 0.5
# Inputs and outputs that take turns fill the cache so many times, so that none is still in it when its turn comes.
CACHE_FILLS = 2
MAX_COPIES = 64
# The last cache of most server CPUs lies between 16 and 64 MB; PyTorch does not tell it.
HOST_CACHE_BYTES = 32 << 20
# Between two kernels of a graph an H200 takes about a microsecond, which is in no kernel's time.
GAP_S = 1e-6
# Calls that take as long as in the program within this find the cache as they do there.
ALIKE_SHARE = 0.03
# So many outputs are held where the cache of the program holds more than all of them would leave in it.
_HOTTER = (3, 2, 1)


class TorchReplayer:
    """The operators of one captured run. Holds inputs only from `collect` until they are used or dropped."""

    def __init__(self, step: Step, run: Run, *, begin: Callable[[], None]) -> None:
        self._step = step
        self._run = run
        self._begin = begin
        self._kept: dict[int, KeptInputs | JoulediffError] = {}
        self._kernels = Counter(kernel.op for kernel in run.kernels)
        self._waiting = {wait.op for wait in run.waits}

    def refusal(self, op: Op) -> str | None:
        kind = op.device.partition(":")[0]
        if kind not in ("cuda", "cpu"):
            return f"operators on {kind} are not replayed"
        if op.name.partition("::")[0] in _COLLECTIVES:
            return "a collective waits for other processes"
        if not op.outputs and not op.writes:
            return "it returns nothing and changes none of its tensors: its effect lies elsewhere"
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

    def cache_bytes(self, device: str) -> int:
        import torch

        if not device.startswith("cuda"):
            return HOST_CACHE_BYTES
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", HOST_CACHE_BYTES))

    def collect(self, ops: Sequence[int]) -> None:
        self._kept.clear()
        self._kept = collect_inputs(self._step, self._run, ops, begin=self._begin)

    def open_load(self, op: int, *, warm: Sequence[bool], device_s: float | None = None) -> Load:
        import torch

        found = self._run.ops[op]
        try:
            with torch.inference_mode():
                return self._open(found, self._inputs(op), warm, device_s)
        except torch.OutOfMemoryError as error:
            raise JoulediffError("its inputs and outputs do not fit into memory a second time") from error
        except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as error:
            raise JoulediffError(f"it failed when run again: {_first_line(error)}") from error

    def _inputs(self, op: int) -> KeptInputs:
        kept = self._kept.pop(op, None)
        return kept if isinstance(kept, KeptInputs) else draw_inputs(self._run, self._run.ops[op])

    def _open(self, op: Op, inputs: KeptInputs, warm: Sequence[bool], device_s: float | None) -> Load:
        outputs_bytes = sum(self._bytes(number) for number in op.outputs)
        budget, wanted = self.budget_bytes(op.device), CACHE_FILLS * self.cache_bytes(op.device)
        if inputs.size_bytes + outputs_bytes > 2 * budget:
            raise JoulediffError("its inputs and outputs do not fit into memory a second time")
        touched = max(1, inputs.size_bytes + outputs_bytes)
        cold = inputs.cold_bytes(warm)
        copies = _turns(wanted, touched, cold, budget) if cold else 1
        sets = _copy(inputs, warm, copies)
        renew = self._renewal(op, sets)
        if not op.device.startswith("cuda"):
            return HostLoad(_bind(op, sets), inputs=inputs.kind, renew=renew)
        ring = _turns(wanted, touched, max(1, outputs_bytes), budget - copies * cold)
        aim_s = device_s + GAP_S * self._kernels[op.id] if device_s else None

        def load(sets: Sequence[KeptInputs], ring: int) -> CudaLoad:
            may_capture = op.id not in self._waiting
            calls = _bind(op, sets)
            return CudaLoad(
                calls,
                device=op.device,
                inputs=inputs.kind,
                ring=ring,
                may_capture=may_capture,
                renew=renew,
                aim_s=aim_s,
            )

        first = load(sets, ring)
        if first.call_s is None or aim_s is None:
            return first
        if first.call_s > (1 + ALIKE_SHARE) * aim_s:
            # The program finds more of it in the cache.
            choices = [(sets, fewer) for fewer in _HOTTER if fewer < ring] + ([(sets[:1], 1)] if copies > 1 else [])
        elif first.call_s < (1 - ALIKE_SHARE) * aim_s and any(warm) and not op.writes:
            every = _turns(wanted, touched, inputs.size_bytes, budget)
            choices = [(_copy(inputs, (), every), ring)]
        else:
            return first
        return _closest(first, (load(*choice) for choice in choices), aim_s)

    def _renewal(self, op: Op, sets: Sequence[KeptInputs]) -> Call | None:
        """Return what gives the inputs that an operator writes to their first values back, or None."""
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

    def _bytes(self, number: int) -> int:
        import torch

        value = self._run.values[number]
        count = 1
        for length in value.shape:
            count *= length
        dtype = getattr(torch, value.dtype, None)
        return count * (dtype.itemsize if isinstance(dtype, torch.dtype) else 8)

    def open_rest(self, device: str) -> Load | None:
        return CudaRest(device) if device.startswith("cuda") else None

    def close(self) -> None:
        self._kept.clear()


def _turns(wanted_bytes: int, touched_bytes: int, each_bytes: int, budget_bytes: int) -> int:
    """Return how many copies must take turns so that `wanted_bytes` pass before one comes again."""
    needed = -(-wanted_bytes // touched_bytes)
    return max(1, min(needed, MAX_COPIES, max(1, budget_bytes) // max(1, each_bytes)))


def _copy(inputs: KeptInputs, warm: Sequence[bool], copies: int) -> list[KeptInputs]:
    return [inputs, *(inputs.copy(warm) for _ in range(copies - 1))]


def _bind(op: Op, sets: Sequence[KeptInputs]) -> list[Call]:
    return [bind(op, each.tensors()) for each in sets]


def _closest(first: CudaLoad, others: Iterable[CudaLoad], aim_s: float) -> CudaLoad:
    """Return the load whose calls take the time nearest to `aim_s`, as soon as one is near enough."""
    best, least = first, _distance(first, aim_s)
    for other in others:
        distance = _distance(other, aim_s)
        if distance < least:
            best.close()
            best, least = other, distance
        else:
            other.close()
        if least <= ALIKE_SHARE:
            break
    return best


def _distance(load: CudaLoad, aim_s: float) -> float:
    return math.inf if load.call_s is None else abs(math.log(load.call_s / aim_s))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
