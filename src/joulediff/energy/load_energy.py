"""Weigh a load: the energy of one call of it in every domain that sees its device, at the program's clock.

A card is met at the clock and the temperature that the metered pass saw; the host needs no rests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from joulediff.energy.burst_meter import BurstMeter, Shot
from joulediff.energy.gpu_clock import Card, Facts, Pace
from joulediff.frameworks.recorder import Load
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.windows import PerStep
from joulediff.model.measurement import DeviceState, DomainEnergy, Measurement
from joulediff.model.run import Replay


@dataclass(slots=True)
class LoadMeter:
    """The meters of a machine, set to one measured program. `open_rest` gives a device at rest."""

    measurement: Measurement | None
    bench: BurstMeter
    clock: Clock
    open_rest: Callable[[str], Load | None]
    pace: Pace | None = None
    """The same pace for all, whatever clock that gives; to show what it costs."""
    _cards: dict[str, Card] = field(default_factory=dict)

    def measure_job(self, op: int, device: str, load: Load, window_s: float) -> list[Replay]:
        """Return the energy of one call of a load in each domain, as replays of `op`."""
        if device == "cpu":
            return self._on_host(op, load, window_s)
        return [self._on_card(op, device, load, window_s)]

    def domains(self, device: str) -> list[str]:
        """Return the domains of the measurement that see a device."""
        found = self._measured()
        if device != "cpu":
            return [name_domain(device)] if name_domain(device) in found else []
        return [name for name in found if name.startswith(("cpu", "dram"))]

    def is_counted(self, device: str) -> bool:
        """Return whether the energy of a device is part of the total."""
        return any(self._measured()[name].counted for name in self.domains(device))

    def _on_card(self, op: int, device: str, load: Load, window_s: float) -> Replay:
        card = self._card(device)
        found = card.measure(load, window_s)
        return Replay(
            op,
            card.facts.domain,
            found.energy_j,
            found.energy_j - found.half_j,
            found.energy_j + found.half_j,
            rest_w=found.rest_w,
            call_s=load.call_s,
            calls=found.calls,
            clock_mhz=found.clock_mhz,
            how=load.how,
            inputs=load.inputs,
            copies=load.copies,
            note="; ".join(found.doubts) or None,
        )

    def _on_host(self, op: int, load: Load, window_s: float) -> list[Replay]:
        idle = {name: self._measured()[name].idle for name in self.domains("cpu")}
        rest_w = {name: 0.0 if found is None else found.power_w for name, found in idle.items()}
        shot = self.bench.measure(lambda: load.run(0.0), rest_w, window_s=window_s)
        return [self._in_domain(op, load, shot, name, per) for name, per in shot.domains.items()]

    def _in_domain(self, op: int, load: Load, shot: Shot, name: str, per: PerStep) -> Replay:
        idle = self._measured()[name].idle
        idle_w, doubt_w = (0.0, 0.0) if idle is None else (idle.power_w, (idle.high_w - idle.low_w) / 2)
        half_j = math.hypot(per.half_j, doubt_w * per.step_s)
        ends_j = (per.energy_j, per.energy_j - half_j, per.energy_j + half_j)
        energy_j, low_j, high_j = (joules / load.calls for joules in ends_j)
        return Replay(
            op,
            name,
            energy_j,
            low_j,
            high_j,
            source="estimated" if self._measured()[name].energy.source == "estimated" else "replayed",
            rest_w=idle_w,
            call_s=per.step_s / load.calls,
            cpu_s=shot.cpu_s / load.calls,
            calls=round(shot.bursts * load.calls),
            how=load.how,
            inputs=load.inputs,
            copies=load.copies,
            note="; ".join(shot.doubts) or None,
        )

    def _card(self, device: str) -> Card:
        if device not in self._cards:
            name, found = name_domain(device), self.measurement
            assert found is not None
            state = next((each for each in found.states if each.domain == name), DeviceState(name))
            facts = Facts(
                device,
                name,
                found.clocks_mhz.get(name),
                found.domains[name].power_w,
                state.power_limit_w,
                state.temperature_c,
                state.clock_max_mhz,
            )
            self._cards[device] = Card(
                facts, self.bench, open_rest=lambda: self.open_rest(device), clock=self.clock, pace=self.pace
            )
        return self._cards[device]

    def _measured(self) -> dict[str, DomainEnergy]:
        return {} if self.measurement is None else dict(self.measurement.domains)


def name_domain(device: str) -> str:
    """Return the domain that a device is known by: `gpu0` for `cuda:0`."""
    kind, _, index = device.partition(":")
    return "cpu" if kind == "cpu" else f"gpu{index or 0}"
