"""Flags that a step sets for a part of itself, such as `with sdpa_kernel(MATH)`: which held at each operator.

A few flags are read at every operator, as PyTorch's C++ keeps them: 1 µs each time. Only for a combination that was
not met before are settings read in full, so names and values are those of `Run.settings`.
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
# A manifest has room for 1 MiB: each of these takes at most 600 bytes of it.
MAX_SPANS = 1000

Reading = Mapping[str, Setting]


class Flags:
    """Notes which flags hold from operator to operator."""

    def __init__(self) -> None:
        import torch

        self._reads = _find_reads()
        self._count_threads = torch.get_num_threads
        self._threads: int = torch.get_num_threads()
        self._now: tuple[object, ...] = ()
        self._known: dict[tuple[object, ...], Reading] = {}
        self._changes: list[tuple[int, Reading]] = []
        self._settings(self._read())  # takes milliseconds, and is mostly all that is needed: before the step

    def note(self, op: int, *, main: bool = True) -> None:
        """Note the flags that hold now for an operator; operators come in order.

        The number of threads belongs to the thread that asks, and counts for the `main` one alone: autograd's may
        have been started before the program chose it.
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
            with _disable_current_modes():  # to tell whether NNPACK is there is an operator, too
                put_torch(found)
            found[THREADS] = self._threads
            self._known[now] = {name: found[name] for name in TRACKED if name in found}
        return self._known[now]

    def finish(self, ops: int) -> tuple[tuple[int, int, Reading], ...]:
        """Return the first and last of so many operators that ran under the same flags, and these flags."""
        ends: list[tuple[int, Reading]] = [*self._changes, (ops, {})]
        return tuple((first, end - 1, found) for (first, found), (end, _) in pairwise(ends))


def to_spans(
    readings: Sequence[tuple[int, int, Reading]], settings: Mapping[str, Setting]
) -> tuple[tuple[SettingSpan, ...], tuple[str, ...]]:
    """Return where the flags differ from `settings`, and what a reader must know of what was left out."""
    tracked = [name for name in TRACKED if name in settings]
    found = [
        SettingSpan(first, last, differing)
        for first, last, flags in readings
        if (differing := _differing(flags, settings, tracked))
    ]
    if len(found) <= MAX_SPANS:
        return tuple(found), ()
    note = f"the step changes settings {len(found)} times: what held is known for the first {MAX_SPANS} alone"
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
