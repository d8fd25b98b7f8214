"""A block of a program that is measured once, while the program runs: `with jd.measure("load") as m: ...`.

Its exceptions pass through, and the time until then is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from joulediff.frameworks.sync import open_sync
from joulediff.measuring.blocks.shared_meters import SharedMeters, Tally
from joulediff.model.display import Displayed
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement, DomainEnergy

if TYPE_CHECKING:
    from typing_extensions import Self

    from joulediff.model.energy import Energy


class Block(Displayed):
    """A block of code to measure, used with `with`. Its energy and time can be read after the block.

    Used again, it adds up. `open_meters` is called when the block begins.
    """

    def __init__(self, name: str, open_meters: Callable[[], SharedMeters], *, synchronise: bool = True) -> None:
        self.name = name
        self._open_meters = open_meters
        self._synchronise = synchronise
        self._meters: SharedMeters | None = None
        self._tally = Tally(name)
        self._begin_s = 0.0
        self._result: BlockMeasurement | None = None

    def __enter__(self) -> Self:
        if self._tally.open:
            raise JoulediffError(
                f"the block {self.name!r} is open already", fix="write jd.measure(name) again for the inner block"
            )
        self._meters = self._meters or self._open_meters()
        self._result = None
        if self._synchronise:
            wait_for_devices()
        self._begin_s = self._meters.begin(self._tally)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._meters is not None
        try:
            if self._synchronise and error is None:
                wait_for_devices()
        finally:
            self._meters.end(self._tally, self._begin_s)

    @property
    def result(self) -> BlockMeasurement:
        """Return the measurement of the block; raises JoulediffError before its end."""
        if self._meters is None or self._tally.open:
            state = "has not begun" if self._meters is None else "has not ended"
            raise JoulediffError(
                f"the energy of the block {self.name!r} is not known: it {state}",
                fix=f"read it after the block: with jd.measure({self.name!r}) as m: ...",
            )
        if self._result is None:
            self._result = self._meters.result(self._tally)
        return self._result

    @property
    def energy(self) -> Energy | None:
        """Return the energy in the counted domains; None if no meter gave a number."""
        return self.result.energy

    @property
    def domains(self) -> Mapping[str, DomainEnergy]:
        """Return the energy of each domain."""
        return self.result.domains

    @property
    def seconds(self) -> float:
        """Return the time that the block took."""
        return self.result.seconds

    @property
    def cpu_s(self) -> float:
        """Return the CPU time of the process meanwhile."""
        return self.result.cpu_s

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the reasons to doubt the energy."""
        return self.result.warnings

    def _to_shown(self) -> BlockMeasurement | None:
        return None if self._meters is None or self._tally.open else self.result

    def __repr__(self) -> str:
        if self._meters is None or self._tally.open:
            return f"<Block {self.name}: {'open' if self._tally.open else 'not begun'}>"
        return repr(self.result)


def wait_for_devices() -> None:
    """Wait until the devices have done the work that the program queued."""
    sync = open_sync()
    if sync is not None:
        sync.mark(None)()
