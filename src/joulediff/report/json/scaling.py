"""A step at several sizes as JSON (`joulediff.scale/1`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from joulediff.model.apis.scaling import Growth, Order, Quantity, Scaling, SeriesEnd, SizePoint
from joulediff.model.energy import Amount, Energy
from joulediff.report.json import copy_fields, dump
from joulediff.report.json.measurement import ConditionsRecord, StepRecord, conditions_record, step_record


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """The measurement at one size."""

    size: int
    energy_per_unit: Energy | None
    step: StepRecord = field(metadata={"inline": True})
    conditions: ConditionsRecord = field(metadata={"inline": True})


@dataclass(frozen=True, slots=True)
class GrowthRecord:
    """How one quantity grows: `constant + factor * size ** exponent`."""

    quantity: Quantity
    domain: str | None
    orders: tuple[Order, ...]
    exponent: Amount | None
    constant: Amount | None
    factor: float | None
    misfit_share: float | None
    equal_at: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ScaleRecord:
    """The fields of `joulediff.scale/1`."""

    schema: str
    label: str
    created: str
    tool: str
    points: tuple[SizeRecord, ...]
    again: SizeRecord | None
    growths: tuple[GrowthRecord, ...]
    ended: SeriesEnd | None
    trustworthy: bool
    warnings: tuple[str, ...]


def scaling_to_json(found: Scaling) -> str:
    """Return a series of sizes as JSON text."""
    return dump(
        copy_fields(
            ScaleRecord,
            found,
            points=tuple(map(_size, found.points)),
            again=None if found.again is None else _size(found.again),
            growths=tuple(map(_growth, found.growths)),
        )
    )


def _size(point: SizePoint) -> SizeRecord:
    measured = point.measured
    return SizeRecord(point.size, point.energy_per_unit, step_record(measured, None), conditions_record(measured))


def _growth(growth: Growth) -> GrowthRecord:
    law = growth.law
    return copy_fields(
        GrowthRecord,
        growth,
        exponent=None if law is None else law.exponent,
        constant=None if law is None else law.constant,
        factor=None if law is None else law.factor,
        misfit_share=None if law is None else law.misfit_share,
        equal_at=None if law is None else law.equal_at,
    )
