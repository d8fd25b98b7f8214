"""Record two steps in this process in alternation, and keep both ready for trials.

Both are measured before a profiler watches either: A, B, B, A, so that a drift of the machine acts on both. Each begins
with the state that the first one started from, since two functions of one program often share a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from joulediff.measuring.meters.meter import RealClock
from joulediff.measuring.repeater import Step
from joulediff.measuring.step import resting
from joulediff.model.options import TURN_SHARE, RecordOptions
from joulediff.model.pair import SideName, other_side
from joulediff.model.progress import Labelled, ProgressListener
from joulediff.model.run import Run
from joulediff.session.live_program import LocalProgram
from joulediff.session.record import Again, Between, open_meters_for, record_step


@dataclass(slots=True)
class RecordedHere:
    """The runs of one or two steps, and the programs that can still be run."""

    runs: dict[SideName, Run] = field(default_factory=dict)
    live: dict[SideName, LocalProgram] = field(default_factory=dict)


@contextmanager
def recorded_here(
    steps: Mapping[SideName, Step],
    options: Mapping[SideName, RecordOptions],
    *,
    listener: ProgressListener | None = None,
    root: Path | None = None,
) -> Iterator[RecordedHere]:
    """Record the steps and give their runs. At the end each program has the state that it would have without trials.

    `options` name the same meters for both. The program of one step is measured in one turn.
    """
    listener = listener or ProgressListener()
    found, folder = RecordedHere(), root or Path.cwd()
    with ExitStack() as held:
        meters = held.enter_context(open_meters_for(next(iter(options.values())), RealClock()))

        def record(side: SideName, between: Between | None) -> Run:
            def keep(run: Run) -> None:
                found.runs[side] = run

            def keep_program(program: LocalProgram) -> None:
                found.live[side] = program

            other = found.runs.get(other_side(side))
            known = None if other is None else other.measurement
            return record_step(
                steps[side],
                options[side],
                meters=meters,
                root=folder,
                checkpoint=keep,
                listener=Labelled(listener, side.upper()),
                between=between,
                then=keep_program,
                idle=None if known is None or not known.trustworthy else resting(known),
                held=held,
            )

        def record_second(first: Again) -> Run:
            def take_turns(second: Again) -> None:
                second(TURN_SHARE * options["b"].seconds)
                first.begin()
                first(TURN_SHARE * options["a"].seconds)
                first.sample()
                second.begin()

            first.begin()
            return record("b", take_turns)

        if len(steps) == 2:
            record("a", record_second)
        else:
            record(next(iter(steps)), None)
        for side, program in found.live.items():
            if (other := found.runs.get(other_side(side))) is not None:
                program.take_other(other)
        yield found
