"""The knowledge of joulediff about the toy framework: what a new framework has to bring, and no more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import toyframework as toy
from joulediff.frameworks.framework import Framework, Operators, Switches, source_hints
from joulediff.frameworks.jobs import OTHER, OWN, Dataflow, Feed, Job, PreparedJob
from joulediff.frameworks.settings import collect_settings
from joulediff.frameworks.sketch import signed_sums, to_sketch
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import How, Inputs, Kernel, Op, Run, Setting, Value
from joulediff.model.signature import Signature
from joulediff.pysource.call_path import CallPaths, read_sources
from joulediff.pysource.setting_sites import Effect, Setters, find_places, own_files
from replay_fakes import FakeLoad

FAST_MATH = "toyframework.fast_math"
SETTERS = Setters(package="toyframework", functions={"toyframework.set_fast_math": (Effect(FAST_MATH),)})
Step = Callable[[], object]


class Recorder:
    """The passes of one step."""

    def __init__(self, step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> None:
        self.listener = ProgressListener()
        self._step = step
        self._root = root
        self._calls: list[toy.Call] = []
        self._arrays: dict[int, toy.Array] = {}

    @contextmanager
    def seeded(self, *, ran: bool) -> Iterator[Callable[[], None]]:
        yield lambda: None

    def settings(self) -> dict[str, Setting]:
        return collect_settings()

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:
        calls: list[toy.Call] = []
        begin_s = toy.clock.now()
        with toy.listening(calls.append):
            self._step()
        kernels = [
            Kernel(
                call.kernel,
                "kernel",
                toy.DEVICE,
                0,
                call.start_s - begin_s,
                toy.KERNELS[call.kernel].call_s,
                op,
                None,
                "op",
            )
            for op, call in enumerate(calls)
            if call.kernel is not None
        ]
        return replace(run, traced_s=toy.clock.now() - begin_s, kernels=tuple(kernels))

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        found = _Capture(self._root)
        with toy.listening(found.add):
            found.call(self._step)
        own = own_files(found.paths.frames, found.paths.files, self._root, source_hints())
        places = find_places(run.settings, own, SETTERS)
        self._calls, self._arrays = found.calls, found.arrays
        return replace(
            run,
            ops=tuple(found.ops),
            values=tuple(found.values),
            signatures=tuple(found.signatures),
            frames=tuple(found.paths.frames),
            sources=read_sources(found.paths.frames, found.paths.files, places.values()),
            set_places={name: f"{each.file}:{each.line}:{each.function}" for name, each in places.items()},
        )

    def replayer(self, run: Run, begin: Callable[[], None]) -> Replayer:
        return Replayer(self._calls)

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> Trials:
        return Trials(self, run, self._arrays)

    def changed(self, settings: Mapping[str, Setting]) -> AbstractContextManager[None]:
        return changed(settings)


@contextmanager
def changed(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Change `fast_math` within the context."""
    if settings.keys() - {FAST_MATH}:
        raise JoulediffError(f"{', '.join(settings)} cannot be changed")
    before = toy.fast_math
    toy.set_fast_math(bool(settings.get(FAST_MATH, before)))
    try:
        yield
    finally:
        toy.set_fast_math(before)


