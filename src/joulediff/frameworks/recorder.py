"""What the session asks of a framework: its settings, a traced pass and a captured one, and operators to replay.

Each pass takes the run so far and returns it with what it found. Only frameworks that the program has
imported are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from joulediff.frameworks.framework import loaded_frameworks
from joulediff.model.errors import JoulediffError
from joulediff.model.run import How, Inputs, Op, Run, Setting

if TYPE_CHECKING:
    from joulediff.frameworks.jobs import TrialRunner

Step = Callable[[], object]


class Load(Protocol):
    """One operator ready to run many times, or a device's rest. Closing it gives its memory back."""

    calls: int
    """How often it runs in a burst; 0 for rest."""
    burst_s: float
    """How long a burst keeps the device busy, about."""
    call_s: float | None
    """Device time of one call, where calls follow each other without a gap."""
    aim_s: float | None
    """What that would be if the cache were as in the program; None where it is not known."""
    how: How
    inputs: Inputs
    copies: int

    def run(self, rest_s: float) -> None:
        """Queue one burst, and then a rest of the device."""

    def close(self) -> None:
        """Give the memory back."""


class Replayer(Protocol):
    """Makes recorded operators run again, alone, in the process that recorded them."""

    def refusal(self, op: Op) -> str | None:
        """Return why an operator cannot be run again alone, or None."""

    def budget_bytes(self, device: str) -> int:
        """Return how much memory of a device replay may take."""

    addresses: Sequence[int]
    """Where the memory of each storage of the run began, by its number; 0 where that is not known."""

    def collect(self, ops: Sequence[int]) -> None:
        """Run the step once and keep the inputs of these operators, and no others."""

    def open_load(
        self, op: int, *, inputs: Sequence[float], outputs: float = math.inf, device_s: float | None = None
    ) -> Load:
        """Return an operator ready to run, with the cache as the program leaves it.

        `inputs` and `outputs` are the bytes that pass before the memory of each is touched again; `device_s` is the
        device time of a call in the program.
        """

    def open_rest(self, device: str) -> Load | None:
        """Return a device at rest, with everything set up; None where it cannot be held so."""

    def is_alive(self, device: str) -> bool:
        """Return whether a device still works: a kernel that went wrong may have ended that."""

    def close(self) -> None:
        """Drop all that was kept."""


class Recorder(Protocol):
    """Watches a step through its framework."""

    def seeded(self, *, ran: bool) -> AbstractContextManager[Callable[[], None]]:
        """Seed all random numbers, and give a function for before each watched pass that makes it begin alike.

        It seeds them again and puts back what the step started from, unless the step has `ran` already. At the end
        the program has its own random numbers, and the state that its calls left before the first of these passes.
        """

    def settings(self) -> dict[str, Setting]:
        """Return every setting that may matter to energy."""

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step under the framework's profiler; add kernels and waits."""

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step with every operator in sight; add operators, values and call paths."""

    def replayer(self, run: Run, begin: Callable[[], None]) -> Replayer:
        """Return what replays the operators of a run that this recorder has captured."""

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> TrialRunner:
        """Return what runs the step, or operators of it, in other ways than the program does."""

    def changed(self, settings: Mapping[str, Setting]) -> AbstractContextManager[None]:
        """Put settings in force for as long as it lasts; raises JoulediffError for one that cannot be changed."""


def open_recorder(step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> Recorder | None:
    """Return the recorder of the framework the program uses, or None without one.

    `names` is what to look through for the names of models and tensors: the user's own step.
    """
    for framework in loaded_frameworks():
        if framework.open_recorder is not None:
            return framework.open_recorder(step, names=names, root=root, source=source, cpp=cpp)
    return None


def fixed_step(step: Step, build: Callable[[], Step], fix: Mapping[str, Setting]) -> Step:
    """Return a step with a fix; `build` makes the program again, for what only then can be set.

    The environment is no matter of the step: it is set before the process begins.
    """
    if all(name.startswith("env.") for name in fix):
        return step
    for framework in loaded_frameworks():
        if framework.fixed_step is not None:
            return framework.fixed_step(step, build, fix)
    raise JoulediffError(f"{', '.join(fix)} cannot be changed: the program uses no framework that is known")
