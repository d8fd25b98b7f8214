"""Builders for tests of commands: sensors, power curves in files, programs, and an idle machine."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulediff.measuring.host_use import CpuUse
from joulediff.measuring.meters.scripted import save_script
from joulediff.model.measurement import Domain, Reading

SAMPLE_S = 0.01


def make_domain(name: str = "cpu", **changes: Any) -> Domain:
    facts: dict[str, Any] = {
        "name": name,
        "kind": "power",
        "device": "Scripted 9000",
        "key": f"scripted/{name}",
        "period_s": SAMPLE_S,
        "resolution_j": 1e-6,
        "repeat_share": 0.001,
        "window_s": 0.1,
    }
    return Domain(**{**facts, **changes})


def steady(power_w: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda time_s: np.full(len(time_s), power_w)


def rising(power_w: float, rise_w: float = 2.0) -> Callable[[np.ndarray], np.ndarray]:
    """Power that is steady enough to be idle, and a little higher every second: work costs more than rest."""
    return lambda time_s: power_w + rise_w * time_s


def noisy(low_w: float, high_w: float, *, seed: int = 5) -> Callable[[np.ndarray], np.ndarray]:
    """Power that changes randomly between two values at every other sample."""
    draw = np.random.default_rng(seed)
    return lambda time_s: draw.uniform(low_w, high_w, len(time_s) // 2 + 1).repeat(2)[: len(time_s)]


def write_script(path: Path, *curves: tuple[Domain, Callable[[np.ndarray], np.ndarray]], seconds: float = 60.0) -> str:
    """Write a script with each domain's power over `seconds` and return its name for `--meter`."""
    time_s = np.arange(0.0, seconds, SAMPLE_S)
    readings = [
        Reading(domain.name, "power", float(at_s), float(power_w))
        for domain, power in curves
        for at_s, power_w in zip(time_s, power(time_s), strict=True)
    ]
    save_script(path, [domain for domain, _ in curves], readings)
    return f"scripted:{path}"


def write_program(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path)


def forget_programs(folder: Path, before: set[str]) -> None:
    """Drop the modules that came from `folder`, so that the next test loads its own programs of that name."""
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


def make_machine_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the real machine's CPU out of the verdict, and look at it only briefly."""
    monkeypatch.setattr("joulediff.measuring.idle.read_cpu_use", lambda: CpuUse(0.0, 0.0, 0.0))
    monkeypatch.setattr("joulediff.measuring.step.CpuWatch", lambda **_: lambda: CpuUse(0.0, 0.0, 0.0))
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.2)
    monkeypatch.setattr("joulediff.measuring.doctor.PROBE_S", 0.2)
