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
from joulediff.frameworks.settings import collect_settings
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Kernel, Op, Run, Setting, Value
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
        self._step = step
        self._root = root
        self._calls: list[toy.Call] = []

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
        self._calls = found.calls
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

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> Any:
        raise JoulediffError("the toy framework has no trials")

    def changed(self, settings: Mapping[str, Setting]) -> AbstractContextManager[None]:
        raise JoulediffError("the toy framework has no trials")


class _Capture:
    """Operators and values of one call of the step."""

    def __init__(self, root: Path) -> None:
        self.paths = CallPaths(_Capture.call.__code__, root=root, hints=source_hints())
        self.calls: list[toy.Call] = []
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.signatures: list[Signature] = []
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
    return Signature(x.size, 0, 0, 0, zeros, is_whole, *extremes, float(x.sum()), float(np.abs(x).sum()), *powers)


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
