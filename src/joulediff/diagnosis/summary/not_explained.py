"""The part of a significant difference that no finding explains: its joules, where it lies, and what differs there.

A measured difference is explained by findings or reported by this record. Both sides running the same kernels is an
observation, and no reason to leave the difference out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, function_of, ops_of, to_place
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.host.busy_wait import is_cpu_counted
from joulediff.diagnosis.evidence.host.host_stacks import longest_line, stacks_of_both
from joulediff.diagnosis.evidence.host.idle_device import LEAST_OPS
from joulediff.diagnosis.significance import RowComparison
from joulediff.frameworks.framework import place_of, short_name
from joulediff.matching.rows import name_ops
from joulediff.model.diff import NotExplained, Row, RowKind
from joulediff.model.energy import Energy, Ratio, difference_j, joules_of, to_energy
from joulediff.model.finding import Finding
from joulediff.model.pair import SIDES, Pair, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Run, Value
from joulediff.model.units import format_energy, format_time

# Rows are named until they hold this share of the difference, and at most this many.
_MOST_SHARE = 0.8
_MOST_ROWS = 4
# A row with less than this share of the difference is not named.
_LEAST_SHARE = 0.1
# At most this many functions of a side are named.
_MOST_FUNCTIONS = 3
_NAME_CHARS = 60
# Parts of the ledger that grow with the number of operators.
_LAUNCHING = ("idle", "host")
_OUTSIDE: Mapping[RowKind, str] = {
    "idle": "idle time of the device",
    "host": "time of the host: Python code and launches",
    "unexplained": "metered energy outside of kernels, idle time and host time",
}


@dataclass(frozen=True, slots=True)
class Remainder:
    """What no finding explains, and the rows of the diff that hold most of it."""

    found: NotExplained
    rows: frozenset[int]


def explained_j(drafts: Sequence[Draft], findings: Sequence[Finding]) -> float:
    """Return the extra energy of A in the findings, less that of B; only energy that the steps' totals include."""
    return sum(_signed_j(finding) for draft, finding in zip(drafts, findings, strict=True) if _is_counted(draft))


def find_remainder(
    work: Investigation,
    findings: Sequence[Finding],
    rows: Sequence[Row],
    *,
    delta: Energy | None,
    ratio: Ratio | None,
) -> Remainder | None:
    """Return the part of the steps' difference that is not explained; None if it is noise or below the threshold.

    `rows` are all rows of the diff, of which the first ones are those of the investigation. Without any finding a
    significant difference is never below the threshold.
    """
    if delta is None or ratio is None or ratio.may_be_one:
        return None
    rest = _subtract(delta, work.drafts, findings)
    if rest is None or (findings and not _is_significant(rest, work)):
        return None
    chosen = _choose(rows, rest)
    return Remainder(_describe(work, rows, chosen, rest), frozenset(chosen))


def _signed_j(finding: Finding) -> float:
    return finding.cost.delta_j if finding.expensive == "a" else -finding.cost.delta_j


def _is_counted(draft: Draft) -> bool:
    return draft.busy_wait is None or is_cpu_counted(draft.comparison.run(draft.expensive))


def _subtract(delta: Energy, drafts: Sequence[Draft], findings: Sequence[Finding]) -> Energy | None:
    """Return the difference of the steps less that of the findings; all errors are independent."""
    counted = [finding for draft, finding in zip(drafts, findings, strict=True) if _is_counted(draft)]
    halves_j = [each.half_j for finding in counted for each in finding.cost.energies if each is not None]
    joules = delta.joules - explained_j(drafts, findings)
    low, high = (joules + end * math.hypot(half, *halves_j) for end, half in ((-1, delta.below_j), (1, delta.above_j)))
    return to_energy(joules, low, high, delta.source)


def _is_significant(rest: Energy, work: Investigation) -> bool:
    if rest.low <= 0.0 <= rest.high:
        return False
    totals = (joules_of(work.comparison.costs[side].total) for side in SIDES)
    return abs(rest.joules) > work.limits.threshold * min(totals)


def _choose(rows: Sequence[Row], rest: Energy) -> list[int]:
    """Return the rows without a finding that hold most of the difference, the largest first."""
    sign, left_j = math.copysign(1.0, rest.joules), abs(rest.joules)
    open_rows = [at for at, row in enumerate(rows) if row.finding is None]
    extra_j = {at: sign * difference_j(*rows[at].energies) for at in open_rows}
    chosen: list[int] = []
    for at in sorted(open_rows, key=lambda at: -extra_j[at])[:_MOST_ROWS]:
        if extra_j[at] < _LEAST_SHARE * left_j or sum(extra_j[each] for each in chosen) >= _MOST_SHARE * left_j:
            break
        chosen.append(at)
    return chosen


def _describe(work: Investigation, rows: Sequence[Row], chosen: Sequence[int], rest: Energy) -> NotExplained:
    comparison = work.comparison
    places: dict[SideName, list[Place]] = {"a": [], "b": []}
    sentences: list[str] = []
    for at in chosen:
        row = rows[at]
        if row.kind == "function":
            function = work.functions[at]
            for side, place in zip(SIDES, function.places, strict=True):
                places[side] += [] if place is None else [place]
            sentences.append(f"{row.name}: {_signed_text(difference_j(*row.energies))}")
            continue
        compared = work.rows[at] if at < len(work.rows) else None
        launches = _launches(work.rows, rest) if compared is None and row.kind in _LAUNCHING else None
        for side in SIDES:
            places[side] += _places(comparison, side, row, compared or launches)
        what = _outside(comparison, row) if compared is None else _operators(comparison, compared)
        sentences.append(f"{what} ({_signed_text(difference_j(*row.energies))})")
        if launches is not None:
            sentences.append(f"most of the extra operators: {_operators(comparison, launches)}")
    if not chosen:
        sentences.append("the difference is spread over many rows, each with less than a tenth of it")
    a, b = (tuple(dict.fromkeys(places[side]))[:_MOST_FUNCTIONS] for side in SIDES)
    return NotExplained(rest, a, b, tuple(dict.fromkeys((*sentences, *_whole_step(comparison)))))


