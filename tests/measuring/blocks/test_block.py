"""Blocks and calls on a fake device that knows its exact energy: sums, nesting, threads, failures."""

import asyncio
import threading

import pytest

from fakes import GPU, DeviceMeter, FakeDevice, counter_domain
from joulediff.measuring.blocks import shared_meters as shared
from joulediff.measuring.blocks.block import Block
from joulediff.measuring.blocks.calls import Calls, Measured
from joulediff.measuring.blocks.measure import measure
from joulediff.measuring.blocks.shared_meters import LINGER_S, SharedMeters
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import JoulediffError, WrongType

CPU = counter_domain(1e-6, unit_j=1e-6, name="cpu", device="a scripted CPU", key="scripted/cpu")


class Machine:
    """A device at work in fake time, with shared meters."""

    def __init__(self, *domains, **sensor):
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock)
        self.meter = DeviceMeter(self.device, domains or (GPU,), **sensor)
        self.meters = SharedMeters(MeterSet([self.meter]), clock=self.clock, read_cpu_s=lambda: self.clock.now() / 2)
        self.opened = 0

    def open(self):
        self.opened += 1
        return self.meters

    def block(self, name="load"):
        return Block(name, self.open, synchronise=False)

    def work(self, seconds, power_w):
        self.device.set(power_w)
        self.clock.advance(seconds)
        self.device.set(self.device.idle_w)


@pytest.fixture
def machine():
    return Machine()


@pytest.mark.parametrize("domain", [GPU, CPU, counter_domain(0.1), counter_domain(0.001, unit_j=1e-5)])
def test_a_block_has_its_energy_and_time(domain):
    machine = Machine(domain)
    machine.clock.advance(0.5)
    with machine.block() as m:
        machine.work(2.0, 500.0)
    assert m.seconds == pytest.approx(2.0, abs=0.01)
    assert m.energy.low <= 1000.0 <= m.energy.high
    assert m.energy.joules == pytest.approx(1000.0, rel=0.1)
    assert m.domains[domain.name].energy.source == "metered"
    assert m.warnings == ()


def test_a_block_is_not_known_before_its_end(machine):
    m = machine.block()
    with pytest.raises(JoulediffError, match="has not begun") as caught:
        _ = m.energy
    assert "with jd.measure('load') as m" in caught.value.fix
    assert repr(m) == "<Block load: not begun>"
    with m:
        assert repr(m) == "<Block load: open>"
        assert m._repr_html_() is None
        with pytest.raises(JoulediffError, match="has not ended"):
            _ = m.seconds
        machine.work(1.0, 500.0)
    assert repr(m).startswith("<BlockMeasurement load: ")
    assert repr(m).endswith(" in 1.000 s, 1 call>")
    assert m.cpu_s == pytest.approx(0.5, abs=0.05), "half of the time, less that of reading the meters"


def test_an_exception_passes_through_and_the_time_so_far_is_kept(machine):
    error = ValueError("no more")
    m = machine.block()
    with pytest.raises(ValueError, match="no more") as caught, m:
        machine.work(1.0, 500.0)
        raise error
    assert caught.value is error
    assert m.seconds == pytest.approx(1.0, abs=0.01)
    assert m.energy.joules == pytest.approx(500, rel=0.05)


def test_an_inner_block_is_a_part_of_the_outer_one(machine):
    with machine.block("all") as outer:
        machine.work(1.0, 200.0)
        with machine.block("part") as inner:
            machine.work(1.0, 600.0)
    assert outer.energy.joules == pytest.approx(800, rel=0.05)
    assert inner.energy.joules == pytest.approx(600, rel=0.05)


def test_a_block_that_is_used_again_adds_up_and_is_not_opened_twice(machine):
    m = machine.block()
    for _ in range(3):
        with m:
            machine.work(1.0, 400.0)
        machine.clock.advance(0.3)
    assert m.result.calls == 3
    assert m.energy.joules == pytest.approx(1200, rel=0.05)
    with m, pytest.raises(JoulediffError, match="is open already"), m:
        pass


def test_a_block_too_short_for_its_meter_is_marked_and_never_zero():
    machine = Machine(counter_domain(0.1, unit_j=1e-3))
    machine.clock.advance(0.31)
    with machine.block() as m:
        machine.work(0.001, 500.0)
    machine.clock.advance(1.0)
    assert m.energy.low == 0.0
    assert m.energy.joules > 0.0
    assert m.energy.high >= 0.5
    assert len(m.warnings) == 1
    assert "gpu0: a call of 1.00 ms is too short for its meter, which has a new value every 100 ms" in m.warnings[0]


def test_a_meter_that_dies_is_said_and_its_energy_is_not_invented():
    machine = Machine(dies_at_s=0.0)
    with machine.block() as m:
        machine.work(1.0, 500.0)
    assert m.energy is None
    assert any("unplugged" in warning for warning in m.warnings)


