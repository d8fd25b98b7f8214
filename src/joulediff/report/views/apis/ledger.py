"""The ledger of a program as a table: the energy that each meter counted, and its parts.

Numbers are rounded once, so that the parts sum to the metered energy as printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from joulediff.model.apis.api_run import ApiAccount, ApiRun
from joulediff.model.apis.parts import BETWEEN, UNEXPLAINED
from joulediff.model.energy import Energy
from joulediff.report.views.apis.costs import (
    IDLE,
    PROGRAM,
    choose_scale,
    cost_cells,
    ledger_costs,
    part_names,
    repeat_emphasis,
    share_text,
    spread_text,
    total_account,
)
from joulediff.report.views.columns import Column, TextTable

TOTAL = "total"
_HEADS = {BETWEEN: "between", IDLE: "idle"}


def api_ledger_table(run: ApiRun) -> TextTable | None:
    """Return a row for each domain, and the total under the domains that it sums; None without a domain."""
    if not run.ledger:
        return None
    counted = [name for name, account in run.ledger.items() if account.counted]
    others = [name for name in run.ledger if name not in counted]
    totals = [(TOTAL, total_account(run))] if len(counted) > 1 else []
    rows = [
        *((name, run.ledger[name]) for name in counted),
        *totals,
        *((name, run.ledger[name]) for name in others),
    ]
    emphasis = [repeat_emphasis("", len(counted)), repeat_emphasis("total", len(totals))]
    emphasis += [repeat_emphasis("minor", len(others))]
    columns = [ledger_costs(account) for _, account in rows]
    scale = choose_scale(*(column.whole for column in columns))
    names = [*part_names(columns, scale)]
    names += [] if UNEXPLAINED in names else [UNEXPLAINED]
    cells = [cost_cells(column, scale, names) for column in columns]
    heads = [_HEADS.get(name, name) for name in names]
    numbers = [
        Column("calls", [line[0] for line in cells], is_right=True),
        *(Column(head, [line[at] for line in cells], is_right=True) for at, head in enumerate(heads, start=1)),
        Column(PROGRAM, [line[-1] for line in cells], is_right=True, short_head="program"),
        Column("±", [spread_text(account.metered) for _, account in rows], is_right=True, spare=0),
        Column("closure", [_closure(account) for _, account in rows], is_right=True, spare=1),
    ]
    domain = Column(scale.unit, [name for name, _ in rows])
    source = Column("source", _sources(run, rows), spare=2, wraps=True)
    return TextTable((domain, *numbers, source), tuple(chain.from_iterable(emphasis)))


def _closure(account: ApiAccount) -> str:
    closure = account.closure
    return "?" if closure is None else share_text(round(1000 * closure))


def _sources(run: ApiRun, rows: Sequence[tuple[str, ApiAccount]]) -> list[str]:
    found = []
    for name, account in rows:
        energy: Energy | None = account.metered
        domain = run.domains.get(name) if name != TOTAL else None
        source = domain.source if domain is not None else "?" if energy is None else energy.source
        found.append(source + ("" if account.counted else ", not added"))
    return found
