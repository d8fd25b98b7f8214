"""Tracks the settings that a step changes for a part of itself, such as `with sdpa_kernel(MATH)`, by operator.

A few flags are read at every operator, directly from PyTorch's C++: 1 µs each time. All settings are read only for a
combination of flags that is new, so names and values are those of `Run.settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from joulediff.frameworks.torch.switches.read import put_torch
from joulediff.frameworks.torch.switches.table import SWITCHES, THREADS
from joulediff.model.run import Setting, SettingSpan

_TRACKED = tuple(switch for switch in SWITCHES if switch.is_tracked)
TRACKED = tuple(switch.name for switch in _TRACKED)
# A manifest has room for 1 MiB, and a span takes at most 600 bytes of it.
MAX_SPANS = 1000

Reading = Mapping[str, Setting]


class Flags:
    """Records the flags at each operator."""

    def __init__(self) -> None:
        import torch

        self._reads = _find_reads()
        self._count_threads = torch.get_num_threads
        self._threads: int = torch.get_num_threads()
        self._now: tuple[object, ...] = ()
        self._known: dict[tuple[object, ...], Reading] = {}
        self._changes: list[tuple[int, Reading]] = []
        self._settings(self._read())  # takes milliseconds: done before the step, it is mostly the only time

    def note(self, op: int, *, main: bool = True) -> None:
        """Record the present flags for an operator; operators come in order.

        The number of threads is a setting of each thread, and only that of the `main` thread counts: autograd's
        thread may have started before the program set it.
        """
        if main:
            self._threads = self._count_threads()
        now = self._read()
        if now != self._now:
            self._now = now
            self._changes.append((op, self._settings(now)))

    def _read(self) -> tuple[object, ...]:
        return (self._threads, *[read() for read in self._reads])

    def _settings(self, now: tuple[object, ...]) -> Reading:
        from torch.utils._python_dispatch import _disable_current_modes

        if now not in self._known:
            found: dict[str, Setting] = {}
            with _disable_current_modes():  # asking for NNPACK runs an operator
                put_torch(found)
            found[THREADS] = self._threads
            self._known[now] = {name: found[name] for name in TRACKED if name in found}
        return self._known[now]

    def finish(self, ops: int) -> tuple[tuple[int, int, Reading], ...]:
        """Return stretches of operators with the same flags, as first, last and flags; `ops` is the number of all."""
        ends: list[tuple[int, Reading]] = [*self._changes, (ops, {})]
        return tuple((first, end - 1, found) for (first, found), (end, _) in pairwise(ends))


def to_spans(
    readings: Sequence[tuple[int, int, Reading]], settings: Mapping[str, Setting]
) -> tuple[tuple[SettingSpan, ...], tuple[str, ...]]:
    """Return the spans in which flags differ from `settings`, and a note if some were left out."""
    tracked = [name for name in TRACKED if name in settings]
    found = [
        SettingSpan(first, last, differing)
        for first, last, flags in readings
        if (differing := _differing(flags, settings, tracked))
    ]
    if len(found) <= MAX_SPANS:
        return tuple(found), ()
    note = f"the step changes settings {len(found)} times: only the first {MAX_SPANS} changes are recorded"
    return tuple(found[:MAX_SPANS]), (note,)


def _differing(flags: Reading, settings: Mapping[str, Setting], tracked: Sequence[str]) -> dict[str, Setting]:
    return {name: flags.get(name) for name in tracked if flags.get(name) != settings[name]}


def _find_reads() -> tuple[Callable[[], Any], ...]:
    import torch

    core = torch._C  # noqa: SLF001
    precision = getattr(core, "_get_fp32_precision_getter", None)
    found: list[Callable[[], Any] | None] = []
    for switch in _TRACKED:
        if switch.key is not None:
            found.append(None if precision is None else partial(precision, *switch.key))
        elif switch.core and (precision is None or not switch.controls):
            # The older switches of precision follow from the new ones, and then reading them may raise.
            found.append(getattr(core, switch.core[0], None))
    return tuple(read for read in found if read is not None)
