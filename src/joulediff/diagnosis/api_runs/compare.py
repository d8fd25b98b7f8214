"""Compare two runs of scripts, API by API and line by line.

Each program ran once, so nothing is known of how much its energy differs from run to run. A difference is one only if
it is beyond the intervals of both runs and the spread that such recordings have.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from joulediff.diagnosis.api_runs.align import Alignment, align
from joulediff.diagnosis.api_runs.conditions import compare_measuring
from joulediff.diagnosis.gate.judge import judge_scripts
from joulediff.diagnosis.significance import ALPHA, LEAST_SHARE, SCRIPT_SPREAD, SPREAD, chance, correct
from joulediff.model.apis.api_diff import (
    SCHEMA,
    ApiChange,
    ApiDiff,
    ApiDiffSide,
    Change,
    LineChange,
    LinePlace,
    PartChange,
    Verdict,
)
from joulediff.model.apis.api_run import ApiCalls, ApiRun, CallSite, add_accounts
from joulediff.model.apis.parts import PARTS, UNEXPLAINED, PartName, gross_parts, rest_of
from joulediff.model.energy import (
    Energy,
    add_common,
    agree,
    difference_j,
    joules_of,
    ratio,
    subtract,
    weakest,
)
from joulediff.model.options import DiffOptions
from joulediff.model.pair import SIDES, Pair
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.version import __version__

# A call's energy is its share, by time, of what the meter saw: it is never more certain than that of an operator.
CALL_SPREAD = {source: max(spread, SPREAD["attributed"]) for source, spread in SPREAD.items()}


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of some code in one run."""

    energy: Energy | None
    calls: int
    seconds: float


_NOTHING = _Cost(None, 0, 0.0)
# None is code that a run does not have.
_Costs = tuple[_Cost | None, _Cost | None]


