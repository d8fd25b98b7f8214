"""Every option of measuring, recording and comparing, with its default.

Signatures and the command line take their defaults from these classes: `seconds: float = MeasureOptions.seconds`.
The classes have no slots, so that a default can be read from the class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from joulediff.model.errors import JoulediffError

ANY_LOOP = "auto"
"""In place of a line or a function of a script: the loop that does the work."""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How to measure the energy of a step."""

    label: str = "step"
    """The program's name in reports."""
    seconds: float = 4.0
    """Longest time to measure, without warm-up and waiting."""
    meter: str = "auto"
    """Names of meters, separated by commas."""
    precision: float | None = None
    """Half width of the confidence interval to reach, as a share of the energy; None aims at 1 %."""
    wait_s: float = 30.0
    """Longest wait for a quiet machine."""
    cpu_watts: float | None = None
    """Power of a busy core, for the estimate."""
    clock_offset_s: float = 0.0
    """Seconds to add to the time stamps of a power log."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions(MeasureOptions):
    """How to record a program. `seconds` bounds the metered pass alone."""

    source: bool = True
    """Store the source lines around recorded ones."""
    cpp: bool = False
    """Store C++ frames."""
    replay: bool = True
    """Run each operator again alone for its energy."""
    replay_seconds: float = 60.0
    """Longest time to replay operators."""
    is_step: bool = False
    """The function that names the program is the step, and does not build it."""
    loop: str | None = None
    """The program is a script, and the body of one of its loops is the step: a line, a function, or `ANY_LOOP`."""
    loop_after: int = 2
    """Iterations of the loop that run as they are before one is the step: the first sets up what later ones use."""

    def check_replay(self) -> None:
        """Raise JoulediffError for a replay without an end or a beginning."""
        if self.replay and not 0 < self.replay_seconds < math.inf:
            raise JoulediffError(
                f"cannot replay for {self.replay_seconds:g} seconds", fix="give seconds, or --no-replay"
            )


@dataclass(frozen=True, kw_only=True)
class ApisOptions:
    """How to measure the library calls of a script."""

    meter: str = MeasureOptions.meter
    cpu_watts: float | None = None
    clock_offset_s: float = 0.0
    wait_s: float = 10.0
    """Longest wait for a quiet machine before the program; 0 does not look at it."""
    synchronise: bool = True
    """Wait for devices at the begin and the end of each call."""
    isolated: int = 0
    """How many calls of each site are measured alone, from rest to rest."""
    source: bool = True
    """Store the files of the program that have measured calls."""


@dataclass(frozen=True, kw_only=True)
class ScaleOptions(MeasureOptions):
    """How to measure a step at several input sizes. `seconds` bounds the measurement of each size."""

    seconds: float = 2.0
    points: int = 7
    """How many sizes a range has."""
    is_step: bool = False
    """The function that names the program is called with the size as the step, and does not build it."""


# Programs that are compared are measured in two turns each, of at most this share of `seconds`; turns of a steady
# program end earlier.
TURN_SHARE = 0.75
# A checkup only looks whether the machine is quiet now.
DOCTOR_OPTIONS = MeasureOptions(wait_s=3.0)
# The programs of cases are small and many: both sides of all of them are recorded in one go.
CASE_OPTIONS = RecordOptions(seconds=2.0, wait_s=10.0, replay_seconds=10.0)


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """How to compare two runs."""

    threshold: float = 0.05
    """Smallest difference in energy to report, as a share."""
    slower: float = 0.01
    """The cheap side may be slower by this share of the time for a waste."""
    difference: float = 0.01
    """The outputs of both sides differ by at most this share of their norm, beside rounding, for a waste."""
    tolerance: float = 1e-3
    """Largest relative difference of tensors that are matched as equal, beside rounding."""
    confirm: bool = False
    """Measure the whole program again with each fix that can be applied from outside."""
    fail_above: float | None = None
    """How much more energy than A B may use, as a share; None for no gate."""
    gate_s: float = 60.0
    """Longest time to measure both programs again, in new processes, until the gate can tell."""
