"""Records as JSON: complete, and named by a schema that later versions keep readable."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from joulediff.model.energy import Energy
from joulediff.model.measurement import Checkup, Condition, DomainEnergy, IdlePower, Measurement, MeterReport

MEASURE_SCHEMA = "joulediff.measure/1"
DOCTOR_SCHEMA = "joulediff.doctor/1"
# C1 controls, marks that turn the direction of text, and lone surrogates; json escapes the rest itself.
_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(record: Measurement | Checkup) -> str:
    """Return a record as JSON text. A number that is not finite is null: unknown, never zero."""
    return dump(measure_record(record) if isinstance(record, Measurement) else doctor_record(record))


def dump(plain: Mapping[str, Any]) -> str:
    """Return plain values as JSON text that can be written anywhere.

    Names come from other people's programs: what a terminal could take for a command, or is no Unicode, is escaped.
    """
    text = json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def measure_record(found: Measurement) -> dict[str, Any]:
    """Return the fields of `joulediff.measure/1`."""
    return {
        "schema": MEASURE_SCHEMA,
        "label": found.label,
        "step_s": found.step_s,
        "repeats": found.repeats,
        "steps": found.steps,
        "energy": energy_record(found.energy),
        "net_energy": energy_record(found.net_energy),
        "domains": {name: _domain(domain) for name, domain in found.domains.items()},
        "idle_w": {name: d.idle.power_w for name, d in found.domains.items() if d.idle is not None},
        "trustworthy": found.trustworthy,
        "warnings": list(found.warnings),
        "conditions": [_condition(c) for c in found.conditions],
        "devices": [asdict(state) for state in found.states],
        "sampling_share": found.sampling_share,
        "clocks_mhz": dict(found.clocks_mhz),
        "cpu_s": found.cpu_s,
        "profiles": {name: list(watts) for name, watts in found.profiles.items()},
    }


def doctor_record(found: Checkup) -> dict[str, Any]:
    """Return the fields of `joulediff.doctor/1`."""
    return {
        "schema": DOCTOR_SCHEMA,
        "meters": [_meter(report) for report in found.meters],
        "quiet": found.quiet.quiet,
        "idle_w": {name: idle.power_w for name, idle in found.quiet.idle.items()},
        "idle": {name: _idle(idle) for name, idle in found.quiet.idle.items()},
        "waited_s": found.quiet.waited_s,
        "conditions": [_condition(c) for c in found.quiet.conditions],
        "devices": [asdict(state) for state in found.quiet.states],
        "advice": list(found.advice),
        "verdict": found.verdict,
    }


def energy_record(energy: Energy | None) -> dict[str, Any] | None:
    """Return the fields of an energy; None where it is not known."""
    return None if energy is None else asdict(energy)


def _domain(domain: DomainEnergy) -> dict[str, Any]:
    return {
        "energy": energy_record(domain.energy),
        "net_energy": energy_record(domain.net_energy),
        "power_w": domain.power_w,
        "idle": None if domain.idle is None else _idle(domain.idle),
        "kind": domain.kind,
        "device": domain.device,
        "in_total": domain.counted,
        "rested": domain.rested,
        "note": domain.note,
    }


def _idle(idle: IdlePower) -> dict[str, float]:
    return {
        "power_w": idle.power_w,
        "low_w": idle.low_w,
        "high_w": idle.high_w,
        "spread_share": idle.spread_share,
        "window_s": idle.window_s,
    }


def _condition(condition: Condition) -> dict[str, Any]:
    return {"name": condition.name, "domain": condition.domain, "ok": condition.ok, "value": condition.value}


def _meter(report: MeterReport) -> dict[str, Any]:
    learned = {each.key: each for each in report.learned}
    return {
        "name": report.name,
        "available": report.available,
        "domains": [
            {
                "name": d.name,
                "kind": d.kind,
                "period_s": d.period_s,
                "resolution_j": d.resolution_j,
                "source": d.source,
                "device": d.device,
                "found_by_measuring": d.key in learned and d.source == "metered",
                "call_s": learned[d.key].call_s if d.key in learned else None,
                "overhead_share": learned[d.key].overhead_share if d.key in learned else None,
                "note": d.note,
            }
            for d in report.domains
        ],
        "reason": report.reason,
        "fix": report.fix,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
