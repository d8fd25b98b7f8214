"""Measure a step at several input sizes, from small to large, and the first size again at the end.

Sizes that were measured are kept: a program that fails at a size ends the series there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone

from joulediff.measuring.meters import MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.scaling.fit import Costs, fit_growth
from joulediff.measuring.scaling.sizes import check_sizes, parse_sizes
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.measuring.step import measure
from joulediff.model.apis.scaling import Growth, Quantity, Scaling, SeriesEnd, SizePoint
from joulediff.model.energy import Energy, overlap
from joulediff.model.errors import JoulediffError, is_out_of_memory
from joulediff.model.measurement import Measurement
from joulediff.model.options import ScaleOptions
from joulediff.model.progress import Labelled, ProgressListener
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.model.units import format_energy
from joulediff.pysource.programs import Step, UserCodeFailed, describe, name_of, sized_builder
from joulediff.version import __version__

# The repeats of a measurement end once the energy is known to 1 %; the time has no interval of its own.
_TIME_SIGMA_SHARE = 0.01

MeasureStep = Callable[[Step, bool, ProgressListener], Measurement]
"""Called with the step, whether it is the first one, and a listener."""


class Series:
    """The measurements of a step at several sizes so far."""

    def __init__(self, build: Callable[[int], Step], *, label: str, listener: ProgressListener | None = None) -> None:
        self._build = build
        self._label = label
        self._listener = listener or ProgressListener()
        self._points: list[SizePoint] = []
        self._again: SizePoint | None = None
        self._ended: SeriesEnd | None = None
        self._warnings: list[str] = []

    @property
    def has_points(self) -> bool:
        """Whether any size was measured."""
        return bool(self._points)

    def run(
        self, sizes: Sequence[int], measure_step: MeasureStep, *, after_size: Callable[[], None] = lambda: None
    ) -> None:
        """Measure the sizes. `measure_step` measures a step; `after_size` is called when one more size is measured.

        If the program raises, the series ends; the exception is raised only if no size was measured before.
        """
        for at, size in enumerate(sizes):
            try:
                self._points.append(self._measure(size, f"size {size:,} ({at + 1} of {len(sizes)})", measure_step))
            except UserCodeFailed as failed:
                if not self._points:
                    raise
                self._ended = _end(size, failed)
                return
            except (KeyboardInterrupt, JoulediffError) as error:
                self._ended = SeriesEnd(size, describe(error), out_of_memory=False)
                raise
            after_size()
        if len(self._points) > 1:
            self._repeat_first(measure_step)

    def result(self) -> Scaling:
        """Return what was measured so far, with its growth."""
        drift = _drift(self._points[0], self._again) if self._again is not None else []
        return Scaling(
            label=self._label,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            tool=__version__,
            points=tuple(self._points),
            again=self._again,
            growths=fit_all(self._points if self._again is None else [*self._points, self._again]),
            ended=self._ended,
            warnings=(*self._warnings, *drift),
        )

    def _repeat_first(self, measure_step: MeasureStep) -> None:
        size = self._points[0].size
        try:
            self._again = self._measure(size, f"size {size:,} again", measure_step)
        except UserCodeFailed as failed:
            self._warnings.append(f"drift is not known: the size {size:,} failed when it was repeated: {failed.what}")

    def _measure(self, size: int, label: str, measure_step: MeasureStep) -> SizePoint:
        gc.collect()  # the memory of the size before
        listener = _OneSize(self._listener, label)
        listener.stage("building the program")
        step = self._build(size)
        try:
            return SizePoint(size, measure_step(step, not self._points, listener))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if listener.failure is not error:
                raise
            raise UserCodeFailed(f"the step of size {size:,} raised {describe(error)}") from error


class _OneSize(Labelled):
    """Adds the size to each stage, and keeps the exception of the step."""

    failure: BaseException | None = None

    def failed(self, error: BaseException, call: int) -> None:  # noqa: ARG002
        self.failure = error


def scale(
    build: Callable[[int], Step],
    sizes: str | Sequence[int],
    *,
    is_step: bool = ScaleOptions.is_step,
    label: str | None = None,
    seconds: float = ScaleOptions.seconds,
    meter: str | MeterSet = ScaleOptions.meter,
    precision: float | None = ScaleOptions.precision,
    wait_s: float = ScaleOptions.wait_s,
    cpu_watts: float | None = ScaleOptions.cpu_watts,
    clock_offset_s: float = ScaleOptions.clock_offset_s,
    points: int = ScaleOptions.points,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
) -> Scaling:
    """Measure a step at several input sizes, and return how its energy, time and power grow.

    `build` takes a size and returns the step, or with `is_step` it is the step, called with the size. `sizes` is a
    list, or a text such as `1e3..1e6`, which means `points` sizes in equal ratios. An exception of the program at the
    first size passes through; at a later one it ends the series.
    """
    chosen = parse_sizes(sizes, points=points) if isinstance(sizes, str) else check_sizes(list(sizes))
    series = Series(
        sized_builder(build, "the builder", is_step=is_step), label=label or name_of(build), listener=listener
    )
    with open_series_meters(
        seconds=seconds,
        meter=meter,
        precision=precision,
        wait_s=wait_s,
        cpu_watts=cpu_watts,
        clock_offset_s=clock_offset_s,
        clock=clock,
    ) as measure_step:
        try:
            series.run(chosen, measure_step)
        except UserCodeFailed as failed:
            if failed.__cause__ is None:
                raise
            raise failed.__cause__ from None
    return series.result()


@contextmanager
def open_series_meters(
    *,
    seconds: float = ScaleOptions.seconds,
    meter: str | MeterSet = ScaleOptions.meter,
    precision: float | None = ScaleOptions.precision,
    wait_s: float = ScaleOptions.wait_s,
    cpu_watts: float | None = ScaleOptions.cpu_watts,
    clock_offset_s: float = ScaleOptions.clock_offset_s,
    clock: Clock | None = None,
) -> Iterator[MeasureStep]:
    """Open the meters once for all sizes, and yield the function that measures a step with them."""
    clock = clock or RealClock()
    with ExitStack() as stack:
        if isinstance(meter, MeterSet):
            opened = meter
        else:
            opened = open_meters(
                meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, cache=SensorCache()
            )
            stack.enter_context(opened)

        def measure_step(step: Step, is_first: bool, listener: ProgressListener) -> Measurement:  # noqa: FBT001
            return measure(
                step,
                seconds=seconds,
                meter=opened,
                precision=precision,
                # Each size has an idle window of its own; a long wait for a quiet machine is worth it once.
                wait_s=wait_s if is_first else 0.0,
                clock=clock,
                listener=listener,
            )

        yield measure_step


def fit_all(points: Sequence[SizePoint]) -> tuple[Growth, ...]:
    """Return the growth of the time, and of the energy and the power of the whole step and of each domain."""
    found = [_fit("time", None, ((each.size, each.measured.step_s, _TIME_SIGMA_SHARE) for each in points))]
    for domain in (None, *_domains(points)):
        gross = [(each, energy) for each in points if (energy := _energy_of(each, domain)) is not None]
        net = [(each, energy) for each in points if (energy := _net_energy_of(each, domain)) is not None]
        found.append(_fit_energy("energy", domain, gross))
        if net:
            found.append(_fit_energy("net energy", domain, net))
        found.append(_fit("power", domain, (_power(each, energy) for each, energy in gross)))
    return tuple(found)


def _domains(points: Sequence[SizePoint]) -> list[str]:
    """Return the domains that worked at all sizes; none if the whole step has only one."""
    names = dict.fromkeys(name for each in points for name in each.measured.domains)
    at_work = [n for n in names if all(_energy_of(each, n) is not None for each in points)]
    return at_work if len(at_work) > 1 else []


def _energy_of(point: SizePoint, domain: str | None) -> Energy | None:
    if domain is None:
        return point.measured.energy
    found = point.measured.domains.get(domain)
    return None if found is None or found.rested else found.energy


def _net_energy_of(point: SizePoint, domain: str | None) -> Energy | None:
    if domain is None:
        return point.measured.net_energy
    found = point.measured.domains.get(domain)
    return None if found is None or found.rested else found.net_energy


def _power(point: SizePoint, energy: Energy) -> tuple[int, float, float]:
    return point.size, energy.joules / point.measured.step_s, energy.half_width_share / CONFIDENCE_SIGMAS


def _fit_energy(quantity: Quantity, domain: str | None, found: Iterable[tuple[SizePoint, Energy]]) -> Growth:
    rows = [(point.size, energy.joules, energy.half_j / CONFIDENCE_SIGMAS) for point, energy in found]
    sizes, values, sigmas = zip(*rows, strict=True)
    return fit_growth(quantity, domain, Costs(sizes, values, sigmas))


def _fit(quantity: Quantity, domain: str | None, found: Iterable[tuple[int, float, float]]) -> Growth:
    sizes, values, shares = zip(*found, strict=True)
    sigmas = [share * value for share, value in zip(shares, values, strict=True)]
    return fit_growth(quantity, domain, Costs(sizes, values, sigmas))


def _end(size: int, failed: UserCodeFailed) -> SeriesEnd:
    no_memory = is_out_of_memory(failed.__cause__) or is_out_of_memory(failed)
    return SeriesEnd(size, failed.what, out_of_memory=no_memory)


def _drift(first: SizePoint, again: SizePoint) -> list[str]:
    before, after = first.measured.energy, again.measured.energy
    if overlap(before, after):
        return []
    return [
        f"the size {first.size:,} took {format_energy(before.joules)} a step at the begin of the series and "
        f"{format_energy(after.joules)} at its end: the machine changed meanwhile (clock, temperature, other programs)"
    ]