class _Capture:
    """Operators and values of one call of the step."""

    def __init__(self, root: Path) -> None:
        self.paths = CallPaths(_Capture.call.__code__, root=root, hints=source_hints())
        self.calls: list[toy.Call] = []
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.signatures: list[Signature] = []
        self.arrays: dict[int, toy.Array] = {}
        self._known: dict[int, int] = {}
        self._storages: dict[int, int] = {}

    def call(self, step: Step) -> None:
        step()

    def add(self, call: toy.Call) -> None:
        op = len(self.ops)
        inputs = [self._value(each, None) for each in call.inputs]
        output = self._value(call.output, op)
        arguments = ", ".join(f'{{"tensor": {at}}}' for at in range(len(inputs)))
        self.calls.append(call)
        self.ops.append(
            Op(
                id=op,
                name=call.name,
                overload="default",
                arguments=f"[{arguments}]",
                returns='{"tensor": 0}',
                inputs=tuple(inputs),
                outputs=(output,),
                writes=(),
                frame=self.paths.here(sys._getframe()),
                module=None,
                module_type=None,
                phase="forward",
                forward=None,
                thread=0,
                device=toy.DEVICE,
                stream=0,
                region=None,
                grad=False,
                inference=False,
                autocast=None,
                compiled=False,
            )
        )

    def _value(self, array: toy.Array, producer: int | None) -> int:
        if id(array) not in self._known:
            data = array.data
            base = data if data.base is None else data.base
            strides = tuple(stride // data.itemsize for stride in data.strides)
            storage = self._storages.setdefault(id(base), len(self._storages))
            kind: Any = "input" if producer is None else "produced"
            self._known[id(array)] = number = len(self.values)
            self.arrays[number] = array
            self.values.append(
                Value(
                    id=number,
                    shape=data.shape,
                    strides=strides,
                    offset=0,
                    dtype=str(data.dtype),
                    device=toy.DEVICE,
                    storage=storage,
                    kind=kind,
                    name=None,
                    producer=producer,
                    previous=None,
                    writers=() if producer is None else (producer,),
                    signature=number,
                    repeats=1,
                )
            )
            self.signatures.append(_sign(data))
        return self._known[id(array)]


def _sign(data: np.ndarray) -> Signature:
    x = data.astype(np.float64).ravel()
    powers = [float((x**power).sum()) for power in (2, 3, 4)]
    extremes = float(x.min()), float(x.max())
    is_whole = bool((x == np.rint(x)).all())
    zeros = int((x == 0).sum())
    sums = float(x.sum()), float(np.abs(x).sum()), *powers
    return Signature(x.size, 0, 0, 0, zeros, is_whole, *extremes, *sums, sketch=to_sketch(signed_sums(x), powers[0]))


class Replayer:
    """Runs the kernel of an operator again, alone."""

    addresses: Sequence[int] = ()

    def __init__(self, calls: Sequence[toy.Call]) -> None:
        self._calls = calls

    def refusal(self, op: Op) -> str | None:
        return None

    def budget_bytes(self, device: str) -> int:
        return 1 << 30

    def collect(self, ops: Sequence[int]) -> None:
        pass

    def open_load(self, op: int, **_: Any) -> FakeLoad:
        kernel = self._calls[op].kernel
        assert kernel is not None
        return FakeLoad(toy.card, toy.KERNELS[kernel])

    def open_rest(self, device: str) -> FakeLoad:
        return FakeLoad(toy.card, None)

    def is_alive(self, device: str) -> bool:
        return True

    def close(self) -> None:
        pass


class SequenceLoad:
    """Operators run one after the other."""

    how: How = "launches"
    inputs: Inputs = "real"
    copies = calls = 1
    aim_s = None
    run_empty: Callable[[], None] | None = None

    def __init__(self, run_once: Callable[[], object]) -> None:
        self._run_once = run_once
        begin_s = toy.clock.now()
        run_once()
        self.burst_s = self.call_s = toy.clock.now() - begin_s

    def run(self, rest_s: float) -> None:
        self._run_once()
        toy.clock.advance(rest_s)

    def close(self) -> None:
        pass


class Trials:
    """Runs operators of a recording again, on the arrays of its capture."""

    def __init__(self, recorder: Recorder, run: Run, arrays: Mapping[int, toy.Array]) -> None:
        self._recorder, self._runs, self._arrays = recorder, {OWN: run}, arrays

    def take_other(self, run: Run) -> None:
        self._runs[OTHER] = run

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        with changed(settings):
            run = self._recorder.trace(self._runs[OWN], lambda: None)
            self._runs["changed"] = self._recorder.capture(run, lambda: None)
        return "changed", self._runs["changed"]

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        raise JoulediffError("the toy framework transfers no arrays")

    def import_tensors(self, path: Path) -> None:
        raise JoulediffError("the toy framework transfers no arrays")

    def without_sync(self, step: Step, *, file: str, line: int) -> AbstractContextManager[Step]:
        raise JoulediffError("the toy framework never waits")

    def refuse_change(self) -> None:
        raise JoulediffError("a program of the toy framework is not changed")

    def build_again(self, build: Callable[[], Step], first: Mapping[str, Setting]) -> tuple[Step, dict[str, Setting]]:
        raise JoulediffError("a program of the toy framework is not built again")

    def prepare_job(self, job: Job) -> PreparedJob:
        run = self._runs[job.run]
        flow = Dataflow(run, job.ops)
        feeds = {feed.value: feed for feed in job.feeds}
        given = {value: self._given(value, feeds.get(value)) for value in flow.needed}

        def run_once() -> dict[int, toy.Array]:
            found = dict(given)
            for op, sources in zip(job.ops, flow.sources, strict=True):
                function = getattr(toy, run.ops[op].name.removeprefix("toy::"))
                found[run.ops[op].outputs[0]] = function(*(found[value] for value in sources))
            return found

        calls: list[toy.Call] = []
        with changed(job.settings), toy.listening(calls.append):
            load, outputs = SequenceLoad(run_once), run_once()
        pairs = [(outputs[mine].data, self._arrays[own].data) for mine, own in job.compare]
        differences = [float(np.abs(mine - own).max() / np.abs(own).max()) for mine, own in pairs]
        kernels = tuple(dict.fromkeys(call.kernel for call in calls if call.kernel is not None))
        return PreparedJob(load, toy.DEVICE, kernels, max(differences, default=None))

    def _given(self, value: int, feed: Feed | None) -> toy.Array:
        array = self._arrays[value if feed is None else feed.own]
        if feed is None or feed.form is None:
            return array
        order = np.argsort([-stride for stride in feed.form.strides], kind="stable")
        dense = np.ascontiguousarray(array.data.transpose(order))
        return toy.array(dense.transpose(np.argsort(order)))


def _read_settings(found: dict[str, Setting]) -> None:
    found[FAST_MATH] = toy.fast_math


FRAMEWORK = Framework(
    name="toyframework",
    operators=Operators(namespaces=("toy",), unnamed=("toy",)),
    switches=Switches(prefix="toyframework."),
    libraries=("toyframework",),
    open_recorder=Recorder,
    read_settings=_read_settings,
)
