"""Runs trials with a PyTorch program: its step under other settings, and sequences of operators on its own tensors.

The program is not changed: operators get copies of all memory that they or the step write to, and settings are
restored. Inputs are collected by running the step as in the captured pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from joulediff.frameworks.jobs import OTHER, OWN, Job, PreparedJob
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.capture.threads import Key
from joulediff.frameworks.torch.models import find_holdings
from joulediff.frameworks.torch.operators import OPERATORS
from joulediff.frameworks.torch.replay.bursts import (
    CudaLoad,
    HostLoad,
    as_joulediff_errors,
    as_recorded,
    is_out_of_memory,
)
from joulediff.frameworks.torch.replay.inputs import KeptInputs, collect_inputs
from joulediff.frameworks.torch.replay.rebuild import COLLECTIVES
from joulediff.frameworks.torch.replay.replayer import CACHE_FILLS, HOST_CACHE_BYTES
from joulediff.frameworks.torch.state import seed_as_at_first, seeded
from joulediff.frameworks.torch.switches.change import can_change, changed, kept
from joulediff.frameworks.torch.switches.read import read_torch
from joulediff.frameworks.torch.trials.sequence import OpSequence, Tensors, differ, kernel_names, to_form
from joulediff.frameworks.torch.trials.skip_sync import without_sync
from joulediff.frameworks.torch.trials.tensor_transfer import read_tensors, write_tensors
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run, Setting
from joulediff.pysource.programs import Step

MAX_COPIES = 8
# Others come from libraries that the other program may have and this one not.
_TRUSTED = OPERATORS.namespaces


class TorchTrialRunner:
    """The step of one recorded program."""

    def __init__(
        self,
        step: Step,
        run: Run,
        *,
        names: object,
        begin: Callable[[], None],
        root: Path,
        tasks: Sequence[Key] = (),
    ) -> None:
        self._step = step
        self._names = names
        self._begin = begin
        self._root = root
        self._runs: dict[str, Run] = {OWN: run}
        self._tasks: dict[str, Sequence[Key]] = {OWN: tasks}
        self._settings: dict[str, Mapping[str, Setting]] = {OWN: {}}
        self._collected: tuple[object, dict[int, KeptInputs]] | None = None
        self._imported: Tensors = {}

    def take_other(self, run: Run) -> None:
        self._runs[OTHER] = run

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        own = self._runs[OWN]
        with changed(settings):
            found = capture_step(self._step, holdings=find_holdings(self._names), begin=self._begin, root=self._root)
        run = replace(
            own,
            ops=found.ops,
            values=found.values,
            signatures=found.signatures,
            frames=found.frames,
            sources=(),
            kernels=(),
            waits=(),
            replays=(),
            sampling=None,
            host_samples=(),
        )
        name = f"changed{len(self._runs)}"
        self._runs[name], self._settings[name], self._tasks[name] = run, dict(settings), found.tasks
        return name, run

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        own = _by_value(self._runs[OWN], self._collect(OWN, ops))
        if not own.keys() >= set(values):
            raise JoulediffError("the other program does not read a tensor that was asked for")
        write_tensors(path, {value: own[value] for value in values})

    def import_tensors(self, path: Path) -> None:
        self._imported = {}
        self._imported = read_tensors(path)

    def without_sync(self, step: Step, *, file: str, line: int) -> AbstractContextManager[Step]:
        return without_sync(step, file=file, line=line, root=f"{self._root}{os.sep}", begin=self._begin)

    def prepare_job(self, job: Job) -> PreparedJob:
        self._refuse(job)
        settings = {**self._settings.get(job.base, {}), **job.settings}
        try:
            with as_joulediff_errors(), changed(settings):
                return self._open(job)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise JoulediffError("its inputs and outputs do not fit into memory a second time") from error
            raise

    def refuse_change(self) -> None:
        if any(op.name.partition("::")[0] in COLLECTIVES for op in self._runs[OWN].ops):
            raise JoulediffError("a changed program would wait for other processes, which are not changed")

    def build_again(self, build: Callable[[], Step], first: Mapping[str, Setting]) -> tuple[Step, dict[str, Setting]]:
        now = read_torch()
        with kept(), seeded(), changed({name: value for name, value in first.items() if can_change(name)}):
            seed_as_at_first()
            step = build()
            after = read_torch()
        return step, {name: value for name, value in after.items() if now.get(name) != value and can_change(name)}

    def close(self) -> None:
        """Free all kept tensors."""
        self._collected = None
        self._imported = {}

    def _refuse(self, job: Job) -> None:
        for name in (job.run, job.base):
            if name not in self._runs:
                raise JoulediffError(f"there is no recording {name[:40]} here")
        foreign = [self._runs[OTHER].ops[op].name for op in job.ops] if job.run == OTHER else []
        known = {op.name.partition("::")[0] for op in self._runs[OWN].ops}.union(_TRUSTED)
        for name in foreign:
            if name.partition("::")[0] not in known:
                raise JoulediffError(f"{name[:60]} belongs to a library that this program does not use")

    def _open(self, job: Job) -> PreparedJob:
        base = self._runs[job.base]
        kept = self._collect(job.base, job.collect)
        sequence = OpSequence(self._runs[job.run], job.ops)
        device = next((base.ops[op].device for op in job.collect if base.ops[op].device != "cpu"), "cpu")
        imported = self._imported_for(job, sequence)
        size = sum(each.size_bytes for each in kept.values()) + sum(each.nbytes for each in imported.values())
        sets = _copies(kept, _count_copies(size, device))
        given = [self._feed(job, sequence, each, base, imported) for each in sets]
        # Imported tensors take turns like the others: a single copy would stay in the cache.
        given[1:] = [_cloned(each, set(imported)) for each in given[1:]]
        if job.run != job.base:  # it may write to memory that this program only reads
            given = [_cloned(each, sequence.written) for each in given]
        with as_recorded():
            renew = _renewal(sequence, given)
            difference = self._compare(job, sequence, given[0], sets[0], base)
            calls = [partial(sequence, each) for each in given]
            kernels = kernel_names(calls[0], device)
            load: CudaLoad | HostLoad
            if device == "cpu":
                load = HostLoad(calls, inputs="real", renew=renew)
            else:
                # Operators that wait for the device cannot be captured as a graph; trying can break a library.
                waiting = {wait.op for wait in self._runs[job.run].waits}
                may_capture = not job.paced and waiting.isdisjoint(job.ops)
                load = CudaLoad(calls, device=device, inputs="real", ring=1, may_capture=may_capture, renew=renew)
        return PreparedJob(load, device, kernels, difference)

    def _collect(self, base: str, ops: Sequence[int]) -> dict[int, KeptInputs]:
        key = (base, tuple(ops))
        if self._collected is None or self._collected[0] != key:
            self._collected = None
            run, tasks = self._runs[base], self._tasks[base]
            found = collect_inputs(self._step, run, ops, begin=self._begin, tasks=tasks)
            kept = {}
            for op in ops:
                each = found.get(op)
                if isinstance(each, JoulediffError):
                    raise each
                if each is None:
                    raise JoulediffError(f"{self._runs[base].ops[op].name} had other inputs when the step ran again")
                kept[op] = each
            self._collected = (key, kept)
        return self._collected[1]

    def _imported_for(self, job: Job, sequence: OpSequence) -> Tensors:
        """Return the tensors that the other program exported for a job of its operators."""
        if job.run != OTHER:
            return {}
        fed = {feed.value for feed in job.feeds}
        return {v: self._imported[v] for v in sequence.needed if v in self._imported and v not in fed}

    def _feed(
        self, job: Job, sequence: OpSequence, kept: Mapping[int, KeptInputs], base: Run, imported: Tensors
    ) -> Tensors:
        """Return the tensors that a job needs, from the collected and the imported ones."""
        own = _by_value(base, kept)
        feeds = {feed.value: feed for feed in job.feeds}
        found = dict(imported)
        for value in sequence.needed:
            if value in imported:
                continue
            feed = feeds.get(value)
            source = value if feed is None and job.run == job.base else None if feed is None else feed.own
            if source is None or source not in own:
                raise JoulediffError("it reads a tensor that this program does not have there")
            found[value] = own[source] if feed is None or feed.form is None else to_form(own[source], feed.form)
        return found

    def _compare(
        self, job: Job, sequence: OpSequence, given: Tensors, kept: Mapping[int, KeptInputs], base: Run
    ) -> float | None:
        """Return the difference between the outputs of a job and those of the program's own operators and settings."""
        made = sequence(_cloned(given, sequence.written))
        if not job.compare:
            return None
        own = OpSequence(base, job.collect)
        read = _cloned({v: t for v, t in _by_value(base, kept).items() if v in own.needed}, own.written)
        before = self._run_as_set(own, read, job.settings)
        if before is None:
            return None
        gaps = []
        for value, mine in job.compare:
            left, right = own.find(before, mine), sequence.find(made, value)
            if left is not None and right is not None:
                gaps.append(differ(left, right))
        return max(gaps) if gaps else None

    def _run_as_set(self, own: OpSequence, given: Tensors, settings: Mapping[str, Setting]) -> Tensors | None:
        """Run operators under the program's own settings; None if they fail under them."""
        known = self._runs[OWN].settings
        if not settings:
            return own(given)
        if not settings.keys() <= known.keys():
            return None
        try:
            with changed({name: known[name] for name in settings}):
                return own(given)
        except (JoulediffError, RuntimeError):  # operators that only run under the other settings
            return None


