"""Reads a trace that `torch.profiler` exported.

A kernel belongs to the step that launched it, however late it ran: the launch and its kernels carry one
correlation number. Only the replay of a CUDA graph launches many kernels with one number.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from joulediff.frameworks.torch.capture.threads import Key
from joulediff.frameworks.torch.trace.traced import Call, Launch, Pause, Traced
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Kernel, KernelKind, Wait

STEP = "joulediff.step"
WARM_UP = "joulediff.warm"
OUR_SYNC = "joulediff.fence"
"""Marks our own synchronisation at the end of the step, no wait of the program; stored traces have this name."""
_TASK = "joulediff.task "

_CALLS = ("cpu_op", "user_annotation")
_RUNTIME = ("cuda_runtime", "cuda_driver")
_KINDS: dict[str, KernelKind] = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_CATEGORIES = (*_CALLS, *_RUNTIME, *_KINDS)
# The arguments of events that are read. The others are most of a trace: 100,000 operators took 2.3 GB of memory.
_ARGUMENTS = ("correlation", "External id", "Sequence number", "device", "stream", "grid", "block", "bytes")
_SYNCHRONISES = re.compile(r"(cuda|cu|hip)(Device|Stream|Event|Ctx)Synchronize")
_LAUNCHES_GRAPH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_COPIES = re.compile(r"(cuda|cu|hip)Memcpy")

_Thread = tuple[object, object]
"""Process and thread; device and stream for an event of a device."""


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    category: str
    thread: _Thread
    start_us: float
    duration_us: float
    arguments: Mapping[str, Any]

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us

    def number(self, key: str) -> int | None:
        value = self.arguments.get(key)
        return value if isinstance(value, int) else None

    def numbers(self, key: str) -> tuple[int, int, int] | None:
        match self.arguments.get(key):
            case [int(x), int(y), int(z)]:
                return x, y, z
        return None


def task_mark(key: Key) -> str:
    """Return the name under which a task is in the trace."""
    return _TASK + ".".join(map(str, key))


def _to_key(mark: str) -> Key:
    return tuple(int(number) for number in mark.removeprefix(_TASK).split("."))


def read_trace(path: Path) -> Traced:
    """Return the traced step of a trace file."""
    try:
        # The profiler writes names as they are, control characters and broken encodings included.
        text = path.read_text(encoding="utf-8", errors="replace")
        trace = json.loads(text, strict=False, object_hook=_shrink)
    except (OSError, ValueError) as error:
        raise JoulediffError(f"the profiler's trace cannot be read: {error}", fix="record again") from error
    return to_traced(trace if isinstance(trace, Mapping) else {})


def _shrink(found: dict[str, Any]) -> object:
    """Return an object of a trace with less memory: an event, the arguments of one that are read, or the trace."""
    if "traceEvents" in found:
        return {"traceEvents": found["traceEvents"]}
    if "ph" in found:
        return _to_event(found)
    return {key: found[key] for key in _ARGUMENTS if key in found}


def to_traced(trace: Mapping[str, Any]) -> Traced:
    """Return the traced step; of several, the one of median time. A long step is traced once, to warm up."""
    events = [event for row in trace.get("traceEvents") or () if (event := _to_event(row)) is not None]
    events.sort(key=lambda event: (event.start_us, -event.end_us))
    marks = [event for event in events if event.name in (STEP, WARM_UP) and event.category in _CALLS]
    steps = [event for event in marks if event.name == STEP] or marks
    if not steps:
        raise JoulediffError(f"the profiler's trace has no {STEP} in it", fix="record again")
    step = sorted(steps, key=lambda event: event.duration_us)[(len(steps) - 1) // 2]
    reader = _Reader(step, list(_split_tasks(events)))
    launches = sorted(reader.read_launches(), key=lambda launch: (launch.start_s, launch.kernel.start_s))
    pauses = tuple(reader.read_pauses())
    return Traced(reader.to_s(step.end_us), tuple(reader.calls), tuple(launches), pauses, reader.tasks)


def _split_tasks(events: Sequence[_Event]) -> Iterator[_Event]:
    """Yield the events, sorted by their begin, with each task of a thread as a thread; their marks are left out."""
    open_: dict[_Thread, list[_Event]] = {}
    for event in events:
        if event.category in _KINDS:
            yield event
            continue
        marks = open_.setdefault(event.thread, [])
        while marks and marks[-1].end_us <= event.start_us:
            marks.pop()
        if event.category in _CALLS and event.name.startswith(_TASK):
            marks.append(event)
        elif marks:
            process, thread = event.thread
            yield replace(event, thread=(process, (thread, marks[-1].name)))
        else:
            yield event


def _task_of(thread: _Thread) -> Key | None:
    match thread:
        case _, (_, str(mark)):
            return _to_key(mark)
    return None


def _to_event(row: object) -> _Event | None:
    if isinstance(row, _Event):
        return row
    if not isinstance(row, Mapping) or row.get("cat") not in _CATEGORIES or row.get("ph", "X") != "X":
        return None
    start_us, duration_us, arguments = row.get("ts"), row.get("dur") or 0, row.get("args")
    if not isinstance(start_us, int | float):
        return None
    return _Event(
        name=sys.intern(str(row.get("name", ""))),
        category=row["cat"],
        thread=(row.get("pid"), row.get("tid")),
        start_us=start_us,
        duration_us=duration_us,
        arguments=arguments if isinstance(arguments, Mapping) else {},
    )


class _Reader:
    """The events of one step, in order of their begin, and the calls they make up."""

    def __init__(self, step: _Event, events: Sequence[_Event]) -> None:
        self._step = step
        syncs_us = [e.start_us for e in events if e.name == OUR_SYNC and step.start_us <= e.start_us < step.end_us]
        self._fence_us = max(syncs_us, default=step.end_us)
        self._device = [event for event in events if event.category in _KINDS]
        self._runtime = [event for event in events if event.category in _RUNTIME]
        own = [event for event in events if event.category not in _KINDS and self._is_own(event)]
        self._numbers = {thread: at for at, thread in enumerate(dict.fromkeys([step.thread, *(e.thread for e in own)]))}
        self.tasks = {at: key for thread, at in self._numbers.items() if (key := _task_of(thread)) is not None}
        self.calls: list[Call] = []
        self._spans: dict[_Thread, tuple[int, list[_Event]]] = {}
        self._places: dict[int, int] = {}
        for thread in self._numbers:
            self._add_thread(thread, [event for event in own if event.thread == thread and event.category in _CALLS])

    def to_s(self, time_us: float) -> float:
        """Return a moment of the trace in seconds since the step's begin."""
        return (time_us - self._step.start_us) / 1e6

    def read_launches(self) -> Iterator[Launch]:
        """Yield the kernels that the step launched."""
        requests = {event.number("correlation"): event for event in self._runtime}
        requests.pop(None, None)
        for event in self._device:
            request = requests.get(event.number("correlation"))
            if request is not None and self._is_own(request):
                graph = request.number("correlation") if _LAUNCHES_GRAPH.match(request.name) else None
                yield Launch(self._to_kernel(event), self.to_s(request.start_us), self._innermost(request), graph)
            elif request is None and self._step.start_us <= event.start_us < self._step.end_us:
                yield Launch(self._to_kernel(event), self.to_s(event.start_us), self._by_id(event))

    def read_pauses(self) -> Iterator[Pause]:
        """Yield the times in which a thread of the step waited for a device."""
        copies = {event.number("correlation"): event.name for event in self._device if event.category == "gpu_memcpy"}
        copies.pop(None, None)
        until_us: dict[_Thread, float] = {}
        for event in self._runtime:
            is_inner = event.start_us < until_us.get(event.thread, event.start_us)
            if self._is_own(event) and not is_inner and _blocks(event.name, copies.get(event.number("correlation"))):
                until_us[event.thread] = event.end_us
                yield Pause(self._to_wait(event), self._innermost(event))

    def _is_own(self, event: _Event) -> bool:
        """Return whether an event is from a thread of the program within the step, not from our synchronisation."""
        end_us = self._fence_us if event.thread == self._step.thread else self._step.end_us
        same_process = event.thread[0] == self._step.thread[0]
        return same_process and event is not self._step and self._step.start_us <= event.start_us < end_us

    def _add_thread(self, thread: _Thread, events: list[_Event]) -> None:
        first = len(self.calls)
        self._spans[thread] = first, events
        for at, (event, (parent, end)) in enumerate(zip(events, _nest(events), strict=True), first):
            self.calls.append(
                Call(
                    name=event.name,
                    thread=self._numbers[thread],
                    start_s=self.to_s(event.start_us),
                    duration_s=event.duration_us / 1e6,
                    parent=None if parent is None else first + parent,
                    end=first + end,
                    sequence=event.number("Sequence number"),
                )
            )
            if (number := event.number("External id")) is not None:
                self._places[number] = at

    def _innermost(self, event: _Event) -> int | None:
        first, calls = self._spans[event.thread]
        before = bisect_right(calls, event.start_us, key=lambda call: call.start_us)
        at = first + before - 1 if before else None
        while at is not None and calls[at - first].end_us <= event.start_us:
            at = self.calls[at].parent
        return self._by_id(event) if at is None else at

    def _by_id(self, event: _Event) -> int | None:
        number = event.number("External id")
        return None if number is None else self._places.get(number)

    def _to_kernel(self, event: _Event) -> Kernel:
        # Without arguments, a device's events still have it for a process and the stream for a thread.
        device, stream = event.number("device"), event.number("stream")
        row_device, row_stream = event.thread
        return Kernel(
            name=event.name,
            kind=_KINDS[event.category],
            device=f"cuda:{row_device if device is None else device}",
            stream=stream if stream is not None else row_stream if isinstance(row_stream, int) else 0,
            start_s=self.to_s(event.start_us),
            duration_s=event.duration_us / 1e6,
            op=None,
            module=None,
            join="none",
            grid=event.numbers("grid"),
            block=event.numbers("block"),
            size_bytes=event.number("bytes"),
        )

    def _to_wait(self, event: _Event) -> Wait:
        duration_s = event.duration_us / 1e6
        return Wait(event.name, self.to_s(event.start_us), duration_s, op=None, thread=self._numbers[event.thread])


def _nest(events: Sequence[_Event]) -> list[tuple[int | None, int]]:
    """Return each event's parent and the place after its last descendant, for events in order of their begin."""
    parents: list[int | None] = []
    ends = [len(events)] * len(events)
    open_: list[int] = []
    for at, event in enumerate(events):
        while open_ and events[open_[-1]].end_us <= event.start_us:
            ends[open_.pop()] = at
        parents.append(open_[-1] if open_ else None)
        open_.append(at)
    return list(zip(parents, ends, strict=True))


def _blocks(name: str, copy: str | None) -> bool:
    """Return whether a call of the runtime waits for a device; `copy` is the copy it started, if any.

    An asynchronous copy into pageable memory returns when it is done, one from there as soon as the data is
    staged; a synchronous one between two places on devices does not wait (CUDA's manual, "API synchronization
    behavior"; on an H200 4 MB to pageable memory took 300 µs, the call 468 µs, and 15 µs less than it the other way).
    """
    if _SYNCHRONISES.match(name):
        return True
    if not _COPIES.match(name):
        return False
    if "Async" in name:
        return copy is not None and "DtoH" in copy and "Pageable" in copy
    return copy is None or "DtoD" not in copy
