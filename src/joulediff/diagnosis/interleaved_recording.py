"""Record the programs of a diff, in turns, and keep them for what is tried afterwards.

Both are built at the same time and then measured one after the other: A, B, B, A, so that what drifts, drifts for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import other_side
from joulediff.diagnosis.trials.trial import Lab
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.finding import SideName
from joulediff.model.progress import Watch
from joulediff.model.run import Run, Setting
from joulediff.process.client import Served
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import record_in_child
from joulediff.process.request import Request

_OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True)
class Program:
    """A program to record. `keep` is given its run after each pass."""

    request: Request
    interpreter: Interpreter
    keep: Callable[[Run], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Both runs, and those of their programs that are still there."""

    runs: Mapping[SideName, Run]
    labs: Mapping[SideName, Lab]
    interleaved: bool


class Labelled(Watch):
    """Says which of the two programs a stage belongs to."""

    def __init__(self, watch: Watch, label: str) -> None:
        self._watch = watch
        self._label = label

    def stage(self, text: str, share: float | None = None) -> None:
        self._watch.stage(f"{self._label}: {text}", share)


@contextmanager
def started(programs: Mapping[SideName, Program], *, hold: bool = False) -> Iterator[dict[SideName, Served]]:
    """Start the processes of programs. Held ones import what they need, and build nothing until they are recorded."""
    with ExitStack() as stack:
        yield {
            side: stack.enter_context(
                Served(
                    replace(program.request, serve=True, hold=hold),
                    interpreter=program.interpreter,
                    keep=program.keep,
                )
            )
            for side, program in programs.items()
        }


@contextmanager
def recorded(
    programs: Mapping[SideName, Program],
    runs: Mapping[SideName, Run],
    *,
    watch: Watch,
    ahead: Mapping[SideName, Served] | None = None,
) -> Iterator[Recorded]:
    """Give both runs: those of `programs` recorded now, the others as they are.

    `ahead` are processes of these programs that were started before.
    """
    with ExitStack() as stack:
        served = stack.enter_context(started(programs)) if ahead is None else dict(ahead)
        found, labs = dict(runs), dict(served)
        for side, each in served.items():
            each.tell(Labelled(watch, side.upper()))
            if side in labs:
                with _named(programs[side]), _room_made(labs):
                    each.begin()
        for side, each in served.items():
            if side in labs:
                with _named(programs[side]), _room_made(labs):
                    each.wait_built()
        interleaved = _take_turns(programs, labs)
        for side in served:
            found[side] = _record(side, programs[side], labs, watch)
        labs = {side: each for side, each in labs.items() if each.stays}
        for side, each in labs.items():
            each.take_other(found[other_side(side)])
        yield Recorded(found, labs, interleaved=interleaved)


@contextmanager
def _named(program: Program) -> Iterator[None]:
    """Say which of the two programs failed."""
    try:
        yield
    except ProgramError as error:
        error.what = f"{program.request.label}: {error.what}"
        raise


@contextmanager
def _room_made(labs: dict[SideName, Served]) -> Iterator[None]:
    """End both programs where there is no memory for one beside the other."""
    try:
        yield
    except JoulediffError as error:
        if len(labs) < 2 or _OUT_OF_MEMORY not in error.what.lower() + str(error.fix).lower():
            raise
        for each in labs.values():
            each.close()
        labs.clear()


def _take_turns(programs: Mapping[SideName, Program], labs: dict[SideName, Served]) -> bool:
    """Measure the programs in turns; return whether there were any. Nothing has watched them yet."""
    order = [*labs, *reversed(list(labs))] if len(labs) > 1 else list(labs)
    for turn, side in enumerate(order):
        if side not in labs:
            continue
        kin = [other.pid for name, other in labs.items() if name != side]
        with _named(programs[side]), _others_finished(side, labs), _room_made(labs):
            if turn < len(programs):
                labs[side].meter(kin)
            else:
                labs[side].meter_again(programs[side].request.seconds / 2)
    return len(labs) > 1


@contextmanager
def _others_finished(side: SideName, labs: dict[SideName, Served]) -> Iterator[None]:
    """Let the other program finish its recording where one fails: it is worth keeping."""
    try:
        yield
    except ProgramError:
        for name, each in labs.items():
            if name != side:
                with suppress(JoulediffError):
                    each.record()
        raise


def _record(side: SideName, program: Program, labs: dict[SideName, Served], watch: Watch) -> Run:
    """Return the record of a program; one for which there is no memory beside the other does not stay."""
    if side in labs:
        with _named(program), _others_finished(side, labs), _room_made(labs):
            return labs[side].record()
    return record_in_child(program.request, interpreter=program.interpreter, keep=program.keep, watch=watch)


def record_fixed(program: Program, fix: Mapping[str, Setting], *, watch: Watch) -> Run:
    """Return the record of a program with a fix: its energy and its outputs, without single operators."""
    request = replace(program.request, replay=False, serve=False, fix=dict(fix))
    return record_in_child(request, interpreter=program.interpreter, keep=_keep_nothing, watch=watch)


def _keep_nothing(_: Run) -> None:
    pass
