"""The domains that measure a device."""

from __future__ import annotations

import pytest

from energy_builders import STEP_S, metered
from joulediff.energy.load_energy import LoadMeter, name_domain
from run_builders import domain_energy


@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), ("cuda", "gpu0"), ("cuda:3", "gpu3"), ("xpu:1", "gpu1")])
def test_domains_of_devices(device: str, name: str) -> None:
    assert name_domain(device) == name


def test_which_domains_see_a_device() -> None:
    domains = {
        "gpu0": domain_energy(4.0, STEP_S),
        "cpu": domain_energy(1.0, STEP_S),
        "dram0": domain_energy(1.0, STEP_S, counted=False),
    }
    load_meter = LoadMeter(metered(domains), None, None, lambda _: None)  # type: ignore[arg-type]
    assert load_meter.domains("cpu") == ["cpu", "dram0"]
    assert load_meter.domains("cuda:0") == ["gpu0"]
    assert load_meter.domains("cuda:1") == []
    assert load_meter.is_counted("cpu") and not load_meter.is_counted("cuda:1")
    assert LoadMeter(None, None, None, lambda _: None).domains("cpu") == []  # type: ignore[arg-type]
