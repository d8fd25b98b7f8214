"""A whole replay on a simulated GPU: measured operators, notes, and results after failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import GPU, counter_domain
from joulediff.energy.distinct_ops import find_distances, find_distinct_ops
from joulediff.energy.gpu_clock import CLOCK_SHARE
from joulediff.energy.ledger import open_books
from joulediff.energy.replay import MAX_BATCHES, NEGLIGIBLE_SHARE
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from replay_fakes import (
    ADD,
    FULL_MHZ,
    MM,
    REST_W,
    FakeReplayer,
    ReplaySetup,
    Work,
    holds,
    make_program,
    replay_of,
    with_domains,
)
from run_builders import RunBuilder, domain_energy, measurement

WORKS = {"mm": MM, "add": ADD, "norm": Work(380.0, 20e-6), "gelu": Work(500.0, 10e-6)}
CALLS = ("mm", "add", "norm", "mm", "gelu", "add")
VALUE_BYTES = 8 * 128 * 768 * 4


def replayed(run: Run | None = None, *, setup: ReplaySetup | None = None, **options: Any) -> tuple[Run, FakeReplayer]:
    """Return a program after its replay, and the replayer."""
    run = run or make_program(CALLS, WORKS, gap_s=1e-3)
    going, replayer = (setup or ReplaySetup()).replay(run, WORKS, **options)
    going.go()
    return going.result(), replayer


def program_mhz(run: Run) -> float:
    assert run.measurement is not None
    return run.measurement.clocks_mhz["gpu0"]


def test_every_distinct_operator_is_measured_once() -> None:
    run, replayer = replayed()
    assert len(run.replays) == len(WORKS)
    for name, work in WORKS.items():
        found = replay_of(run, name)
        assert holds(found, work.energy_j())
        assert (found.domain, found.note, found.how, found.inputs) == ("gpu0", None, "graph", "real")
        assert found.clock_mhz == FULL_MHZ
        assert found.rest_w == pytest.approx(REST_W)
        assert found.call_s == work.call_s
        assert replayer.loads[name].aim_s == pytest.approx(work.call_s)
    assert len(replayer.rests) == 1
    assert all(load.closed for load in (*replayer.loads.values(), *replayer.rests))
    assert replayer.closed == 1


def test_the_more_device_time_the_longer_it_is_measured() -> None:
    works = {"long": Work(450.0, 200e-6), "short": Work(450.0, 20e-6)}
    going, _ = ReplaySetup().replay(make_program(["long", "long", "short"], works), works)
    going.go()
    seconds = {name: replay_of(going.result(), name).calls * work.call_s for name, work in works.items()}
    assert seconds["long"] > 1.2 * seconds["short"]


def test_operators_are_opened_with_the_distances_of_the_program() -> None:
    made = RunBuilder()
    first, second = made.value(), made.value()
    for name, inputs, outputs in (("mm", [first], [second]), ("add", [second, first], [made.value()])):
        made.kernel(name, WORKS[name].call_s, op=made.op(name, inputs=inputs, outputs=outputs))
    run = made.build(measurement=make_program(CALLS, WORKS).measurement)
    going, replayer = ReplaySetup().replay(run, WORKS)
    replayer.addresses = [4096, 8192, 4096]
    going.go()
    assert [replayer.asked[op] for op in (0, 1)] == find_distances(run, [[0], [1]], replayer.addresses)
    assert replayer.asked[1].outputs == 0.0


def test_the_watch_hears_of_progress() -> None:
    class Heard(ProgressListener):
        stages: list[tuple[str, float | None]] = []  # noqa: RUF012 - one test, one list

        def stage(self, text: str, share: float | None = None) -> None:
            self.stages.append((text, share))

    replayed(listener=Heard())
    assert Heard.stages[0][0] == "running the step for the inputs of its operators"
    assert Heard.stages[1][0].startswith("0 of 4 operators")
    assert [share for _, share in Heard.stages[1:]] == [0.0, 0.25, 0.5, 0.75]


def test_a_program_at_the_limit() -> None:
    run = make_program(["mm", "mm", "add"], WORKS)
    clock_mhz = program_mhz(run)
    assert clock_mhz < 0.9 * FULL_MHZ
    found, _ = replayed(run)
    heavy, light = replay_of(found, "mm"), replay_of(found, "add")
    assert heavy.clock_mhz is not None
    assert heavy.note is not None or abs(heavy.clock_mhz / clock_mhz - 1) <= CLOCK_SHARE
    assert holds(heavy, MM.energy_j(clock_mhz))
    assert light.note is not None and "the program ran at" in light.note
    assert holds(light, ADD.energy_j(clock_mhz), times=1.05)


def test_a_program_at_the_limit_that_was_traced_there() -> None:
    calls = ["mm", "mm", "add"]
    run = make_program(calls, WORKS, traced_mhz=program_mhz(make_program(calls, WORKS)))
    found, _ = replayed(run)
    assert holds(replay_of(found, "mm"), MM.energy_j(program_mhz(run)))
    assert holds(replay_of(found, "add"), ADD.energy_j(program_mhz(run)), times=1.05)


def test_a_forced_pace_is_marked_where_it_costs_the_clock() -> None:
    run, replayer = replayed(rest_share=0.0)
    assert {rest for load in replayer.loads.values() for rest in load.rests_s} == {0.0}
    assert "the program ran at" in (replay_of(run, "mm").note or "")
    assert replay_of(run, "add").note is None


def test_when_the_time_is_spent_the_longest_operators_were_measured() -> None:
    run, replayer = replayed(make_program(CALLS, WORKS, gap_s=1e-3), seconds=1.0)
    measured = [replay.op for replay in run.replays if replay.energy_j is not None]
    assert 0 < len(measured) < len(WORKS)
    assert measured == [kind.op for kind in find_distinct_ops(run)][: len(measured)]
    assert len(run.replays) == len(WORKS)
    for row in run.replays[len(measured) :]:
        assert row.energy_j is None and row.note == "the 1.000 s for replay were spent"
    assert all(op.replay is not None for op in run.ops)
    assert replayer.closed == 1


def test_no_step_is_run_to_collect_inputs_without_time_to_replay() -> None:
    setup = ReplaySetup()
    going, replayer = setup.replay(make_program(CALLS, WORKS), WORKS, seconds=1.0)
    replayer.budget = VALUE_BYTES
    replayer.on_collect = lambda: setup.clock.advance(2.0)
    going.go()
    assert len(replayer.collected) == 1
    assert going.measured == 0
    assert len(going.result().replays) == len(WORKS)


@pytest.mark.parametrize("name", ["mm", "add", "gelu"])
def test_an_interrupt_keeps_what_was_done(name: str) -> None:
    setup = ReplaySetup()
    going, replayer = setup.replay(make_program(CALLS, WORKS, gap_s=1e-3), WORKS)
    replayer.failures[name] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        going.go()
    run = going.result()
    order = [run.ops[kind.op].name for kind in find_distinct_ops(run)]
    assert [run.ops[row.op].name for row in run.replays] == order
    assert going.measured == order.index(name)
    assert {row.note for row in run.replays if row.energy_j is None} == {"replay ended before its turn"}
    assert replayer.loads[name].closed
    assert replayer.closed == 1
    open_books(run)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the user's own")])
def test_an_exception_of_the_step_while_inputs_are_collected_passes_through(error: BaseException) -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.budget = 2 * VALUE_BYTES

    def fail_at_second() -> None:
        if len(replayer.collected) == 2:
            raise error

    replayer.on_collect = fail_at_second
    with pytest.raises(type(error)) as caught:
        going.go()
    assert caught.value is error
    assert going.measured == 2
    assert len(going.result().replays) == len(WORKS)
    assert replayer.closed == 1


def test_refused_operators_are_noted_and_not_opened() -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.refused["add"] = "a collective waits for other processes"
    going.go()
    run = going.result()
    assert replay_of(run, "add").note == "a collective waits for other processes"
    assert replay_of(run, "add").energy_j is None
    assert "add" not in replayer.loads
    assert going.measured == len(WORKS) - 1


def test_an_operator_in_a_kernel_of_several_is_not_replayed() -> None:
    run = make_program(CALLS, WORKS)
    add = next(op.id for op in run.ops if op.name == "add")
    kernels = tuple(
        replace(kernel, join="fused") if run.ops[kernel.op or 0].name == "add" else kernel for kernel in run.kernels
    )
    going, replayer = ReplaySetup().replay(replace(run, kernels=kernels), WORKS)
    going.go()
    assert "add" not in replayer.loads
    replayed = going.result().ops[add].replay
    assert replayed is not None
    assert going.result().replays[replayed].energy_j is None
    assert going.measured == len(WORKS) - 1


def test_an_operator_that_cannot_be_opened_or_run_costs_only_itself() -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.unopenable["mm"] = "its inputs and outputs do not fit into memory a second time"
    replayer.failures["add"] = RuntimeError("CUDA error: device-side assert\nmore")
    going.go()
    run = going.result()
    assert replay_of(run, "mm").note == "its inputs and outputs do not fit into memory a second time"
    assert replay_of(run, "add").note == "it failed when run again: CUDA error: device-side assert"
    assert replayer.loads["add"].closed
    assert holds(replay_of(run, "norm"), WORKS["norm"].energy_j())
    assert holds(replay_of(run, "gelu"), WORKS["gelu"].energy_j())


def test_a_device_that_is_dead_afterwards_ends_the_replay() -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.failures["add"] = RuntimeError("CUDA error: an illegal memory access")
    replayer.alive = False
    with pytest.raises(JoulediffError, match="cuda:0 does not answer any more since add was run again"):
        going.go()
    run = going.result()
    assert [run.ops[row.op].name for row in run.replays][:2] == ["mm", "add"]
    assert {row.note for row in run.replays[2:]} == {"replay ended before its turn"}
    assert replay_of(run, "mm").energy_j is not None
    assert "illegal memory access" in (replay_of(run, "add").note or "")
    assert replayer.closed == 1


def test_a_card_that_cannot_rest_is_noted_for_every_operator() -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.restful = False
    going.go()
    assert {row.note for row in going.result().replays} == {"cuda:0 cannot be held at rest"}
    assert going.measured == 0


def test_without_a_meter_of_the_device_nothing_runs() -> None:
    program = make_program(CALLS, WORKS)
    for run in (with_domains(program, {"cpu": domain_energy(1.0, 1e-3)}), replace(program, measurement=None)):
        found, replayer = replayed(run)
        assert {row.note for row in found.replays} == {"no meter sees cuda:0"}
        assert replayer.collected == []


def test_a_meter_that_is_gone_at_replay_is_noted() -> None:
    run, _ = replayed(setup=ReplaySetup(replace(GPU, name="gpu1")))
    assert {row.note for row in run.replays} == {"no meter sees gpu0"}
    run, _ = replayed(setup=ReplaySetup(dies_at_s=0.0))
    assert {row.note for row in run.replays} == {"the fake meter was unplugged"}


def test_operators_without_kernels_have_no_replay() -> None:
    made = RunBuilder()
    made.op("view", inputs=[made.value()])
    made.kernel("stray", 1e-5)
    run = made.build(measurement=measurement())
    found, replayer = replayed(run)
    assert found == run
    assert replayer.collected == []


def test_an_operator_of_next_to_no_time_is_not_worth_it() -> None:
    works = {"mm": MM, "tiny": Work(200.0, 0.9 * NEGLIGIBLE_SHARE * MM.call_s)}
    going, replayer = ReplaySetup().replay(make_program(["mm", "tiny"], works), works)
    going.go()
    assert "too little" in (replay_of(going.result(), "tiny").note or "")
    assert list(replayer.loads) == ["mm"]


@pytest.mark.parametrize("facts", [{"clocks_mhz": {}}, {"states": ()}, {"clocks_mhz": {}, "states": ()}])
def test_a_driver_that_reports_little(facts: dict[str, Any]) -> None:
    run, _ = replayed(make_program(CALLS, WORKS, gap_s=1e-3, **facts))
    for name, work in WORKS.items():
        assert holds(replay_of(run, name), work.energy_j())
        assert replay_of(run, name).note is None


def test_a_counter_of_100_ms() -> None:
    run, _ = replayed(setup=ReplaySetup(counter_domain(0.1), poll_s=0.01))
    for name, work in WORKS.items():
        assert holds(replay_of(run, name), work.energy_j())


def test_another_process_is_a_warning() -> None:
    setup = ReplaySetup()
    setup.card.others = (2**30,)
    run, _ = replayed(setup=setup)
    assert run.replays
    for row in run.replays:
        assert row.energy_j is not None
        assert row.note is not None and str(2**30) in row.note


@pytest.mark.parametrize(
    ("values", "batches"), [(4, [4]), (3, [3, 1]), (2, [2, 2]), (1, [1, 1, 1, 1]), (0, [1, 1, 1, 1])]
)
def test_inputs_are_collected_in_batches_that_fit(values: int, batches: list[int]) -> None:
    going, replayer = ReplaySetup().replay(make_program(CALLS, WORKS), WORKS)
    replayer.budget = values * VALUE_BYTES
    going.go()
    assert [len(batch) for batch in replayer.collected] == batches
    kinds = find_distinct_ops(going.run)
    assert [op for batch in replayer.collected for op in batch] == [kind.op for kind in kinds]
    assert {row.inputs for row in going.result().replays} == {"real"}


def test_what_a_lot_takes_is_its_inputs_each_once() -> None:
    made = RunBuilder()
    for name in ("mm", "add"):
        value = made.value()
        op = made.op(name, inputs=[value, value], outputs=[made.value((64, 1024, 768))])
        made.kernel(name, WORKS[name].call_s, op=op)
    going, replayer = ReplaySetup().replay(made.build(measurement=make_program(CALLS, WORKS).measurement), WORKS)
    replayer.budget = 2 * VALUE_BYTES
    going.go()
    assert replayer.collected == [[0, 1]]


def test_beyond_a_few_batches_values_are_drawn() -> None:
    works = {f"op{i}": Work(400.0, (20 - i) * 1e-6) for i in range(MAX_BATCHES + 3)}
    going, replayer = ReplaySetup().replay(make_program(list(works), works), works)
    replayer.budget = VALUE_BYTES
    going.go()
    assert [len(batch) for batch in replayer.collected] == [1] * MAX_BATCHES + [0]
    kinds = [row.inputs for row in going.result().replays]
    assert kinds == ["real"] * MAX_BATCHES + ["drawn"] * 3


def test_the_work_of_another_recording_is_not_measured_again() -> None:
    first, _ = replayed()
    other = make_program(("mm", "norm", "gelu", "tanh"), {**WORKS, "tanh": Work(300.0, 15e-6)}, gap_s=1e-3)
    works = {**WORKS, "tanh": Work(300.0, 15e-6)}
    going, replayer = ReplaySetup().replay(other, works, known=first)
    going.go()
    run = going.result()
    assert list(replayer.loads) == ["tanh"], "the others are known"
    assert len(run.replays) == 4
    for name in ("mm", "norm", "gelu"):
        mine, known = replay_of(run, name), replay_of(first, name)
        assert run.ops[mine.op].name.endswith(name) and replace(mine, op=0) == replace(known, op=0)


@pytest.mark.parametrize("changed", ["clock", "time", "not measured"])
def test_other_conditions_are_no_knowledge(changed: str) -> None:
    first, _ = replayed()
    assert first.measurement is not None
    if changed == "clock":
        slow = {name: 0.97 * mhz for name, mhz in first.measurement.clocks_mhz.items()}
        first = replace(first, measurement=replace(first.measurement, clocks_mhz=slow))
    elif changed == "time":
        first = replace(first, kernels=tuple(replace(each, duration_s=1.2 * each.duration_s) for each in first.kernels))
    else:
        first = replace(first, replays=tuple(replace(each, energy_j=None) for each in first.replays))
    _, replayer = replayed(known=first)
    assert set(replayer.loads) == set(WORKS)
