"""Record the programs of a diff, in turns, and keep them for what is tried afterwards.

Both are built at the same time and then measured one after the other: A, B, B, A, so that what drifts, drifts for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from joulediff.archive import Snapshot
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.pair import SideName, other_side
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run, Setting
from joulediff.process.client import RemoteProgram
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import record_in_child
from joulediff.process.request import Request

_OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True)
class Program:
    """A program to record. `keep` is given the recording so far after each pass."""

    request: Request
    interpreter: Interpreter
    keep: Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Both runs, and those of their programs that are still there."""

    runs: Mapping[SideName, Run]
    live: Mapping[SideName, LiveProgram]
    interleaved: bool


class Labelled(ProgressListener):
    """Says which of the two programs a stage belongs to."""

    def __init__(self, listener: ProgressListener, label: str) -> None:
        self._watch = listener
        self._label = label

    def stage(self, text: str, share: float | None = None) -> None:
        self._watch.stage(f"{self._label}: {text}", share)


@contextmanager
def started(programs: Mapping[SideName, Program], *, hold: bool = False) -> Iterator[dict[SideName, RemoteProgram]]:
    """Start the processes of programs. Held ones import what they need, and build nothing until they are recorded."""
    with ExitStack() as stack:
        yield {
            side: stack.enter_context(
                RemoteProgram(
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
    listener: ProgressListener,
    ahead: Mapping[SideName, RemoteProgram] | None = None,
) -> Iterator[Recorded]:
    """Give both runs: those of `programs` recorded now, the others as they are.

    `ahead` are processes of these programs that were started before.
    """
    with ExitStack() as stack:
        served = stack.enter_context(started(programs)) if ahead is None else dict(ahead)
        found, live = dict(runs), dict(served)
        for side, each in served.items():
            each.tell(Labelled(listener, side.upper()))
            if side in live:
                with _named(programs[side]), _room_made(live):
                    each.begin()
        for side, each in served.items():
            if side in live:
                with _named(programs[side]), _room_made(live):
                    each.wait_built()
        interleaved = _take_turns(programs, live)
        if live:  # a program that did not stay is metered once more
            listener.metered()
        for side in served:
            found[side] = _record(side, programs[side], live, listener)
        live = {side: each for side, each in live.items() if each.stays}
        for side, each in live.items():
            each.take_other(found[other_side(side)])
        yield Recorded(found, live, interleaved=interleaved)


@contextmanager
def _named(program: Program) -> Iterator[None]:
    """Say which of the two programs failed."""
    try:
        yield
    except ProgramError as error:
        error.what = f"{program.request.options.label}: {error.what}"
        raise


@contextmanager
def _room_made(live: dict[SideName, RemoteProgram]) -> Iterator[None]:
    """End both programs where there is no memory for one beside the other."""
    try:
        yield
    except JoulediffError as error:
        if len(live) < 2 or _OUT_OF_MEMORY not in error.what.lower() + str(error.fix).lower():
            raise
        for each in live.values():
            each.close()
        live.clear()


def _take_turns(programs: Mapping[SideName, Program], live: dict[SideName, RemoteProgram]) -> bool:
    """Measure the programs in turns; return whether there were any. Nothing has watched them yet."""
    order = [*live, *reversed(list(live))] if len(live) > 1 else list(live)
    for turn, side in enumerate(order):
        if side not in live:
            continue
        kin = [other.pid for name, other in live.items() if name != side]
        with _named(programs[side]), _others_finished(side, live), _room_made(live):
            if turn < len(programs):
                live[side].meter(kin)
            else:
                live[side].meter_again(programs[side].request.options.seconds / 2)
    return len(live) > 1


@contextmanager
def _others_finished(side: SideName, live: dict[SideName, RemoteProgram]) -> Iterator[None]:
    """Let the other program finish its recording where one fails: it is worth keeping."""
    try:
        yield
    except ProgramError:
        for name, each in live.items():
            if name != side:
                with suppress(JoulediffError):
                    each.record()
        raise


def _record(side: SideName, program: Program, live: dict[SideName, RemoteProgram], listener: ProgressListener) -> Run:
    """Return the record of a program; one for which there is no memory beside the other does not stay."""
    if side in live:
        with _named(program), _others_finished(side, live), _room_made(live):
            return live[side].record()
    return record_in_child(program.request, interpreter=program.interpreter, keep=program.keep, listener=listener)


def record_fixed(program: Program, fix: Mapping[str, Setting], *, listener: ProgressListener) -> Run:
    """Return the record of a program with a fix: its energy and its outputs, without single operators."""
    options = replace(program.request.options, replay=False)
    request = replace(program.request, options=options, serve=False, fix=dict(fix))
    return record_in_child(request, interpreter=program.interpreter, keep=_keep_nothing, listener=listener)


def _keep_nothing(_: Snapshot) -> None:
    pass