def _by_value(run: Run, kept: Mapping[int, KeptInputs]) -> Tensors:
    found: Tensors = {}
    for op, inputs in kept.items():
        for value, tensor in zip(run.ops[op].inputs, inputs.tensors(), strict=True):
            found.setdefault(value, tensor)
    return found


def _copies(kept: Mapping[int, KeptInputs], count: int) -> list[dict[int, KeptInputs]]:
    """Return copies of the inputs to use one after the other, so that each has left the cache when it is used again."""
    rows = {op: each.copies([count] * len(each.buffers)) for op, each in kept.items()}
    return [{op: row[min(number, len(row) - 1)] for op, row in rows.items()} for number in range(count)]


def _count_copies(size_bytes: int, device: str) -> int:
    import torch

    cache = HOST_CACHE_BYTES
    if device != "cpu":
        cache = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", HOST_CACHE_BYTES))
    return max(1, min(MAX_COPIES, -(-CACHE_FILLS * cache // max(1, size_bytes))))


def _cloned(given: Tensors, written: set[int]) -> Tensors:
    """Return the tensors, with copies of those that will be written to."""
    return {value: tensor.clone() if value in written else tensor for value, tensor in given.items()}


def _renewal(sequence: OpSequence, given: Sequence[Tensors]) -> Callable[[], None] | None:
    if not sequence.written:
        return None
    pairs = [(tensors[value], tensors[value].clone()) for tensors in given for value in sequence.written]

    def renew() -> None:
        for tensor, first in pairs:
            tensor.copy_(first)

    return renew
