"""Traces as PyTorch's profiler exports them, made from trees of calls."""

from dataclasses import dataclass, field
from typing import Any

from joulediff.model.run import Op

PROCESS = 100
STEP_THREAD = 1
BEGIN_US = 3_885_996_953_179.85  # as large as real ones


@dataclass(frozen=True)
class Node:
    """A call on the host."""

    name: str
    children: tuple[Any, ...] = ()
    category: str = "cpu_op"
    sequence: int | None = None


@dataclass(frozen=True)
class Work:
    """A call of the runtime that has devices do something, `times` with one correlation number."""

    name: str
    category: str = "kernel"
    by: str = "cudaLaunchKernel"
    device: int = 0
    stream: int = 7
    duration_us: float = 5.0
    arguments: dict[str, Any] = field(default_factory=dict)
    host_us: float = 1.0
    times: int = 1


@dataclass(frozen=True)
class GraphLaunch:
    """The launch of a CUDA graph, with the names and categories of its kernels."""

    kernels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Runtime:
    """A call of the runtime that starts nothing."""

    name: str
    host_us: float = 1.0


def call(name: str, *children: Any, sequence: int | None = None) -> Node:
    return Node(name, children, sequence=sequence)


def mark(name: str, *children: Any) -> Node:
    return Node(name, children, category="user_annotation")


class Renderer:
    """Writes threads one after another, each from the step's begin on."""

    def __init__(self, *, process: int = PROCESS, begin_us: float = BEGIN_US) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = process
        self.begin_us = self.now_us = begin_us
        self.thread = STEP_THREAD
        self.number = 0
        self.device_us: dict[tuple[int, int], float] = {}

    def step(self, threads: dict[int, list[Any]], *, name: str = "joulediff.step") -> None:
        begin_us = end_us = self.now_us
        for thread, items in threads.items():
            self.thread, self.now_us = thread, begin_us + 0.5
            for item in items:
                self.render(item)
            end_us = max(end_us, self.now_us)
        self.add("user_annotation", name, begin_us, end_us + 10 - begin_us, thread=STEP_THREAD)
        self.now_us = end_us + 20

    def render(self, item: Any) -> None:
        begin_us = self.now_us
        self.now_us += 0.25
        if isinstance(item, Node):
            self.number += 1
            arguments = {"External id": self.number}
            if item.sequence is not None:
                arguments["Sequence number"] = item.sequence
            for child in item.children:
                self.render(child)
            self.now_us += 0.25
            self.add(item.category, item.name, begin_us, self.now_us - begin_us, arguments=arguments)
        elif isinstance(item, GraphLaunch):
            self.number += 1
            self.now_us += 1.0
            self.add("cuda_runtime", "cudaGraphLaunch", begin_us, 1.0, arguments={"correlation": self.number})
            for name, category in item.kernels:
                self.run(Work(name, category), begin_us)
        else:
            self.number += 1
            name = item.by if isinstance(item, Work) else item.name
            self.now_us += item.host_us
            self.add("cuda_runtime", name, begin_us, item.host_us, arguments={"correlation": self.number})
            if isinstance(item, Work):
                self.run(item, begin_us)
        self.now_us += 0.25

    def run(self, work: Work, launched_us: float) -> None:
        place = (work.device, work.stream)
        for _ in range(work.times):
            begin_us = max(launched_us + 2, self.device_us.get(place, 0))
            self.device_us[place] = begin_us + work.duration_us
            arguments = {"device": work.device, "stream": work.stream, "correlation": self.number, **work.arguments}
            self.events.append(
                {"ph": "X", "cat": work.category, "name": work.name, "pid": work.device, "tid": work.stream}
                | {"ts": begin_us, "dur": work.duration_us, "args": arguments}
            )

    def add(
        self,
        category: str,
        name: str,
        begin_us: float,
        duration_us: float,
        *,
        thread: int | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        place = {"pid": self.process, "tid": self.thread if thread is None else thread}
        times = {"ts": begin_us, "dur": duration_us}
        self.events.append({"ph": "X", "cat": category, "name": name, **place, **times, "args": arguments or {}})

    def trace(self) -> dict[str, Any]:
        return {"schemaVersion": 1, "traceEvents": self.events}


def render(*items: Any, threads: dict[int, list[Any]] | None = None) -> dict[str, Any]:
    """Return the trace of a step with these calls in its own thread, and others in theirs."""
    renderer = Renderer()
    renderer.step({STEP_THREAD: [*items], **(threads or {})})
    return renderer.trace()


def make_op(number: int, name: str, **changes: Any) -> Op:
    plain: dict[str, Any] = {
        "overload": "", "arguments": "[]", "returns": "[]", "inputs": (), "outputs": (), "writes": (), "frame": None,
        "module": None, "module_type": None, "phase": "forward", "forward": None, "thread": 0, "device": "cuda:0",
        "stream": 0, "region": None, "grad": False, "inference": False, "autocast": None, "compiled": False,
    }  # fmt: skip
    return Op(id=number, name=name, **(plain | changes))


def make_ops(*names: str, **changes: Any) -> list[Op]:
    return [make_op(number, name, **changes) for number, name in enumerate(names)]
