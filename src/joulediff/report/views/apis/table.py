"""The APIs of a program by energy: a row for each, then the code between calls and the other parts.

Each column of joules sums to the program as printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.model.apis.api_run import ApiCalls, ApiRun, DomainCost
from joulediff.model.apis.parts import BETWEEN
from joulediff.model.energy import Energy, add_common
from joulediff.model.energy import scale as scale_energy
from joulediff.model.units import format_si
from joulediff.report.views.apis.costs import (
    PROGRAM,
    Costs,
    amount_cell,
    choose_scale,
    cost_cells,
    cost_units,
    emphases,
    gross_costs,
    net_costs,
    part_names,
    share_cells,
    spread_text,
    total_account,
)
from joulediff.report.views.columns import Column, TextTable
from joulediff.report.views.run.ledger import Scale
from joulediff.report.views.short_texts import count_text, energy_text, format_interval, format_places, pick_unit

# Stands beside an API whose calls are shorter than the meter's period.
SHORT_MARK = "*"
_SPARE = {name: at for at, name in enumerate(("input", "net", "total", "domain", "alone", "time", "±"))}


@dataclass(frozen=True, slots=True)
class ApiRow:
    """An API, or several that are folded into one row."""

    name: str
    calls: int
    self_energy: Energy | None
    net_energy: Energy | None
    """Above idle, without the calls inside."""
    total_energy: Energy | None
    """With the calls inside; None for a folded row, whose APIs may be inside of each other."""
    domains: Mapping[str, Energy | None]
    self_seconds: float
    input_bytes: int | None
    too_short: bool = False
    isolated_energy: Energy | None = None


def api_rows(run: ApiRun, *, top: int, every: bool) -> list[ApiRow]:
    """Return the APIs with the most energy; with `every` all of them, else the others are one row."""
    shown = len(run.apis) if every or len(run.apis) <= top + 1 else max(top, 1)
    rows = [_row(api) for api in run.apis[:shown]]
    return rows if shown == len(run.apis) else [*rows, _fold([_row(api) for api in run.apis[shown:]])]


def api_table(run: ApiRun, *, top: int, every: bool = False) -> TextTable | None:
    """Return the APIs, the other parts of the program, and the program; None without a call."""
    rows = api_rows(run, top=top, every=every)
    if not rows:
        return None
    account = total_account(run)
    gross = gross_costs([row.self_energy for row in rows], account)
    net = net_costs([row.net_energy for row in rows], account)
    by_domain = _domain_costs(run, rows)
    columns = [gross, net, *by_domain.values()]
    scale = choose_scale(*(column.whole for column in columns))
    parts = part_names(columns, scale) if gross.is_known else [BETWEEN]
    below = [""] * (len(parts) + 1)
    texts = [
        *(_energy_columns(run, rows, gross, net, scale, parts) if gross.is_known else []),
        _number("calls", [*(f"{row.calls:,}" for row in rows), *below[1:], f"{run.calls:,}"]),
        *([_number("a call", [*map(_per_call, rows), *below])] if gross.is_known else []),
        _times(run, rows, parts),
        *_domain_columns(run, by_domain, scale, parts),
        *_spare_columns(run, rows, below),
        Column("API", [*(row.name for row in rows), *parts, PROGRAM], cut="begin"),
    ]
    return TextTable(tuple(texts), emphases(len(rows), len(parts)))


def short_note(run: ApiRun) -> str | None:
    """Return the note under the table that explains its mark; None if no row has it."""
    if run.energy is None or not any(api.too_short for api in run.apis):
        return None
    return (
        f"{SHORT_MARK} its calls are shorter than the meter's period: the energy is a share by time of all that the "
        "meter saw meanwhile, and its interval says how much of it is certain"
    )


def seconds_cells(items: Sequence[float], parts: Mapping[str, float], names: Sequence[str], whole: float) -> Column:
    """Return a column of times in one unit; parts without a time are blank.

    They sum to the program unless calls in several threads overlap.
    """
    factor, unit, places = pick_unit(max([whole, *items]), "s")
    shown = [*items, *(parts.get(name) for name in names), whole]
    cells = ["" if each is None else format_places(round(each * 10**places / factor), places) for each in shown]
    return Column(unit, cells, is_right=True, spare=_SPARE["time"])


def _energy_columns(
    run: ApiRun, rows: Sequence[ApiRow], gross: Costs, net: Costs, scale: Scale, parts: Sequence[str]
) -> Iterator[Column]:
    below = [""] * len(parts)
    yield _number(scale.unit, cost_cells(gross, scale, parts))
    yield _number("share", share_cells(gross, scale, parts))
    yield _number("±", [*(spread_text(row.self_energy) for row in rows), *below, spread_text(run.energy)])
    if net.is_known:
        yield _number("net", cost_cells(net, scale, parts))
    if any(api.energy is not None and api.energy != api.self_energy for api in run.apis):
        selves = cost_units(gross, scale, parts)
        totals = [_total_cell(row, units, scale) for row, units in zip(rows, selves, strict=False)]
        yield _number("total", [*totals, *below, ""])


def _domain_columns(
    run: ApiRun, by_domain: Mapping[str, Costs], scale: Scale, parts: Sequence[str]
) -> Iterator[Column]:
    for name, costs in by_domain.items():
        head = name if run.domains[name].counted else f"({name})"
        yield _number(head, cost_cells(costs, scale, parts), spare="domain")


def _spare_columns(run: ApiRun, rows: Sequence[ApiRow], below: Sequence[str]) -> Iterator[Column]:
    if any(row.input_bytes is not None for row in rows):
        sizes = ["" if row.input_bytes is None else format_si(row.input_bytes, "B", digits=3) for row in rows]
        yield _number("input", [*sizes, *below])
    if run.isolated:
        texts = ["-" if row.isolated_energy is None else format_interval(row.isolated_energy) for row in rows]
        yield _number("a call alone", [*texts, *below])
    if run.energy is not None and any(row.too_short for row in rows):
        yield Column("", [*(SHORT_MARK if row.too_short else "" for row in rows), *below])


def _row(api: ApiCalls) -> ApiRow:
    return ApiRow(
        api.api,
        api.calls,
        api.self_energy,
        api.self_net_energy,
        api.energy,
        {name: cost.self_energy for name, cost in api.domains.items()},
        api.self_seconds,
        api.input_bytes,
        api.too_short,
        api.isolated_energy,
    )


def _fold(rows: Sequence[ApiRow]) -> ApiRow:
    """Return several APIs in one row. One meter saw all of them, so their errors add up."""
    names = dict.fromkeys(name for row in rows for name in row.domains)
    sizes = [row.input_bytes for row in rows if row.input_bytes is not None]
    return ApiRow(
        f"{count_text(len(rows), 'more API')}",
        sum(row.calls for row in rows),
        _sum(row.self_energy for row in rows),
        _sum(row.net_energy for row in rows),
        None,
        {name: _sum(row.domains.get(name) for row in rows) for name in names},
        math.fsum(row.self_seconds for row in rows),
        sum(sizes) if sizes else None,
        any(row.too_short for row in rows),
        None,
    )


def _sum(energies: Iterable[Energy | None]) -> Energy | None:
    return add_common(each for each in energies if each is not None)


def _domain_costs(run: ApiRun, rows: Sequence[ApiRow]) -> dict[str, Costs]:
    """Return the energy by domain, if there are several."""
    return {
        name: gross_costs([row.domains.get(name) for row in rows], run.ledger[name]) for name in _shown_domains(run)
    }


def _shown_domains(run: ApiRun) -> list[str]:
    def cost_of(api: ApiCalls, name: str) -> DomainCost | None:
        return api.domains.get(name)

    found = [
        name
        for name in run.ledger
        if any((cost := cost_of(api, name)) is not None and cost.self_energy is not None for api in run.apis)
    ]
    return found if len(found) > 1 else []


def _total_cell(row: ApiRow, self_units: int | None, scale: Scale) -> str:
    """Return the energy with the calls inside: what these add is rounded, so that it is never below its own part."""
    if row.total_energy is None or row.self_energy is None or self_units is None:
        return ""
    inside = round((row.total_energy.joules - row.self_energy.joules) * scale.per_joule)
    return amount_cell(self_units + inside, row.total_energy, scale)


def _per_call(row: ApiRow) -> str:
    energy = row.total_energy if row.total_energy is not None else row.self_energy
    return energy_text(scale_energy(energy, 1 / row.calls)) if row.calls else ""


def _times(run: ApiRun, rows: Sequence[ApiRow], parts: Sequence[str]) -> Column:
    between_s = math.fsum(gap.seconds for gap in run.gaps)
    return seconds_cells([row.self_seconds for row in rows], {BETWEEN: between_s}, parts, run.seconds)


def _number(head: str, cells: Sequence[str], *, spare: str | None = None) -> Column:
    return Column(head, cells, is_right=True, spare=_SPARE.get(spare or head))
