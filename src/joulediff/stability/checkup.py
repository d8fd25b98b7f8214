"""Which meters are here, how good they are, and is the machine quiet: what `doctor` tells.

Every figure is found by watching the sensor for a second, and kept for the next measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.errors import MeterUnavailable
from joulediff.meters import FILE_METERS, METER_NAMES, MeterSet, open_meters
from joulediff.meters.memory import Memory
from joulediff.meters.meter import Clock, RealClock
from joulediff.meters.probe import PROBE_S, probe
from joulediff.meters.sampler import Sampler
from joulediff.records import Checkup, Condition, Domain, Learned, MeterReport, Quiet
from joulediff.stability.idle import wait_until_quiet
from joulediff.stability.watch import Watch

# A checkup reports what is; it does not wait long for better times.
WAIT_S = 3.0


def check_machine(
    *,
    meter: str = "auto",
    wait_s: float = WAIT_S,
    cpu_watts: float | None = None,
    clock_offset_s: float = 0.0,
    memory: Memory | None = None,
    clock: Clock | None = None,
    watch: Watch | None = None,
) -> Checkup:
    """Return every meter with what it can do here, the machine's quietness, and one verdict."""
    clock, watch, memory = clock or RealClock(), watch or Watch(), memory or Memory()
    reports = []
    names = METER_NAMES if meter == "auto" else tuple(filter(None, (part.strip() for part in meter.split(","))))
    for index, name in enumerate(names):
        watch.stage(f"watching {name}", index / (len(names) + 1))
        reports.append(_examine(name, clock, cpu_watts, clock_offset_s))
    learned = [each for report in reports for each in report.learned]
    memory.keep(learned)
    watch.stage("looking for a quiet second", len(names) / (len(names) + 1))
    try:
        with open_meters(
            meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, memory=memory
        ) as opened:
            quiet = _rest(opened, clock, wait_s, watch)
    except MeterUnavailable as error:
        quiet = Quiet(False, (Condition("meters", False, error.what, advice=error.what),), {})
        there = any(report.available for report in reports)
        verdict = "not all that was asked for can be measured here" if there else "nothing here can be measured"
        return Checkup(tuple(reports), quiet, verdict, 1, quiet.advice)
    return _judge(reports, quiet, memory)


def _examine(spec: str, clock: Clock, cpu_watts: float | None, clock_offset_s: float) -> MeterReport:
    name, _, argument = spec.partition(":")
    if name in FILE_METERS and not argument:
        return MeterReport(name, False, reason="reads a file", fix=f"joulediff measure FILE.py --meter {name}:FILE")
    try:
        with open_meters(spec, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s) as opened:
            meter = opened.meters[0]
            learned = probe(meter, clock=clock, seconds=PROBE_S)
            return MeterReport(name, True, _as_found(meter.domains, learned), tuple(learned))
    except MeterUnavailable as error:
        return MeterReport(name, False, reason=error.what, fix=error.fix)


def _as_found(domains: Sequence[Domain], learned: Sequence[Learned]) -> tuple[Domain, ...]:
    found = {each.key: each for each in learned}
    return tuple(
        replace(d, period_s=found[d.key].period_s, resolution_j=found[d.key].resolution_j)
        if d.key in found and d.source == "metered"
        else d
        for d in domains
    )


def _rest(opened: MeterSet, clock: Clock, wait_s: float, watch: Watch) -> Quiet:
    with Sampler(opened.meters, clock=clock) as sampler:
        return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, watch=watch)


def _judge(reports: Sequence[MeterReport], quiet: Quiet, memory: Memory) -> Checkup:
    metered = [d.name for r in reports for d in r.domains if d.source == "metered"]
    estimated = [d.name for r in reports for d in r.domains if d.source == "estimated" and d.name not in metered]
    advice = [*quiet.advice, *([memory.problem] if memory.problem else [])]
    metered, estimated = list(dict.fromkeys(metered)), list(dict.fromkeys(estimated))
    if not metered and not estimated:
        return Checkup(tuple(reports), quiet, "nothing here can be measured", 1, tuple(advice))
    can = f"measures {', '.join(metered)}" if metered else "has no energy sensor"
    also = f" ({', '.join(estimated)} {'is' if len(estimated) == 1 else 'are'} estimated)" if estimated else ""
    rest = "and is quiet" if quiet.quiet else "but is not quiet" if metered else "and is not quiet"
    code = 0 if metered and quiet.quiet else 2
    return Checkup(tuple(reports), quiet, f"this machine {can}{also} {rest}", code, tuple(advice))
