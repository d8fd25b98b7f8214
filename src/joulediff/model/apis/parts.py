"""The parts of a program beside its API calls, with the idle power meanwhile: the calls and they sum to the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from joulediff.model.apis.api_run import ApiAccount
from joulediff.model.energy import Energy, add_known, joules_of, remainder, shift

PartName = Literal["code between calls", "other processes", "inserted waits", "unexplained"]
BETWEEN: PartName = "code between calls"
CHILDREN: PartName = "other processes"
MEASURING: PartName = "inserted waits"
UNEXPLAINED: PartName = "unexplained"
PARTS: tuple[PartName, ...] = get_args(PartName)


def gross_parts(account: ApiAccount, calls: Sequence[Energy | None]) -> dict[PartName, Energy | None]:
    """Return the parts beside `calls`, which have the idle power meanwhile.

    Other processes and waits are left out if there were none; the code between calls is None if it is not known.
    """
    between = _between(account, calls)
    others: dict[PartName, Energy | None] = {CHILDREN: account.children, MEASURING: account.measuring}
    return {BETWEEN: between, **{name: energy for name, energy in others.items() if energy is not None}}


def rest_of(whole: Energy | None, parts: Sequence[Energy | None]) -> Energy | None:
    """Return the energy of a program that none of the parts has; None if that of the program is not known."""
    return None if whole is None else remainder(whole, parts)


def _between(account: ApiAccount, calls: Sequence[Energy | None]) -> Energy | None:
    """Return the code between calls with its share of the idle power: what the calls leave of the program's own."""
    if account.calls is None or account.between is None:
        return None
    own_j = joules_of(add_known((account.calls, account.between, account.idle)))
    return shift(account.between, own_j - math.fsum(map(joules_of, calls)) - account.between.joules)
