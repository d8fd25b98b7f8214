"""Two runs of scripts in sentences: which uses more energy, in how many APIs, what limits the comparison, the gate."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import PurePath

from joulediff.model.apis.api_diff import ApiDiff, ApiDiffSide
from joulediff.model.diff import Gate
from joulediff.model.energy import joules_of
from joulediff.model.units import format_share, format_time
from joulediff.report.views.diff_sentences import NOT_COMPARABLE, by_how_much
from joulediff.report.views.gate import passing_limit
from joulediff.report.views.run.sentences import created_text
from joulediff.report.views.short_texts import count_text, format_interval, ratio_text

APIS_TITLE = "energy by API without the calls inside, idle power included"
LINES_TITLE = "energy by line: calls, and the code between them"
LEDGER_TITLE = "ledger: calls and code above idle"
ONCE = "each program ran once, so a difference counts only beyond what two runs of one program may differ"


def headline(diff: ApiDiff) -> str:
    """Return which program uses how much more."""
    ratio = diff.ratio
    if not diff.comparable:
        return f"{NOT_COMPARABLE[0].upper()}{NOT_COMPARABLE[1:]}."
    if ratio is None:
        return "It is unknown which program uses more energy: one of them was not measured."
    if ratio.may_be_one:
        value, low, high = (ratio_text(each).removesuffix("x") for each in (ratio.value, ratio.low, ratio.high))
        return (
            f"A and B use the same energy as far as one run of each can tell (ratio {value}, 95% CI {low} .. {high})."
        )
    dear, cheap, times = ("A", "B", ratio.value) if ratio.value > 1 else ("B", "A", 1 / ratio.value)
    found = diff.difference
    ends = () if found is None else (found.joules, found.low, found.high)
    how_much = by_how_much(ends, dear) if ends else ""
    return f"{dear} uses {ratio_text(times)} the energy of {cheap}{how_much}."


def changes_text(diff: ApiDiff) -> str:
    """Return how many APIs differ, how many only one program calls, and their share of the difference."""
    if not diff.comparable:
        return ""
    differ = [each for each in diff.apis if each.change.verdict == "differs"]
    only = {side: sum(each.change.verdict == f"only in {side}" for each in diff.apis) for side in "AB"}
    verb = "differ" if len(differ) > 1 else "differs"
    texts = [f"{len(differ) or 'None'} of {count_text(len(diff.apis), 'API')} {verb}"]
    texts += [f"{count_text(count, 'API')} only in {side}" for side, count in only.items() if count]
    share = _explained(diff)
    explained = "" if share is None else f"; they have {format_share(share)} of the difference"
    return f"{', '.join(texts)}{explained}."


def side_texts(diff: ApiDiff) -> Iterator[tuple[str, str, str]]:
    """Yield the label, the energy, and what ran, of each side."""
    for side in (diff.a, diff.b):
        energy = "energy not measured" if side.energy is None else format_interval(side.energy)
        yield side.label, energy, _about(side)


def warning_texts(diff: ApiDiff) -> list[str]:
    """Return the warnings of both runs."""
    return [f"{letter}: {text}" for letter, side in zip("AB", (diff.a, diff.b), strict=True) for text in side.warnings]


def gate_advice(diff: ApiDiff, gate: Gate) -> str | None:
    """Return why a gate cannot tell, and what to do; None if it can."""
    if gate.reason is None:
        return None
    if gate.reason == "conditions":
        return "the conditions of A and B differ: measure both on this machine, with the same meter"
    if gate.reason == "not measured":
        return "the energy of a program is not known: measure again, with a meter that works here (joulediff doctor)"
    if gate.reason == "disturbed":
        sides = zip("AB", (diff.a, diff.b), strict=True)
        names = "; ".join(f"{letter}: {_disturbances(side)}" for letter, side in sides if not _is_sound(side))
        return f"a run was disturbed ({names}): measure it again on a quiet machine"
    return (
        "the interval holds the limit: two runs of one program differ by as much. Record the step of the program, and "
        f"compare steps: joulediff record PROGRAM.py --loop{passing_limit(gate)}"
    )


def _is_sound(side: ApiDiffSide) -> bool:
    return side.trustworthy and not side.unmet


def _disturbances(side: ApiDiffSide) -> str:
    return ", ".join(side.unmet) or "its energy is not trustworthy"


def _about(side: ApiDiffSide) -> str:
    program = shlex.join([PurePath(side.program).name or side.program, *side.arguments])
    return ", ".join([format_time(side.seconds), count_text(side.calls, "call"), program, created_text(side.created)])


def _explained(diff: ApiDiff) -> float | None:
    """Return the share of the difference of the programs that these APIs have; None if they differ in no direction."""
    if diff.ratio is None or diff.ratio.may_be_one or not joules_of(diff.difference):
        return None
    changes = [each.change for each in diff.apis if each.change.verdict in ("differs", "only in A", "only in B")]
    share = math.fsum(joules_of(each.difference) for each in changes) / joules_of(diff.difference)
    return share if share > 0 else None
