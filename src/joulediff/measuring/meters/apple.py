"""Apple silicon through the energy counters of IOReport, read by `zeus_apple_silicon`.

The counters are the output of Apple's own power model, not of a sensor, so every domain here is
`estimated`. A chip does not have all of them: what it lacks at opening is left out, never zero.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import Domain, Reading

POLL_S = 0.02
# Nominal: the library's README calls windows under 10 ms dominated by the counters' unit of 1 mJ.
PERIOD_S = 0.01
RESOLUTION_J = 1e-3
REPEAT_SHARE = 0.02
WINDOW_S = 0.2
SETTLE_S = 0.1
NOTE = "Apple's own power model (IOReport), not a sensor"

# The first field decides whether a domain exists; the others are added where the chip has them.
_FIELDS = {
    "cpu": ("cpu_total_mj",),
    "gpu0": ("gpu_mj", "gpu_sram_mj"),
    "dram": ("dram_mj",),
    "ane": ("ane_mj",),
}
_DEVICES = {"cpu": "Apple CPU", "gpu0": "Apple GPU", "dram": "Apple DRAM", "ane": "Apple Neural Engine"}
# What the library raises: its C++ errors arrive as RuntimeError and ValueError.
_LIBRARY_ERRORS = (OSError, RuntimeError, ValueError)


class AppleMeter(Meter):
    """The CPU, the GPU, the memory and the Neural Engine of one chip."""

    name = "apple"
    poll_s = POLL_S

    def __init__(self, monitor: Any, fields: Mapping[str, tuple[str, ...]], *, clock: Clock) -> None:
        self.domains = tuple(_domain(name) for name in fields)
        self._monitor = monitor
        self._fields = fields
        self._clock = clock

    def poll(self) -> list[Reading]:
        start_s = self._clock.now()
        try:
            energy = self._monitor.get_cumulative_energy()
        except _LIBRARY_ERRORS as error:
            raise MeterFailed(f"IOReport stopped answering ({error})", fix="measure again") from error
        now_s = self._clock.now()
        return [
            Reading(name, "counter", now_s, _sum_mj(energy, name, fields) * 1e-3, now_s - start_s)
            for name, fields in self._fields.items()
        ]


def open_apple(*, monitor: Any = None, clock: Clock | None = None) -> AppleMeter:
    """Return a meter of this Mac's chip."""
    try:
        if monitor is None:
            monitor = _load_monitor()
        energy = monitor.get_cumulative_energy()
    except _LIBRARY_ERRORS as error:
        raise MeterUnavailable(f"IOReport does not answer on this Mac ({error})") from error
    fields = {name: _present(energy, wanted) for name, wanted in _FIELDS.items()}
    fields = {name: present for name, present in fields.items() if present}
    if not fields:
        raise MeterUnavailable(
            "IOReport shows no energy of this chip", fix="a newer zeus-apple-silicon may know the chip"
        )
    return AppleMeter(monitor, fields, clock=clock or RealClock())


def _load_monitor() -> Any:
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        raise MeterUnavailable(
            f"this is not Apple silicon but {platform.system()} on {platform.machine()}",
            fix="on a Mac with an M chip, use a Python built for arm64" if platform.system() == "Darwin" else None,
        )
    try:
        from zeus_apple_silicon import AppleEnergyMonitor
    except ImportError as error:
        raise MeterUnavailable(
            f"the library zeus_apple_silicon cannot be imported ({error})", fix="pip install 'joulediff[apple]'"
        ) from error
    return AppleEnergyMonitor()


def _present(energy: Any, wanted: tuple[str, ...]) -> tuple[str, ...]:
    present = tuple(field for field in wanted if getattr(energy, field, None) is not None)
    return present if wanted[0] in present else ()


def _sum_mj(energy: Any, name: str, fields: tuple[str, ...]) -> int:
    total_mj = 0
    for field in fields:
        value_mj = getattr(energy, field, None)
        if value_mj is None:
            raise MeterFailed(f"{name}: IOReport shows {field} no more", fix="measure again")
        total_mj += int(value_mj)
    return total_mj


def _domain(name: str) -> Domain:
    return Domain(
        name=name,
        kind="counter",
        device=_DEVICES[name],
        key=f"apple/{platform.node()}/{name}",
        period_s=PERIOD_S,
        resolution_j=RESOLUTION_J,
        repeat_share=REPEAT_SHARE,
        window_s=WINDOW_S,
        settle_s=SETTLE_S,
        source="estimated",
        note=NOTE,
    )