def _launches(rows: Sequence[RowComparison], rest: Energy) -> RowComparison | None:
    """Return the row with the most extra operators of the expensive side, which the host has to launch."""
    side: SideName = "a" if rest.joules >= 0 else "b"

    def extra(row: RowComparison) -> int:
        return sum(len(ops_of(each, side)) - len(ops_of(each, other_side(side))) for each in row.members)

    most = max(rows, key=extra, default=None)
    return most if most is not None and extra(most) >= LEAST_OPS else None


def _places(comparison: Comparison, side: SideName, row: Row, compared: RowComparison | None) -> Iterator[Place]:
    """Yield the narrowest function of a row's operators, the line of the host, or the function of all operators."""
    run = comparison.run(side)
    stacks = stacks_of_both(Pair(comparison.a, comparison.b)) if row.kind == "host" else None
    line = None if stacks is None else longest_line(run, stacks.of(side))
    place = None if line is None else to_place(run, line)
    if place is not None:
        yield place
        return
    if compared is not None:
        ops = [op for region in compared.members for op in ops_of(region, side)]
    elif row.kind == "waits":
        ops = _waiting(run)
    else:
        ops = [op.id for op in run.ops]
    place = function_of(comparison, side, ops)
    if place is not None:
        yield place


def _waiting(run: Run) -> list[int]:
    """Return the operators of the line that waits most often."""
    ops = sorted({wait.op for wait in run.waits if wait.op is not None})
    lines = Counter(to_place(run, place_of(run, op)) for op in ops)
    most = lines.most_common(1)[0][0] if lines else None
    return [op for op in ops if to_place(run, place_of(run, op)) == most]


def _outside(comparison: Comparison, row: Row) -> str:
    """Return what a row without matched operators is about, with the numbers of both sides that belong to it."""
    if row.kind == "waits":
        return f"waits of the host for a device: {_both(Pair(*(str(len(comparison.run(x).waits)) for x in SIDES)))}"
    if row.kind == "unmatched":
        return f"{row.ops_a:,} operators of A and {row.ops_b:,} of B without a counterpart"
    return _OUTSIDE[row.kind]


def _operators(comparison: Comparison, row: RowComparison) -> str:
    """Return how the operators of a row differ: which they are, their kernels, or the shapes that they read."""
    count = f" ×{len(row.members)}" if len(row.members) > 1 else ""
    region = row.members[0]
    names = Pair(*(name_ops(comparison.run(side), ops_of(region, side)) for side in SIDES))
    if not names.a or not names.b:
        side = "A" if names.a else "B"
        return f"only {side} runs {names.a or names.b}{count}"
    if names.a != names.b:
        return f"A runs {names.a} and B runs {names.b}{count}"
    begin = f"both run {names.a}{count}"
    if row.same:
        return f"{begin} with the same kernels on the same shapes"
    shapes = _differing_input(comparison, region.a, region.b)
    if shapes is not None:
        return f"{begin}: {shapes}"
    kernels = Pair(*(comparison.costs[side].names(ops_of(region, side)) for side in SIDES))
    if kernels.a != kernels.b:
        return f"{begin} with other kernels: {_both(Pair(*(_first(each) for each in kernels)))}"
    return f"{begin} with the same kernels, under other arguments or settings"


def _differing_input(comparison: Comparison, a: Sequence[int], b: Sequence[int]) -> str | None:
    """Return the first input that differs in shape or type between two sequences of operators."""
    left, right = comparison.a, comparison.b
    for x, y in zip(a, b, strict=False):
        for one, other in zip(left.ops[x].inputs, right.ops[y].inputs, strict=False):
            forms = Pair(_form(left.values[one]), _form(right.values[other]))
            if forms.a != forms.b:
                return f"{short_name(left.ops[x].name)} reads {_both(forms)}"
    return None


def _whole_step(comparison: Comparison) -> Iterator[str]:
    """Yield differences of the whole steps: their time and their number of operators."""
    times = [None if run.measurement is None else run.measurement.step_s for run in (comparison.a, comparison.b)]
    if times[0] is not None and times[1] is not None and format_time(times[0]) != format_time(times[1]):
        yield f"a step takes {format_time(times[0])} in A and {format_time(times[1])} in B"
    counts = Pair(len(comparison.a.ops), len(comparison.b.ops))
    if counts.a != counts.b and not comparison.is_whole_step:
        yield f"a step runs {counts.a:,} operators in A and {counts.b:,} in B"


def _form(value: Value) -> str:
    return f"{'x'.join(map(str, value.shape)) or 'a number'} {value.dtype}"


def _first(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return names[0] if len(names[0]) <= _NAME_CHARS else f"{names[0][: _NAME_CHARS - 1]}…"


def _both(texts: Pair[str]) -> str:
    return f"{texts.a} in A and {texts.b} in B"


def _signed_text(joules: float) -> str:
    return f"{'+' if joules >= 0 else '-'}{format_energy(abs(joules))}"