def test_meters_are_opened_once_and_rest_while_no_block_is_open(machine):
    assert machine.opened == 0
    with machine.block():
        machine.work(0.5, 300.0)
    beats = machine.clock._beats
    assert beats, "the next block finds the meters running"
    machine.clock.advance(LINGER_S + 0.5)
    assert not beats
    with machine.block() as m:
        machine.work(0.5, 300.0)
    assert m.energy.joules == pytest.approx(150, rel=0.1)


def test_a_result_is_the_same_whenever_it_is_read(machine):
    with machine.block() as early:
        machine.work(1.0, 500.0)
    assert early.energy is not None
    with machine.block() as late:
        machine.work(1.0, 500.0)
    machine.clock.advance(10 * LINGER_S)
    assert late.energy.joules == pytest.approx(early.energy.joules, rel=0.05)


def calls_of(machine, name="f"):
    return Calls(name, machine.open, synchronise=False)


def test_calls_add_up_and_long_outer_blocks_keep_few_readings(machine, monkeypatch):
    monkeypatch.setattr(shared, "MOST_STRETCHES", 50)
    calls = calls_of(machine)
    with machine.block("all") as outer:
        for _ in range(500):
            with calls.one_call():
                machine.work(0.02, 600.0)
            machine.clock.advance(0.02)
        kept = len(machine.meters._sampler.readings(GPU))
    found = calls.result
    assert kept < 500, "the readings of 20 s are 1000"
    assert found.calls == 500
    assert found.seconds == pytest.approx(10.0, rel=0.01)
    assert found.energy.low <= 6000 <= found.energy.high
    assert outer.energy.low <= 7000 <= outer.energy.high
    assert (found.shortest_s, found.longest_s) == (pytest.approx(0.02), pytest.approx(0.02))


def test_recursion_counts_once(machine):
    calls = calls_of(machine)

    def fall(depth):
        with calls.one_call():
            machine.work(0.5, 300.0)
            if depth:
                fall(depth - 1)

    fall(3)
    assert calls.result.calls == 1
    assert calls.result.seconds == pytest.approx(2.0, abs=0.01)


def test_threads_at_once_share_their_time(machine):
    calls, inside, leave = calls_of(machine), threading.Barrier(3), threading.Barrier(3)

    def run():
        with calls.one_call():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    inside.wait()
    machine.work(1.0, 500.0)
    leave.wait()
    for each in threads:
        each.join()
    assert calls.result.calls == 2
    assert calls.result.seconds == pytest.approx(1.0, abs=0.01)
    assert calls.result.energy.joules == pytest.approx(500, rel=0.1)


def decorated(machine, monkeypatch):
    monkeypatch.setattr("joulediff.measuring.blocks.calls.shared_meters", lambda *_: machine.open())
    return Measured()


def test_the_decorator_measures_functions_methods_and_tasks(machine, monkeypatch):
    measured = decorated(machine, monkeypatch)

    @measured
    def plain(x, *, y):
        """Return a sum."""
        machine.work(0.5, 300.0)
        return x + y

    class Model:
        @measured("forward")
        def call(self, x):
            return plain(x, y=1)

    @measured(name="task")
    async def task(x):
        machine.work(0.5, 300.0)
        return x

    assert machine.opened == 0
    assert plain(1, y=2) == 3
    assert plain.__doc__ == "Return a sum."
    assert Model().call(5) == 6
    assert asyncio.run(task(7)) == 7
    assert [(each.name, each.calls) for each in measured.results()] == [("plain", 2), ("forward", 1), ("task", 1)]
    assert plain.measured.result.energy.joules == pytest.approx(300, rel=0.1)
    assert plain.measured.calls == 2
    measured.reset()
    assert measured.results() == ()


def test_a_function_that_raises_is_counted_and_its_exception_unchanged(machine, monkeypatch):
    measured, error = decorated(machine, monkeypatch), KeyError("gone")

    @measured
    def fail():
        machine.work(0.5, 300.0)
        raise error

    with pytest.raises(KeyError) as caught:
        fail()
    assert caught.value is error
    assert fail.measured.result.seconds == pytest.approx(0.5, abs=0.01)


def test_what_cannot_be_decorated_is_said(machine, monkeypatch):
    measured = decorated(machine, monkeypatch)

    def numbers():
        yield 1

    with pytest.raises(WrongType, match="generator function") as caught:
        measured(numbers)
    assert "with jd.measure(name)" in caught.value.fix
    with pytest.raises(WrongType, match="put on a staticmethod"):
        measured(staticmethod(numbers))
    with pytest.raises(TypeError, match="not an object of type type"):
        measured(Machine)


@pytest.mark.parametrize(
    ("work", "said"),
    [(None, "measure cannot take None"), (3, "an int: 3"), ("train.py", "the name of a program: train.py")],
)
def test_what_cannot_be_measured_is_said(work, said):
    with pytest.raises(WrongType) as caught:
        measure(work)
    assert said in caught.value.what
    assert caught.value.fix


def test_a_name_opens_a_block_and_no_meter():
    assert repr(measure("load", meter="no such meter")) == "<Block load: not begun>"
    with pytest.raises(JoulediffError, match="no meter is called"), measure("load", meter="no such meter"):
        pass
