"""Holds what counts the steps of a training: the counters of schedulers, and the options that schedulers set.

A step that is repeated thousands of times would leave a schedule at its end, or grow a learning rate without bound.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, MutableMapping
from typing import Any

# Plain values. A learning rate that is a tensor is state of the optimizer.
_PLAIN = (bool, int, float, tuple, list, type(None))


def hold_counters() -> Callable[[], None]:
    """Return a function that puts back the counters of all schedulers, and the options of their optimizers."""
    import torch

    # By class and not by isinstance, which may run code of the object. One that failed to be made lacks attributes.
    schedulers = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.lr_scheduler.LRScheduler)]
    optimizers = {id(each): each for each in (vars(every).get("optimizer") for every in schedulers)}
    tables: list[MutableMapping[str, Any]] = [vars(each) for each in schedulers]
    tables += [group for each in optimizers.values() for group in getattr(each, "param_groups", ())]
    kept = [(table, _plain_entries(table)) for table in tables]

    def put_back() -> None:
        for table, entries in kept:
            table.update(entries)

    return put_back


def _plain_entries(table: MutableMapping[str, Any]) -> dict[str, Any]:
    names = [name for name, each in table.items() if type(each) in _PLAIN and name != "params"]
    return {name: table[name] for name in names}
