"""The result of a measurement whose program stopped early: whole steps and their energy, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from cli_builders import make_domain, make_machine_rest
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.scripted import FakeClock, ScriptedMeter
from joulediff.measuring.step import measure
from joulediff.model.measurement import Measurement, Reading
from joulediff.model.progress import ProgressListener

STEP_S = 0.02
POWER_W = 50.0


class Keeper(ProgressListener):
    def __init__(self) -> None:
        self.partial: Measurement | None = None

    def kept(self, measurement: Measurement) -> None:
        self.partial = measurement


@pytest.mark.parametrize("last_call", [8, 9, 10, 12, 14, 17])
def test_the_call_that_failed_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch, last_call: int) -> None:
    make_machine_rest(monkeypatch)
    clock, keeper, calls = FakeClock(), Keeper(), iter(range(1, 1000))

    def step() -> None:
        clock.advance(STEP_S)
        if next(calls) == last_call:
            raise ValueError("out of data")

    domain = make_domain()
    readings = [Reading(domain.name, "power", float(at_s), POWER_W) for at_s in np.arange(0.0, 20.0, domain.period_s)]
    meters = MeterSet([ScriptedMeter([domain], readings, clock=clock)])
    with pytest.raises(ValueError, match="out of data"):
        measure(step, meter=meters, seconds=5.0, wait_s=0.0, clock=clock, listener=keeper)
    assert keeper.partial is not None
    assert keeper.partial.energy.joules == pytest.approx(POWER_W * STEP_S, rel=0.01)
    assert keeper.partial.step_s == pytest.approx(STEP_S, rel=0.01)
    assert keeper.partial.energy.half_width_share < 0.05