def compare_api_runs(
    a: ApiRun, b: ApiRun, *, threshold: float = DiffOptions.threshold, fail_above: float | None = None
) -> ApiDiff:
    """Return what differs between two runs; with `fail_above`, whether B uses more energy than A by more than that."""
    conditions = compare_measuring(a, b)
    comparable = not any(each.serious for each in conditions)
    doubt = _doubt(a.energy, b.energy)
    judge = _Judge(a, b, threshold, comparable=comparable)
    apis = judge.apis()
    found = ApiDiff(
        schema=SCHEMA,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool=__version__,
        a=_side(a),
        b=_side(b),
        ratio=ratio(a.energy, b.energy, error=doubt) if comparable else None,
        difference=_difference(a.energy, b.energy, doubt) if comparable else None,
        comparable=comparable,
        condition_differences=conditions,
        threshold=threshold,
        apis=apis,
        lines=judge.lines(),
        parts=_parts(a, b),
        notes=tuple(_notes(a, b)),
    )
    return found if fail_above is None else replace(found, gate=judge_scripts(found, fail_above))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Compares costs of two runs by one rule."""

    a: ApiRun
    b: ApiRun
    threshold: float
    comparable: bool

    def apis(self) -> tuple[ApiChange, ...]:
        """Return each API of one run or both, the largest difference first."""
        left, right = ({api.api: api for api in run.apis} for run in (self.a, self.b))
        names = list(dict.fromkeys([*left, *right]))
        costs = [(_cost_of(left.get(name)), _cost_of(right.get(name))) for name in names]
        library = {name: (left.get(name) or right[name]).library for name in names}
        changes = zip(names, self.changes(costs), strict=True)
        return tuple(sorted((ApiChange(name, library[name], each) for name, each in changes), key=_by_difference))

    def lines(self) -> tuple[LineChange, ...]:
        """Return each line of one run or both, and the code between two lines, the largest difference first."""
        alignment = align(self.a, self.b)
        calls = _pair(_calls(self.a), _calls(self.b), alignment)
        gaps = _pair(_gaps(self.a), _gaps(self.b), alignment)
        texts = Pair(_callees(self.a), _callees(self.b))
        changes = self.changes([each.costs for each in (*calls, *gaps)])
        found = [
            LineChange(each.a, each.b, at >= len(calls), _text(each, texts), change)
            for at, (each, change) in enumerate(zip((*calls, *gaps), changes, strict=True))
        ]
        return tuple(sorted(found, key=_by_difference))

    def changes(self, costs: Sequence[_Costs]) -> list[Change]:
        """Return the differences of these costs, which are tested together; None is code that a run does not have."""
        tested = [self._is_known(a, b) for a, b in costs]
        both = [pair for pair, is_tested in zip(costs, tested, strict=True) if is_tested]
        chances = correct([chance(_energy(a), _energy(b), spread=CALL_SPREAD) for a, b in both])
        remaining = iter(chances)
        return [self._change(a, b, next(remaining) if ok else None) for (a, b), ok in zip(costs, tested, strict=True)]

    def _is_known(self, a: _Cost | None, b: _Cost | None) -> bool:
        return self.comparable and all(cost is None or cost.energy is not None for cost in (a, b))

    def _change(self, a: _Cost | None, b: _Cost | None, p_value: float | None) -> Change:
        left, right = a or _NOTHING, b or _NOTHING
        doubt = CONFIDENCE_SIGMAS * CALL_SPREAD[weakest(known)] if (known := _known(left, right)) else 0.0
        difference = None
        if p_value is not None:
            difference = _signed(left.energy, right.energy, doubt)
        from_calls_j, from_cost_j = (None, None) if difference is None else _split(left, right, difference.joules)
        return Change(
            energy_a=left.energy,
            energy_b=right.energy,
            difference=difference,
            ratio=ratio(left.energy, right.energy, error=doubt) if p_value is not None else None,
            verdict=self._verdict(a, b, p_value),
            calls_a=left.calls,
            calls_b=right.calls,
            seconds_a=left.seconds,
            seconds_b=right.seconds,
            from_calls_j=from_calls_j,
            from_cost_j=from_cost_j,
        )

    def _verdict(self, a: _Cost | None, b: _Cost | None, p_value: float | None) -> Verdict:
        if b is None:
            return "only in A"
        if a is None:
            return "only in B"
        if p_value is None:
            return "unknown"
        delta_j = abs(difference_j(a.energy, b.energy))
        program_j = min(joules_of(self.a.energy), joules_of(self.b.energy))
        is_large = delta_j > LEAST_SHARE * program_j
        is_large = is_large and delta_j > self.threshold * min(joules_of(a.energy), joules_of(b.energy))
        return "differs" if is_large and p_value < ALPHA and not agree(a.energy, b.energy) else "noise"


def _doubt(a: Energy | None, b: Energy | None) -> float:
    """Return the doubt of each of two runs beside its interval, as a share."""
    known = [each for each in (a, b) if each is not None]
    return CONFIDENCE_SIGMAS * SCRIPT_SPREAD[weakest(known)] if known else 0.0


def _difference(a: Energy | None, b: Energy | None, doubt: float) -> Energy | None:
    return None if a is None or b is None else subtract(a, [b], error=doubt)


def _signed(a: Energy | None, b: Energy | None, doubt: float) -> Energy | None:
    """Return a minus b; a side without such code costs exactly nothing."""
    known = [energy for energy in (a, b) if energy is not None]
    if not known:
        return None
    nothing = Energy(0.0, 0.0, 0.0, weakest(known))
    return subtract(a or nothing, [b or nothing], error=doubt)


def _split(a: _Cost, b: _Cost, difference_j: float) -> tuple[float | None, float | None]:
    """Return the parts of a difference that the number of calls and the energy of a call make."""
    if not (a.calls and b.calls):
        return (difference_j, 0.0) if a.calls or b.calls else (None, None)
    from_cost_j = (joules_of(a.energy) / a.calls - joules_of(b.energy) / b.calls) * (a.calls + b.calls) / 2
    return difference_j - from_cost_j, from_cost_j


def _known(*costs: _Cost) -> list[Energy]:
    return [cost.energy for cost in costs if cost.energy is not None]


def _energy(cost: _Cost | None) -> Energy | None:
    return None if cost is None else cost.energy


def _cost_of(api: ApiCalls | None) -> _Cost | None:
    return None if api is None else _Cost(api.self_energy, api.calls, api.self_seconds)


@dataclass(frozen=True, slots=True)
class _Paired:
    """The same code in both runs, or code of one of them."""

    a: LinePlace | None
    b: LinePlace | None
    costs: _Costs


def _pair(left: Mapping[LinePlace, _Cost], right: Mapping[LinePlace, _Cost], alignment: Alignment) -> list[_Paired]:
    found, rest = [], dict(right)
    for place, cost in left.items():
        other = alignment.of(place)
        other = other if other in rest else None
        found.append(_Paired(place, other, (cost, None if other is None else rest.pop(other))))
    return [*found, *(_Paired(None, place, (None, cost)) for place, cost in rest.items())]


def _calls(run: ApiRun) -> dict[LinePlace, _Cost]:
    return _add_costs(
        (LinePlace(site.file, site.line), _Cost(site.self_energy, site.calls, site.self_seconds))
        for api in run.apis
        for site in api.sites
    )


def _gaps(run: ApiRun) -> dict[LinePlace, _Cost]:
    return _add_costs(
        (LinePlace(gap.file, gap.after_line, gap.before_line), _Cost(gap.energy, gap.count, gap.seconds))
        for gap in run.gaps
    )


def _add_costs(costs: Iterable[tuple[LinePlace, _Cost]]) -> dict[LinePlace, _Cost]:
    by_place: defaultdict[LinePlace, list[_Cost]] = defaultdict(list)
    for place, cost in costs:
        by_place[place].append(cost)
    return {
        place: _Cost(
            _sum(cost.energy for cost in each),
            sum(cost.calls for cost in each),
            math.fsum(cost.seconds for cost in each),
        )
        for place, each in by_place.items()
    }


def _callees(run: ApiRun) -> dict[LinePlace, str]:
    """Return the callee of each line that takes most of its energy."""
    most: dict[LinePlace, CallSite] = {}
    for site in (site for api in run.apis for site in api.sites):
        place = LinePlace(site.file, site.line)
        if place not in most or joules_of(site.self_energy) > joules_of(most[place].self_energy):
            most[place] = site
    return {place: site.text for place, site in most.items()}


def _text(code: _Paired, texts: Pair[dict[LinePlace, str]]) -> str:
    found = [texts.of(side).get(place) for side in SIDES if (place := getattr(code, side)) is not None]
    return next((text for text in found if text), "")


def _sum(energies: Iterable[Energy | None]) -> Energy | None:
    """Return the sum of energies that one meter saw; None if one is not known."""
    each = list(energies)
    known = [energy for energy in each if energy is not None]
    return add_common(known) if len(known) == len(each) else None


def _by_difference(change: ApiChange | LineChange) -> tuple[float, float]:
    found = change.change
    larger_j = max(joules_of(found.energy_a), joules_of(found.energy_b))
    return -abs(joules_of(found.difference)), -larger_j


def _parts(a: ApiRun, b: ApiRun) -> tuple[PartChange, ...]:
    left, right = _gross_parts(a), _gross_parts(b)
    return tuple(_part(name, left.get(name), right.get(name)) for name in PARTS if name in left or name in right)


def _part(name: PartName, a: Energy | None, b: Energy | None) -> PartChange:
    is_known = a is not None or b is not None
    return PartChange(name, a, b, difference_j(a, b) if is_known else None)


def _gross_parts(run: ApiRun) -> dict[PartName, Energy | None]:
    account = add_accounts(run.ledger)
    if account is None:
        return {}
    calls = [api.self_energy for api in run.apis]
    parts = dict(gross_parts(account, calls))
    return {**parts, UNEXPLAINED: rest_of(account.metered, [*calls, *parts.values()])}


def _notes(a: ApiRun, b: ApiRun) -> Iterator[str]:
    if a.arguments != b.arguments:
        left, right = (shlex.join(each.arguments) or "none" for each in (a, b))
        yield f"the arguments of the programs differ: {left} ↔ {right}"


def _side(run: ApiRun) -> ApiDiffSide:
    return ApiDiffSide(
        label=run.label,
        program=run.program,
        arguments=run.arguments,
        created=run.created,
        seconds=run.seconds,
        calls=run.calls,
        energy=run.energy,
        net_energy=run.net_energy,
        ledger=run.ledger,
        domains=run.domains,
        versions=run.versions,
        ending=run.ending,
        trustworthy=run.trustworthy,
        warnings=run.warnings,
        unmet=tuple(each.name for each in run.conditions if not each.ok),
    )
