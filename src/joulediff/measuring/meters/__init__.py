"""Meters read power and energy from devices: one file for each, opened here by name.

`auto` opens every real meter of this machine, and the estimate for the CPU if no meter measures it.
A vendor's library is imported by the meter that needs it, when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.errors import JoulediffError, MeterUnavailable
from joulediff.model.options import MeasureOptions

REAL_METERS = ("nvml", "amdsmi", "apple", "rapl")
FILE_METERS = ("powerlog", "scripted")
METER_NAMES = (*REAL_METERS, "estimated", *FILE_METERS)


@dataclass(slots=True)
class MeterSet:
    """Open meters, and why others could not be opened; used with `with`."""

    meters: list[Meter] = field(default_factory=list)
    missing: dict[str, MeterUnavailable] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def __enter__(self) -> MeterSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for meter in self.meters:
                stack.callback(meter.close)


def open_meters(
    spec: str = MeasureOptions.meter,
    *,
    clock: Clock | None = None,
    cpu_watts: float | None = MeasureOptions.cpu_watts,
    clock_offset_s: float = MeasureOptions.clock_offset_s,
    cache: SensorCache | None = None,
) -> MeterSet:
    """Return the meters that `spec` names: `auto`, or names separated by commas.

    `powerlog:FILE` and `scripted:FILE` read a file. A meter given by name that is not
    available raises; `auto` notes it in `missing` and goes on. `cache` holds measured properties of the sensors.
    """
    openers = _openers(clock or RealClock(), cpu_watts, clock_offset_s)
    opened = _open_auto(openers) if spec == "auto" else _open_named(spec, openers)
    if cache is not None:
        for meter in opened.meters:
            meter.domains = tuple(cache.apply(domain) for domain in meter.domains)
        opened.remarks += filter(None, [cache.problem])
    return opened


def _open_named(spec: str, openers: Mapping[str, Callable[[str], Meter]]) -> MeterSet:
    opened = MeterSet()
    try:
        for part in filter(None, (p.strip() for p in spec.split(","))):
            name, _, argument = part.partition(":")
            if name not in openers:
                raise MeterUnavailable(f"no meter is called {name!r}", fix=f"there are: auto {' '.join(METER_NAMES)}")
            if argument and name not in FILE_METERS:
                raise MeterUnavailable(f"the meter {name} takes no file", fix=f"write --meter {name}")
            opened.meters.append(openers[name](argument))
            opened.meters[-1].name = part
        _refuse_twins(opened.meters)
        if not opened.meters:
            raise MeterUnavailable("no meter was named", fix=f"there are: auto {' '.join(METER_NAMES)}")
    except JoulediffError:
        opened.__exit__(None, None, None)
        raise
    return opened


def _open_auto(openers: Mapping[str, Callable[[str], Meter]]) -> MeterSet:
    opened = MeterSet()
    for name in REAL_METERS:
        try:
            opened.meters.append(openers[name](str(_count_gpus(opened.meters)) if name == "amdsmi" else ""))
            _refuse_twins(opened.meters)
        except MeterUnavailable as error:
            opened.missing[name] = error
            if opened.meters and opened.meters[-1].name == name:
                opened.meters.pop().close()
    if not any(domain.name.startswith("cpu") for meter in opened.meters for domain in meter.domains):
        try:
            opened.meters.append(openers["estimated"](""))
        except JoulediffError:
            opened.__exit__(None, None, None)
            raise
    return opened


def _count_gpus(meters: list[Meter]) -> int:
    return len({d.name for meter in meters for d in meter.domains if d.name.startswith("gpu")})


def _openers(clock: Clock, cpu_watts: float | None, clock_offset_s: float) -> dict[str, Callable[[str], Meter]]:
    def nvml(_: str) -> Meter:
        from joulediff.measuring.meters.nvml import open_nvml

        return open_nvml(clock=clock)

    def amdsmi(first_gpu: str) -> Meter:
        from joulediff.measuring.meters.amdsmi import open_amdsmi

        return open_amdsmi(clock=clock, first_gpu=int(first_gpu) if first_gpu.isdigit() else 0)

    def apple(_: str) -> Meter:
        from joulediff.measuring.meters.apple import open_apple

        return open_apple(clock=clock)

    def rapl(_: str) -> Meter:
        from joulediff.measuring.meters.rapl import open_rapl

        return open_rapl(clock=clock)

    def estimated(_: str) -> Meter:
        from joulediff.measuring.meters.estimated import open_estimated

        return open_estimated(watts=cpu_watts, clock=clock)

    def powerlog(path: str) -> Meter:
        from joulediff.measuring.meters.powerlog import open_powerlog

        return open_powerlog(_file("powerlog", path), offset_s=clock_offset_s, clock=clock)

    def scripted(path: str) -> Meter:
        from joulediff.measuring.meters.scripted import open_scripted

        return open_scripted(_file("scripted", path), clock=clock)

    return {f.__name__: f for f in (nvml, amdsmi, apple, rapl, estimated, powerlog, scripted)}


def _file(name: str, path: str) -> Path:
    if not path:
        raise MeterUnavailable(f"the meter {name} reads a file", fix=f"say which: --meter {name}:FILE")
    return Path(path)


def _refuse_twins(meters: list[Meter]) -> None:
    """Raise if two meters measure one domain: its energy would count twice."""
    seen: dict[str, Meter] = {}
    for meter in meters:
        for domain in meter.domains:
            other = seen.setdefault(domain.name, meter)
            if other is not meter:
                raise MeterUnavailable(
                    f"{other.name} and {meter.name} both measure {domain.name}",
                    fix=f"leave one out: --meter {other.name}",
                )
