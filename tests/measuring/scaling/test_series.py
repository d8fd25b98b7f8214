"""A series of sizes on a fake device that knows its exact energy, and every way for it to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fakes import GPU, DeviceMeter, FakeDevice, FakeWork, counter_domain
from joulediff.measuring.host_use import CpuUse
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.scaling.series import Series, scale
from joulediff.model.apis.scaling import Scaling
from joulediff.model.errors import JoulediffError, MeterFailed, WrongType
from joulediff.model.progress import ProgressListener
from run_builders import energy, measurement

CPU = counter_domain(1e-3, unit_j=1e-6, name="cpu", key="scripted/cpu", device="a scripted CPU")


@pytest.fixture(autouse=True)
def _still_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.measuring.idle.read_cpu_use", lambda: CpuUse(0.0, 0.0, 0.0))


def run(step_s: Callable[[int], float], sizes: Any, *, domains: tuple[Any, ...] = (GPU,), **options: Any) -> Scaling:
    """Measure steps that take `step_s` of a size at 500 W, on a device that idles at 100 W."""
    clock = FakeClock()
    device = FakeDevice(clock, idle_w=100.0)
    meters = MeterSet([DeviceMeter(device, domains)])
    return scale(lambda size: FakeWork(device, step_s(size), 500.0), sizes, meter=meters, clock=clock, **options)


def test_linear_and_quadratic_steps() -> None:
    linear = run(lambda n: 1e-6 * n, "1e3..1e5/5")
    assert linear.growth("energy").orders == ("n",)  # type: ignore[union-attr]
    assert linear.growth("time").orders == ("n",)  # type: ignore[union-attr]
    assert linear.growth("net energy").orders == ("n",)  # type: ignore[union-attr]
    assert linear.growth("power").orders == ("1",)  # type: ignore[union-attr]
    assert [each.size for each in linear.points] == [1000, 3162, 10000, 31623, 100000]
    assert linear.points[-1].measured.energy.joules == pytest.approx(50.0, rel=0.01)
    assert linear.points[-1].energy_per_unit.joules == pytest.approx(500e-6, rel=0.01)  # type: ignore[union-attr]
    assert linear.again is not None
    assert linear.again.size == 1000
    assert linear.warnings == ()
    assert linear.trustworthy
    square = run(lambda n: 1e-3 + 1e-6 * n**2, [10, 30, 100, 300, 1000])
    assert square.growth("energy").orders == ("n^2",)  # type: ignore[union-attr]
    assert repr(square) == f"<Scaling {square.label}: 5 sizes, energy grows as n^2>"


def test_domains_are_fitted_apart() -> None:
    found = run(lambda n: 1e-6 * n, "1e3..1e5/4", domains=(GPU, CPU))
    assert {each.domain for each in found.growths} == {None, "gpu0", "cpu"}
    for name in ("gpu0", "cpu"):
        assert found.growth("energy", name).orders == ("n",)  # type: ignore[union-attr]
        assert found.growth("power", name).orders == ("1",)  # type: ignore[union-attr]


def test_two_sizes_have_no_order_and_one_is_not_repeated() -> None:
    two = run(lambda n: 1e-6 * n, [1000, 2000])
    assert two.growth("energy").orders == ()  # type: ignore[union-attr]
    assert two.again is not None
    one = run(lambda n: 1e-6 * n, [1000])
    assert one.again is None
    assert len(one.points) == 1


def test_drift_is_a_warning() -> None:
    calls: dict[int, int] = {}

    def step_s(size: int) -> float:
        calls[size] = calls.get(size, 0) + 1
        return 1e-6 * size * (1 if calls[size] == 1 else 1.5)

    found = run(step_s, "1e3..1e5/4")
    (warning,) = found.warnings
    assert "the size 1,000 took " in warning
    assert not found.trustworthy


def collect(fails_at: int, error: BaseException, *, sizes: tuple[int, ...] = (10, 20, 30, 40)) -> Series:
    """Run a series with invented measurements, one of whose builds raises."""

    def build(size: int) -> Callable[[], object]:
        if size == fails_at:
            raise error
        return lambda: size

    from joulediff.pysource.programs import sized_builder

    series = Series(sized_builder(build, "build() in p.py"), label="p")
    series.run(sizes, lambda step, idle, listener: measurement(1e-3, energy=energy(float(step()))))  # type: ignore[arg-type]
    return series


def test_an_exception_at_a_size_keeps_the_sizes_before() -> None:
    found = collect(30, ValueError("too large")).result()
    assert [each.size for each in found.points] == [10, 20]
    assert found.ended is not None
    assert (found.ended.size, found.ended.out_of_memory) == (30, False)
    assert found.ended.why.startswith("build() in p.py raised ValueError: too large (test_series.py:")
    assert found.again is None
    assert not found.trustworthy


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")])
def test_no_memory_ends_the_series(error: Exception) -> None:
    found = collect(40, error).result()
    assert found.ended is not None
    assert found.ended.out_of_memory
    assert len(found.points) == 3


def test_an_exception_at_the_first_size_passes_through() -> None:
    error = ValueError("never")

    def build(size: int) -> Callable[[], object]:
        raise error

    with pytest.raises(ValueError, match="never") as caught:
        scale(build, [10, 20], meter=MeterSet([DeviceMeter(FakeDevice(FakeClock()), (GPU,))]))
    assert caught.value is error


def test_an_exception_of_the_step_names_the_size() -> None:
    clock = FakeClock()
    device = FakeDevice(clock)
    meters = MeterSet([DeviceMeter(device, (GPU,))])

    def build(size: int) -> FakeWork:
        return FakeWork(device, 1e-6 * size, fails_at=20 if size == 3000 else None)

    found = scale(build, [1000, 2000, 3000, 4000], meter=meters, clock=clock)
    assert found.ended is not None
    assert found.ended.why.startswith("the step of size 3,000 raised ValueError: no more")
    assert len(found.points) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MeterFailed("the meter was unplugged")])
def test_a_stop_or_a_dead_meter_passes_through_and_the_sizes_are_kept(error: BaseException) -> None:
    def measure_step(step: Any, idle: Any, listener: ProgressListener) -> Any:
        if step() == 30:
            raise error
        return measurement(1e-3, energy=energy(float(step())))

    series = Series(lambda size: lambda: size, label="p")
    written: list[int] = []
    with pytest.raises(type(error)):
        series.run((10, 20, 30), measure_step, after_size=lambda: written.append(len(series.result().points)))
    found = series.result()
    assert written == [1, 2]
    assert [each.size for each in found.points] == [10, 20]
    assert found.ended is not None
    assert found.ended.size == 30
    assert not found.trustworthy


def test_only_the_first_size_waits_for_a_quiet_machine() -> None:
    seen = []

    def measure_step(step: Any, is_first: bool, listener: ProgressListener) -> Any:
        seen.append((step(), is_first))
        return measurement(1e-3, energy=energy(float(step())))

    Series(lambda size: lambda: size, label="p").run((10, 20), measure_step)
    assert seen == [(10, True), (20, False), (10, False)]


def test_stages_name_the_size() -> None:
    stages: list[str] = []

    class Listener(ProgressListener):
        def stage(self, text: str, share: float | None = None) -> None:
            stages.append(text)

    run(lambda n: 1e-6 * n, [1000, 2000], listener=Listener())
    assert "size 1,000 (1 of 2): measuring" in stages
    assert "size 2,000 (2 of 2): building the program" in stages
    assert "size 1,000 again: measuring" in stages


@pytest.mark.parametrize("build", [3, lambda: None, lambda a, b: None])
def test_a_builder_that_takes_no_size_is_refused(build: Any) -> None:
    with pytest.raises(JoulediffError):
        scale(build, [10, 20])
    with pytest.raises(WrongType):
        scale("f.py", [10])  # type: ignore[arg-type]
