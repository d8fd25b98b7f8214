"""Trials with a recorded program that can still be run: its step under other settings, or a few of its operators.

A `Job` is operators of a recorded run, in order, on real inputs of the program. It is plain data, so that it can be
sent to the process of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from joulediff.frameworks.recorder import Load
from joulediff.model.energy import Energy
from joulediff.model.measurement import Measurement
from joulediff.model.run import Form, Op, Run, Setting
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.programs import Step
from joulediff.pysource.source_files import ProgramSource, SourceFile

# A job is measured twice, with others between, so that drift shows.
WINDOW_S = 0.4

OWN, OTHER = "own", "other"


@dataclass(frozen=True, slots=True)
class Feed:
    """An input of a job that the program has under another number, and its wanted form; None for the present one."""

    value: int
    own: int
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Operators to run in order.

    `run` names their recording: the program's own, one under other settings (`capture`), or the other program's.
    Inputs are collected from the program's own operators `collect`, of the recording `base`. `compare` has pairs of a
    value of the job and one that the operators `collect` produce: both are run, and should be equal. A `paced` job
    runs at the pace of the host, operator by operator, with the gaps that this leaves on a device.
    """

    run: str
    ops: tuple[int, ...]
    base: str = OWN
    collect: tuple[int, ...] = ()
    feeds: tuple[Feed, ...] = ()
    compare: tuple[tuple[int, int], ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    paced: bool = False


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost of a job: joules and seconds of one run, including the power of the resting device."""

    energy: Energy | None
    time_s: float | None
    kernels: tuple[str, ...] = ()
    difference: float | None = None
    """The difference of its outputs from those of the program's own operators, as a share of their norm."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a whole program: source files to build it from again, or else values to set in the program itself.

    `first` are settings as the program found them when it was built, for a program that is built again.
    """

    files: tuple[SourceFile, ...] = ()
    state: Mapping[str, Setting] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    first: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VariantCost:
    """The step of a program without and with a change, measured in alternation."""

    before: Energy | None = None
    after: Energy | None = None
    before_s: float | None = None
    after_s: float | None = None
    difference: float | None = None
    """The distance between the outputs without and with the change, as a share of their norm; None if unknown."""
    settings: tuple[str, ...] = ()
    """The framework's settings that the changed source sets differently."""
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job ready to be measured. `kernels` and `difference` are those of `JobCost`."""

    load: Load
    device: str
    kernels: tuple[str, ...]
    difference: float | None

    def close(self) -> None:
        """Free the memory."""
        self.load.close()


class TrialRunner(Protocol):
    """Runs a program, or operators of it, in other ways than the program does."""

    def take_other(self, run: Run) -> None:
        """Store the other program's recording, for jobs of its operators."""

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        """Run the step under other settings and return the name of the recording, and the recording."""

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        """Write tensors that operators of the step read to a file; raises JoulediffError if that is impossible."""

    def import_tensors(self, path: Path) -> None:
        """Read tensors that the other program exported, for jobs of its operators; earlier ones are dropped."""

    def without_sync(self, step: Step, *, file: str, line: int) -> AbstractContextManager[Step]:
        """Yield the step without the waits of a line; raises JoulediffError if none of them can be left out."""

    def prepare_job(self, job: Job) -> PreparedJob:
        """Return a job ready to run; raises JoulediffError where it cannot be run."""

    def refuse_change(self) -> None:
        """Raise JoulediffError if a changed program cannot be run: it would wait for other processes."""

    def build_again(self, build: Callable[[], Step], first: Mapping[str, Setting]) -> tuple[Step, dict[str, Setting]]:
        """Build a step as in a new process, under the settings `first` where they can be set.

        Return it with the settings that it left and that differ from the present ones, which are restored.
        """


class LiveProgram:
    """A recorded program that can still be run: measured again, changed, traced, or run in part.

    It lives in this process or in another one. Every method can raise JoulediffError: for an impossible trial, or for a
    program that has ended. Parameters and results are data, so that they can be sent to another process; a program
    without a method raises NotImplementedError.
    """

    def take_other(self, run: Run) -> None:
        """Take the recording that this one is compared with, for jobs of its operators."""
        raise NotImplementedError

    def measure(
        self,
        *,
        seconds: float | None = None,
        wait_s: float | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> Measurement:
        """Return the energy of the step, measured again, under other settings where some are given.

        It is measured for as long, after as long a wait, as in the recording unless `seconds` and `wait_s` are given.
        """
        raise NotImplementedError

    def measure_without_sync(
        self, file: str, line: int, *, seconds: float | None = None, wait_s: float | None = None
    ) -> VariantCost:
        """Return the cost of the step if a line of it uses numbers that it read before, without a wait.

        The step as it is, is not measured.
        """
        raise NotImplementedError

    def measure_job(self, job: Job, *, window_s: float = WINDOW_S, as_other: bool = False) -> JobCost:
        """Return the cost of a job; with a note instead of joules if it cannot be run.

        The device runs at the clock of this program's recording, or with `as_other` at that of the other one.
        """
        raise NotImplementedError

    def compare_job(self, job: Job) -> JobCost:
        """Return the kernels of a job and the difference of its outputs, without joules; a note if it cannot be run."""
        raise NotImplementedError

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        """Return the name that jobs refer to the recording by, and the recording of the step under other settings."""
        raise NotImplementedError

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        """Write tensors that operators of the step read to a file."""
        raise NotImplementedError

    def import_tensors(self, path: Path) -> None:
        """Read tensors that the other program wrote, for jobs of its operators; earlier ones are dropped."""
        raise NotImplementedError

    def read_source(self) -> ProgramSource:
        """Return the program's own source files."""
        raise NotImplementedError

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        """Return the cost of a changed program, and the recording of the operators of its step.

        The steps of the program and of the variant are measured in alternation, each twice for `seconds`; with 0 they
        are not measured.
        """
        raise NotImplementedError

    def trace_lines(self, target: Target) -> LineTrace | None:
        """Return the lines of a function that the step runs, with the values that decide them; None if it runs none."""
        raise NotImplementedError


class Dataflow:
    """Operators of a run in order. `needed` are the values to provide; the operators produce the others.

    `sources` has for each operator the values that its inputs are stored under.
    """

    def __init__(self, run: Run, ops: Sequence[int]) -> None:
        self._run = run
        self._members = frozenset(ops)
        self._known: set[int] = set()
        needed: dict[int, None] = {}
        self.sources = [self._find_sources(run.ops[op], needed) for op in ops]
        self.needed = tuple(needed)

    def locate(self, value: int) -> int | None:
        """Return the value whose tensor holds this one after all operators have run; None if unknown."""
        at: int | None = value
        while at is not None and at not in self._known:
            found = self._run.values[at]
            at = found.previous if self._members.intersection(found.writers) else None
        return at

    def _find_sources(self, op: Op, needed: dict[int, None]) -> list[int]:
        found = []
        for value in op.inputs:
            at = self.locate(value)
            if at is None:
                at = value
                needed[value] = None
                self._known.add(value)
            found.append(at)
        self._known.update(op.outputs)
        return found
