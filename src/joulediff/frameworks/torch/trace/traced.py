"""The records of a profiler for one step: the host's calls, the kernels they launched, and its waits.

Calls are in pre-order, thread after thread: the subtree of `calls[i]` is `calls[i : calls[i].end]`. Kernels
and waits are those of a `Run`, not joined to operators yet; times count from the step's begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from joulediff.frameworks.torch.capture.threads import Key
from joulediff.model.run import Kernel, Wait


@dataclass(frozen=True, slots=True)
class Call:
    """An event of the profiler on the host: an operator, or a named part of code."""

    name: str
    thread: int
    """0 is the thread that called the step; the others follow in the order of their first event.

    A task that the step gave to another thread has a number of its own.
    """
    start_s: float
    duration_s: float
    parent: int | None
    end: int
    """The place after its last descendant."""
    sequence: int | None = None
    """A number that a backward function shares with its forward one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, and the time and innermost call of its launch; None if unknown."""

    kernel: Kernel
    start_s: float
    call: int | None
    graph: int | None = None
    """The number of the launch of a CUDA graph, which all its kernels share."""


@dataclass(frozen=True, slots=True)
class GraphReplay:
    """The captured operators of one replay of a CUDA graph."""

    ops: tuple[int, ...]
    """The first one has the kernels that cannot be told apart."""
    nodes: tuple[int, ...] | None
    """How many kernels, copies and fills of the graph each operator has, in the order in which they run."""
    is_random: bool
    """Whether it draws random numbers: a replay then fills in a seed before the graph."""
    is_known: bool
    """Whether the operators were recorded when the graph was captured; else one stands for the whole."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of the host, and the innermost call that waited."""

    wait: Wait
    call: int | None


@dataclass(frozen=True, slots=True)
class Traced:
    """One traced step. `launches` are in the order in which the host made them."""

    step_s: float
    calls: tuple[Call, ...] = ()
    launches: tuple[Launch, ...] = ()
    pauses: tuple[Pause, ...] = ()
    tasks: Mapping[int, Key] = field(default_factory=dict)
    """By thread number: the task that it stands for. Other threads were not started by the step."""
