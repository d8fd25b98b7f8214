"""Record the programs of a diff in alternation, and keep them running for trials.

Both are built at the same time and then measured one after the other: A, B, B, A, so that a drift of the machine acts
on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from joulediff.archive.snapshot import Snapshot
from joulediff.frameworks.jobs import LiveProgram
from joulediff.measuring.step import resting
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.measurement import Quiet
from joulediff.model.options import TURN_SHARE
from joulediff.model.pair import SideName, other_side
from joulediff.model.progress import Labelled, ProgressListener
from joulediff.model.run import Run, Setting
from joulediff.process.client import RemoteProgram
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import record_in_process
from joulediff.process.request import Request


@dataclass(frozen=True, slots=True)
class Program:
    """A program to record. `keep` is given the recording so far after each pass."""

    request: Request
    interpreter: Interpreter
    keep: Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Both runs, and the programs that can still be run."""

    runs: Mapping[SideName, Run]
    live: Mapping[SideName, LiveProgram]
    interleaved: bool


@contextmanager
def started(programs: Mapping[SideName, Program], *, hold: bool = False) -> Iterator[dict[SideName, RemoteProgram]]:
    """Start the processes of programs. With `hold`, they import their modules and build nothing until recorded."""
    with ExitStack() as stack:
        remote: dict[SideName, RemoteProgram] = {}
        for side, program in programs.items():
            request = replace(program.request, serve=True, hold=hold)
            remote[side] = stack.enter_context(
                RemoteProgram(request, interpreter=program.interpreter, keep=program.keep)
            )
        try:
            yield remote
        finally:
            for each in remote.values():  # a process with a GPU takes a second to end, so both end at the same time
                each.ask_to_end()


@contextmanager
def recorded(
    programs: Mapping[SideName, Program],
    runs: Mapping[SideName, Run],
    *,
    listener: ProgressListener,
    ahead: Mapping[SideName, RemoteProgram] | None = None,
    also_measure: Callable[[Mapping[SideName, RemoteProgram]], None] | None = None,
) -> Iterator[Recorded]:
    """Record `programs` and give both runs; those of `runs` are given as they are.

    `ahead` are processes of these programs that were started before. `also_measure` is called with both programs before
    they are profiled.
    """
    with ExitStack() as stack:
        remote = stack.enter_context(started(programs)) if ahead is None else dict(ahead)
        found, live = dict(runs), dict(remote)
        for side, each in remote.items():
            each.set_listener(Labelled(listener, side.upper()))
            if side in live:
                with _named(programs[side]), _freeing_memory(live):
                    each.begin()
        for side, each in remote.items():
            if side in live:
                with _named(programs[side]), _freeing_memory(live):
                    each.wait_built()
        interleaved = _take_turns(programs, live)
        if interleaved and also_measure is not None:
            also_measure(live)
        if live:  # a program that did not stay is metered once more
            listener.metered()
        for side in remote:
            known = found.get(other_side(side)) if interleaved else None
            found[side] = _record(side, programs[side], live, listener, known)
        live = {side: each for side, each in live.items() if each.is_live}
        for side, each in live.items():
            each.take_other(found[other_side(side)])
        yield Recorded(found, live, interleaved=interleaved)


@contextmanager
def _named(program: Program) -> Iterator[None]:
    """Add the name of the program to its error."""
    try:
        yield
    except ProgramError as error:
        error.what = f"{program.request.options.label}: {error.what}"
        raise


@contextmanager
def _freeing_memory(live: dict[SideName, RemoteProgram]) -> Iterator[None]:
    """End both programs if there is no memory for one beside the other."""
    try:
        yield
    except JoulediffError as error:
        if len(live) < 2 or not error.out_of_memory:
            raise
        for each in live.values():
            each.close()
        live.clear()


def _take_turns(programs: Mapping[SideName, Program], live: dict[SideName, RemoteProgram]) -> bool:
    """Measure the programs in alternation, before any profiler runs; return whether both were measured."""
    order = [*live, *reversed(list(live))] if len(live) > 1 else list(live)
    for turn, side in enumerate(order):
        if side not in live:
            continue
        other_pids = [other.pid for name, other in live.items() if name != side]
        with _named(programs[side]), _others_finished(side, live), _freeing_memory(live):
            if turn < len(programs):
                live[side].meter(other_pids, idle=_idle_of(live.get(other_side(side))))
            else:
                live[side].meter_again(TURN_SHARE * programs[side].request.options.seconds)
    return len(live) > 1


def _idle_of(other: RemoteProgram | None) -> Quiet | None:
    """Return the idle power that the other program found before it was measured, if it found a quiet machine."""
    found = None if other is None else other.measurement
    return None if found is None or not found.trustworthy else resting(found)


@contextmanager
def _others_finished(side: SideName, live: dict[SideName, RemoteProgram]) -> Iterator[None]:
    """Let the other program finish its recording if one fails, so that it can be kept."""
    try:
        yield
    except ProgramError:
        for name, each in live.items():
            if name != side:
                with suppress(JoulediffError):
                    each.record()
        raise


def _record(
    side: SideName,
    program: Program,
    live: dict[SideName, RemoteProgram],
    listener: ProgressListener,
    known: Run | None,
) -> Run:
    """Return the recording of a program; without memory for both programs, it is recorded alone and not kept.

    `known` is the recording of the other program, made on this machine a moment ago.
    """
    if side in live:
        with _named(program), _others_finished(side, live), _freeing_memory(live):
            return live[side].record(known=known)
    return record_in_process(program.request, interpreter=program.interpreter, keep=program.keep, listener=listener)


def record_fixed(program: Program, fix: Mapping[str, Setting], *, listener: ProgressListener) -> Run:
    """Return the recording of a program with a fix: its energy and its outputs, without replay of operators."""
    options = replace(program.request.options, replay=False)
    request = replace(program.request, options=options, serve=False, fix=dict(fix))
    return record_in_process(request, interpreter=program.interpreter, keep=_keep_nothing, listener=listener)


def _keep_nothing(_: Snapshot) -> None:
    pass
