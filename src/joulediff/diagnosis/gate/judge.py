"""Judge whether B uses more energy than A by more than a limit.

The verdict is that of the interval: `failed` if all of it is above the limit, `passed` if none of it is. Two processes
of one program may differ in energy, so the interval includes their spread; that of a single pair is wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulediff.diagnosis.significance import RECORDING_SPREAD
from joulediff.model.apis.api_diff import ApiDiff
from joulediff.model.diff import Diff, Gate, GateReason, GateVerdict
from joulediff.model.energy import Energy, Ratio, Source, joules_of, ratio, weakest
from joulediff.model.stats import CONFIDENCE_SIGMAS, half_width

# Spread of the logarithm of B over A (one sigma) between pairs of processes of one program, beside that of the turns:
# 0.0 and 0.0 % for products and 0.0 and 2.6 % for Python in 6 and 4 rounds on a 2-core virtual machine
# (`benchmarks/gate_spread.py`).
PROCESS_SPREAD = 0.015
# Chosen: a single pair says nothing about this spread, and programs may depend on where their memory lies.
SINGLE_SPREAD = 0.04
# The same between four turns in the order A, B, B, A: 0.3 to 2.1 % for products, 2.0 to 5.0 % for Python there.
TURNS_SPREAD = 0.02
# A recording ends early at about this half width: the spread of the meter that more time does not reduce.
_LEAST_HALF: Mapping[Source, float] = {"metered": 0.013, "replayed": 0.013, "attributed": 0.013, "estimated": 0.023}
# Nobody waits longer for a gate.
MOST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Round:
    """One pair of processes that were measured in alternation."""

    log_ratios: tuple[float, ...]
    """The logarithm of the energy of B over that of A, of each four turns."""
    spent_s: float
    """Seconds of the turns, with the start of the processes."""


def judge(diff: Diff, limit: float, rounds: Sequence[Round] = ()) -> Gate:
    """Return whether B may use the energy that it uses: at most 1 + `limit` times that of A.

    Without rounds, the energies of both steps are compared as two recordings.
    """
    spent_s = math.fsum(each.spent_s for each in rounds)
    found = round_ratio(rounds) if rounds else _recorded_ratio(diff)
    if not diff.comparable:
        return Gate("cannot tell", limit, None, "conditions", len(rounds), spent_s)
    if found is None:
        return Gate("cannot tell", limit, None, "not measured", len(rounds), spent_s)
    if not rounds and (diff.a.unmet or diff.b.unmet):
        return Gate("cannot tell", limit, found, "disturbed")
    verdict = _verdict(found, limit)
    if verdict != "cannot tell":
        return Gate(verdict, limit, found, None, len(rounds), spent_s)
    reason, settles_s = _settling(found, limit, spent_s) if rounds else _settling_recordings(diff, found, limit)
    return Gate("cannot tell", limit, found, reason, len(rounds), spent_s, settles_s)


def judge_scripts(diff: ApiDiff, limit: float) -> Gate:
    """Return whether script B may use the energy that it uses: at most 1 + `limit` times that of A."""
    if not diff.comparable:
        return Gate("cannot tell", limit, None, "conditions")
    if diff.ratio is None:
        return Gate("cannot tell", limit, None, "not measured")
    found = Ratio(1 / diff.ratio.value, 1 / diff.ratio.high, 1 / diff.ratio.low)
    if diff.a.unmet or diff.b.unmet or not (diff.a.trustworthy and diff.b.trustworthy):
        return Gate("cannot tell", limit, found, "disturbed")
    verdict = _verdict(found, limit)
    return Gate(verdict, limit, found, "recordings" if verdict == "cannot tell" else None)


def _verdict(found: Ratio, limit: float) -> GateVerdict:
    if found.low > 1 + limit:
        return "failed"
    return "passed" if found.high <= 1 + limit else "cannot tell"


def round_ratio(rounds: Sequence[Round]) -> Ratio | None:
    """Return the energy of B over that of A in all rounds, with the interval of their mean."""
    means = [_mean(each.log_ratios) for each in rounds if each.log_ratios]
    if not means:
        return None
    within = [turns_half(each.log_ratios) / CONFIDENCE_SIGMAS for each in rounds if each.log_ratios]
    between = PROCESS_SPREAD if len(means) > 1 else SINGLE_SPREAD
    known_sigma = math.hypot(between, math.sqrt(_mean([sigma**2 for sigma in within])))
    half, value = half_width(means, known_sigma=known_sigma), math.exp(_mean(means))
    return Ratio(value, value * math.exp(-half), value * math.exp(half))


def turns_half(log_ratios: Sequence[float]) -> float:
    """Return the half width of the mean of one round, for this pair of processes alone."""
    return half_width(log_ratios, known_sigma=TURNS_SPREAD)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _recorded_ratio(diff: Diff) -> Ratio | None:
    a, b = diff.a.step.energy, diff.b.step.energy
    if a is None or b is None:
        return None
    return ratio(b, a, error=CONFIDENCE_SIGMAS * RECORDING_SPREAD[weakest((a, b))])


def _distance(found: Ratio, limit: float) -> float:
    """Return how far the ratio is from the limit, in the logarithm."""
    return abs(math.log(found.value / (1 + limit)))


def _settling(found: Ratio, limit: float, spent_s: float) -> tuple[GateReason, float | None]:
    """Return the reason, and how long to measure in rounds: the interval narrows with the root of their number."""
    distance = _distance(found, limit)
    half = math.log(found.high / found.value)
    if half**2 * spent_s > MOST_S * distance**2:
        return "too close", None
    return "too noisy", (half / distance) ** 2 * spent_s


def _settling_recordings(diff: Diff, found: Ratio, limit: float) -> tuple[GateReason, float | None]:
    """Return the reason, and how long to record each program: the spread of recordings stays."""
    energies = [each for each in (diff.a.step.energy, diff.b.step.energy) if each is not None]
    source = weakest(energies)
    spread = math.sqrt(2) * CONFIDENCE_SIGMAS * RECORDING_SPREAD[source]
    needed = math.sqrt(max(0.0, _distance(found, limit) ** 2 - spread**2))
    if needed < math.sqrt(2) * _LEAST_HALF[source]:
        return "recordings", None
    noise = math.hypot(*map(_half, energies))
    measured_s = max((each.step.step_s or 0.0) * each.step.steps for each in (diff.a, diff.b))
    settles_s = (noise / needed) ** 2 * measured_s
    return ("too noisy", settles_s) if 0 < settles_s <= MOST_S else ("recordings", None)


def _half(energy: Energy) -> float:
    return energy.half_j / joules_of(energy)
