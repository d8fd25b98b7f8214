"""The protocols that a framework implements to be recorded: settings, a traced and a captured pass, and replay.

Each pass takes the run so far and returns it with its results added. Only frameworks that the program has imported
are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from joulediff.frameworks.framework import loaded_frameworks
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import How, Inputs, Op, Run, Setting
from joulediff.pysource.programs import Step

if TYPE_CHECKING:
    from joulediff.frameworks.jobs import TrialRunner


class Load(Protocol):
    """One operator ready to run many times, or a device at rest. Closing it frees its memory."""

    calls: int
    """Calls in a burst; 0 for a device at rest."""
    burst_s: float
    """Approximate time that a burst keeps the device busy."""
    call_s: float | None
    """Device time of one call, if calls follow each other without a gap."""
    aim_s: float | None
    """Device time of one call with the cache as in the program; None if unknown."""
    how: How
    inputs: Inputs
    copies: int
    run_empty: Callable[[], None] | None
    """Runs what a burst consists of beside its calls; None if that is too little to be measured."""

    def run(self, rest_s: float) -> None:
        """Queue one burst, and then a rest of the device."""

    def close(self) -> None:
        """Free the memory."""


class Replayer(Protocol):
    """Runs recorded operators again, each alone, in the process that recorded them."""

    def refusal(self, op: Op) -> str | None:
        """Return the reason why an operator cannot be replayed, or None."""

    def budget_bytes(self, device: str) -> int:
        """Return the memory of a device that replay may use."""

    addresses: Sequence[int]
    """The address of each storage of the run, by its number; 0 if unknown."""

    def collect(self, ops: Sequence[int]) -> None:
        """Run the step once and keep the inputs of these operators, and no others."""

    def open_load(
        self, op: int, *, inputs: Sequence[float], outputs: float = math.inf, device_s: float | None = None
    ) -> Load:
        """Return an operator ready to run, with the cache in the state that the program leaves it in.

        `inputs` and `outputs` are the bytes that the program moves before it uses the memory of each again; `device_s`
        is the device time of a call in the program.
        """

    def open_rest(self, device: str) -> Load | None:
        """Return a device at rest with its context set up; None if it cannot be kept at rest."""

    def is_alive(self, device: str) -> bool:
        """Return whether a device still works: a failed kernel may have disabled it."""

    def close(self) -> None:
        """Free all kept tensors."""


class Recorder(Protocol):
    """Records a step through its framework."""

    listener: ProgressListener
    """Is told the progress of the pass under way; set before each pass."""

    def seeded(self, *, ran: bool) -> AbstractContextManager[Callable[[], None]]:
        """Seed all random generators, and yield a function to call before each recorded pass.

        The function seeds them again and restores the state that the step started from, unless the step has `ran`
        before the recording. At the end the program has its own random state again, and the state that its calls left
        before the first of these passes.
        """

    def settings(self) -> dict[str, Setting]:
        """Return every setting that may affect energy."""

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step under the framework's profiler; add kernels and waits."""

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step and record every operator; add operators, values and call paths."""

    def replayer(self, run: Run, begin: Callable[[], None]) -> Replayer:
        """Return the replayer of a run that this recorder has captured."""

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> TrialRunner:
        """Return the runner of trials: the step, or operators of it, run in other ways than in the program."""

    def changed(self, settings: Mapping[str, Setting]) -> AbstractContextManager[None]:
        """Change settings within the context; raises JoulediffError for one that cannot be changed."""


def open_recorder(step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> Recorder | None:
    """Return the recorder of the first framework in use that has one, or None.

    `names` is the user's own step: it is searched for models and tensors, to name them.
    """
    for framework in loaded_frameworks():
        if framework.open_recorder is not None:
            return framework.open_recorder(step, names=names, root=root, source=source, cpp=cpp)
    return None


def fixed_step(step: Step, build: Callable[[], Step], fix: Mapping[str, Setting]) -> Step:
    """Return a step with a fix; `build` builds the program again, for settings that only act then.

    Variables of the environment are left out: they are set before the process begins.
    """
    if all(name.startswith("env.") for name in fix):
        return step
    for framework in loaded_frameworks():
        if framework.fixed_step is not None:
            return framework.fixed_step(step, build, fix)
    raise JoulediffError(f"{', '.join(fix)} cannot be changed: the program uses no framework that is known")
