"""What operators of a run cost together: joules of a step and time on the device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from joulediff.energy.device_time import find_work
from joulediff.energy.ledger import Books, open_books
from joulediff.model.energy import Energy
from joulediff.model.run import Run


class Costs:
    """The books of a run, asked operator by operator."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.books: Books = open_books(run)
        self.kernels = run.index.kernels
        self._known = any(any(each) for each in self.books.kernels.values())

    def of(self, ops: Iterable[int]) -> Energy | None:
        """Return the joules of operators, those that are known; None where none is."""
        kernels = [kernel for op in ops for kernel in self.kernels[op]]
        return self.books.total(kernels) if self._known and kernels else None

    def time_s(self, ops: Iterable[int]) -> float | None:
        """Return the seconds that the devices worked on operators; None without a trace."""
        times = self._times
        return None if times is None else sum(times.get(kernel, 0.0) for op in ops for kernel in self.kernels[op])

    def names(self, ops: Iterable[int]) -> tuple[str, ...]:
        """Return what the devices ran for operators, in order and each once: one solver launches 6,000 of a few."""
        return tuple(dict.fromkeys(self.run.kernels[kernel].name for op in ops for kernel in self.kernels[op]))

    @property
    def total(self) -> Energy | None:
        """Return what was metered in a step."""
        return None if self.run.measurement is None else self.run.measurement.energy

    @cached_property
    def _times(self) -> dict[int, float] | None:
        domains = {} if self.run.measurement is None else self.run.measurement.domains
        work = [found for name in domains if (found := find_work(self.run, name)) is not None]
        if not work:
            return None
        return {kernel: time_s for each in work for kernel, time_s in zip(each.kernels, each.times_s, strict=True)}
