"""Settings that are one switch under several names, so that one change shows in all of them.

`torch.backends.cuda.matmul.allow_tf32 = True` also changes `torch.float32_matmul_precision` and two more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from joulediff.frameworks.torch.switches.table import (
    BY_NAME,
    MATMUL_WORD,
    MKLDNN_MATMUL,
    SWITCHES,
    PrecisionKey,
    Switch,
)

_WORST_RANK = 1 + max(switch.rank for switch in SWITCHES if switch.rank is not None)


@cache
def aliases(name: str) -> tuple[str, ...]:
    """Return the settings that may change when this one does because they are the same switch; not itself."""
    own = _sets(BY_NAME[name]) if name in BY_NAME else set()
    found = {*own, *(other.name for other in SWITCHES if name in _sets(other))}
    return tuple(sorted(found, key=_rank))


def group_aliases(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the names in groups of one switch each, the best-known name first, in the order they are given.

    Two names that only a third one joins, such as a precision above both, are in one group only if it is given, too.
    """
    left = dict.fromkeys(names)
    groups = []
    while left:
        group, queue = [], [next(iter(left))]
        while queue:
            name = queue.pop()
            if name in left:
                del left[name]
                group.append(name)
                queue += aliases(name)
        groups.append(tuple(sorted(group, key=_word_first if _does_more(group) else _rank)))
    return groups


def _sets(switch: Switch) -> set[str]:
    """Return the settings that change when a switch does."""
    keys = {*switch.controls, *_below(switch.key)}
    found = {each.name for each in SWITCHES if each.key in keys}
    found |= {each.name for each in SWITCHES if each is not switch and {*each.controls} & {*switch.controls}}
    return found | {f"env.{name}" for name in switch.variables}


def _below(key: PrecisionKey | None) -> set[PrecisionKey]:
    """Return the precisions that follow another one."""
    if key is None or key[1] != "all":
        return set()
    known = {each.key for each in SWITCHES if each.key is not None and each.key != key}
    return {each for each in known if key[0] in ("generic", each[0])}


def _does_more(group: list[str]) -> bool:
    """Return whether more changed than `allow_tf32` alone can change."""
    return MATMUL_WORD in group and MKLDNN_MATMUL in group


def _word_first(name: str) -> tuple[int, str]:
    return (-1, name) if name == MATMUL_WORD else _rank(name)


def _rank(name: str) -> tuple[int, str]:
    rank = BY_NAME[name].rank if name in BY_NAME else None
    return (_WORST_RANK if rank is None else rank), name
