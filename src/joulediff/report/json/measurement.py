"""Measurements (`joulediff.measure/1`), blocks (`joulediff.block/1`) and checkups (`joulediff.doctor/1`) as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from joulediff.model.energy import Energy, ManySteps, Scale, Source
from joulediff.model.measurement import (
    BlockMeasurement,
    Checkup,
    Condition,
    DeviceState,
    DomainEnergy,
    IdlePower,
    Kind,
    Measurement,
    MeterReport,
    scale_measurement,
)
from joulediff.report.json import copy_fields, dump

MEASURE_SCHEMA = "joulediff.measure/1"
BLOCK_SCHEMA = "joulediff.block/1"
DOCTOR_SCHEMA = "joulediff.doctor/1"


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """The energy of a step in one domain."""

    energy: Energy
    net_energy: Energy | None
    power_w: float
    idle: IdlePower | None
    kind: Kind
    device: str
    counted: bool = field(metadata={"name": "in_total"})
    rested: bool
    note: str | None


@dataclass(frozen=True, slots=True)
class ConditionRecord:
    """A condition that was checked."""

    name: str
    domain: str | None
    ok: bool
    value: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The cost of a step; every field is null if it was not measured."""

    energy: Energy | None = None
    net_energy: Energy | None = None
    step_s: float | None = None
    repeats: int | None = None
    steps: int | None = None
    domains: Mapping[str, DomainRecord] | None = None
    idle_w: Mapping[str, float] | None = None
    clocks_mhz: Mapping[str, float] | None = None
    cpu_s: float | None = None
    minor_faults: float | None = None
    major_faults: float | None = None
    profiles: Mapping[str, tuple[float, ...]] | None = None
    many_steps: ManySteps | None = None
    """Also null if it was not asked for."""


@dataclass(frozen=True, slots=True)
class ConditionsRecord:
    """The conditions of a measurement; every field is null if nothing was measured."""

    trustworthy: bool | None = None
    warnings: tuple[str, ...] | None = None
    conditions: tuple[ConditionRecord, ...] | None = None
    states: tuple[DeviceState, ...] | None = field(default=None, metadata={"name": "devices"})
    sampling_share: float | None = None


@dataclass(frozen=True, slots=True)
class MeasureRecord:
    """The fields of `joulediff.measure/1`."""

    schema: str
    label: str
    step: StepRecord = field(metadata={"inline": True})
    conditions: ConditionsRecord = field(metadata={"inline": True})


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """The fields of `joulediff.block/1`."""

    schema: str
    name: str
    calls: int
    seconds: float
    shortest_s: float
    longest_s: float
    energy: Energy | None
    domains: Mapping[str, DomainRecord]
    cpu_s: float
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeterDomainRecord:
    """A domain of a meter; `call_s` and `overhead_share` are null if the sensor was not probed."""

    name: str
    kind: Kind
    period_s: float
    resolution_j: float
    source: Source
    device: str
    found_by_measuring: bool
    call_s: float | None
    overhead_share: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class MeterRecord:
    """A meter; without domains, `reason` and `fix` say why and what to do."""

    name: str
    available: bool
    domains: tuple[MeterDomainRecord, ...]
    reason: str | None
    fix: str | None


@dataclass(frozen=True, slots=True)
class DoctorRecord:
    """The fields of `joulediff.doctor/1`."""

    schema: str
    meters: tuple[MeterRecord, ...]
    quiet: bool
    idle_w: Mapping[str, float]
    idle: Mapping[str, IdlePower]
    waited_s: float
    conditions: tuple[ConditionRecord, ...]
    states: tuple[DeviceState, ...] = field(metadata={"name": "devices"})
    advice: tuple[str, ...]
    verdict: str


def to_json(record: Measurement | BlockMeasurement | Checkup, *, scale: Scale | None = None) -> str:
    """Return a measurement or a checkup as JSON text. `scale` asks for the cost of many steps of a measurement too."""
    if isinstance(record, BlockMeasurement):
        domains = {name: _domain(domain) for name, domain in record.domains.items()}
        return dump(copy_fields(BlockRecord, record, schema=BLOCK_SCHEMA, domains=domains))
    return dump(_measure_record(record, scale) if isinstance(record, Measurement) else _doctor_record(record))


def step_record(found: Measurement, scale: Scale | None) -> StepRecord:
    """Return the cost of the measured step, and of many with a scale."""
    domains = {name: _domain(domain) for name, domain in found.domains.items()}
    idle_w = {name: d.idle.power_w for name, d in found.domains.items() if d.idle is not None}
    many_steps = None if scale is None else scale_measurement(found, scale)
    return copy_fields(StepRecord, found, domains=domains, idle_w=idle_w, many_steps=many_steps)


def conditions_record(found: Measurement) -> ConditionsRecord:
    """Return the conditions of a measurement."""
    return copy_fields(ConditionsRecord, found, conditions=_conditions(found.conditions))


def _measure_record(found: Measurement, scale: Scale | None) -> MeasureRecord:
    return MeasureRecord(MEASURE_SCHEMA, found.label, step_record(found, scale), conditions_record(found))


def _doctor_record(found: Checkup) -> DoctorRecord:
    return copy_fields(
        DoctorRecord,
        found.quiet,
        schema=DOCTOR_SCHEMA,
        meters=tuple(_meter(report) for report in found.meters),
        idle_w={name: idle.power_w for name, idle in found.quiet.idle.items()},
        conditions=_conditions(found.quiet.conditions),
        advice=found.advice,
        verdict=found.verdict,
    )


def _domain(domain: DomainEnergy) -> DomainRecord:
    return copy_fields(DomainRecord, domain)


def _conditions(conditions: tuple[Condition, ...]) -> tuple[ConditionRecord, ...]:
    return tuple(copy_fields(ConditionRecord, each) for each in conditions)


def _meter(report: MeterReport) -> MeterRecord:
    learned = {each.key: each for each in report.learned}
    domains = []
    for domain in report.domains:
        known = learned.get(domain.key)
        domains.append(
            copy_fields(
                MeterDomainRecord,
                domain,
                found_by_measuring=known is not None and domain.source == "metered",
                call_s=None if known is None else known.call_s,
                overhead_share=None if known is None else known.overhead_share,
            )
        )
    return copy_fields(MeterRecord, report, domains=tuple(domains))
