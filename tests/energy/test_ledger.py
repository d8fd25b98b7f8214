"""The books of a run: the parts of each domain sum to the metered energy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paths
from energy_builders import STEP_S, cpu_run, gpu_run, metered, odd_runs, replay, runs, with_replays
from joulediff.archive.reader import load
from joulediff.energy.ledger import ALONE_SHARE, LIMIT_SHARE, Books, exceeds_meter, open_books
from joulediff.model.energy import Energy, add
from joulediff.model.measurement import Account
from joulediff.model.run import Run, Wait
from run_builders import domain_energy, energy, gpt2_run

GOLDEN = paths.GOLDEN


def only(books: Books) -> Account:
    (account,) = books.accounts
    return account


def parts(account: Account) -> list[Energy]:
    found = (account.operators, account.idle, account.host, account.waits, account.unexplained)
    return [part for part in found if part is not None]


def joules(part: Energy | None) -> float:
    assert part is not None
    return part.joules


@given(runs())
@settings(deadline=None, max_examples=200)
def test_the_parts_sum_to_the_meter(run: Run) -> None:
    for account in open_books(run).accounts:
        if account.unexplained is None:
            assert account.operators is None
            continue
        assert sum(part.joules for part in parts(account)) == pytest.approx(account.metered.joules, rel=1e-9)
        for part in (account.operators, account.idle, account.host, account.waits):
            assert part is None or part.joules >= -1e-12


@given(runs())
@settings(deadline=None)
def test_kernels_sum_to_the_operators(run: Run) -> None:
    books = open_books(run)
    for account in books.accounts:
        found = [each for each in books.kernels[account.domain] if each is not None]
        if account.operators is not None:
            assert sum(each.joules for each in found) == pytest.approx(account.operators.joules, rel=1e-9, abs=1e-12)
    total = books.total(range(len(run.kernels)))
    counted = [account.operators for account in books.accounts if account.counted and account.operators is not None]
    if total is not None:
        assert total.joules == pytest.approx(sum(each.joules for each in counted), rel=1e-9, abs=1e-12)


@given(runs())
@settings(deadline=None)
def test_nothing_is_unexplained_on_a_gpu_without_replays(run: Run) -> None:
    for account in open_books(replace(run, replays=(), ops=tuple(replace(op, replay=None) for op in run.ops))).accounts:
        if account.domain.startswith("gpu") and account.operators is not None and account.operators.joules:
            assert joules(account.unexplained) == pytest.approx(0.0, abs=1e-9 * account.metered.joules)


@given(odd_runs())
@settings(deadline=None, max_examples=100)
def test_odd_runs_are_survived(run: Run) -> None:
    books = open_books(run)
    every = range(len(run.kernels))
    for found in (books.total(every), *(part for account in books.accounts for part in parts(account))):
        assert found is None or all(map(math.isfinite, (found.low, found.joules, found.high)))
    share, replayed = books.unexplained_share, books.replayed_share(every)
    assert share is None or share >= 0.0
    assert replayed is None or not math.isnan(replayed)
    assert books.is_closed in (None, True, False)
    assert books.split in (None, "replayed", "attributed")


def test_a_replayed_operator_costs_its_replay_and_its_rest() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("gemm", 2e-3, 1), joules=3.1)
    books = open_books(with_replays(run, replay(0, 1.0), calls={0: 0, 1: 0}))
    first, second = books.kernels["gpu0"]
    assert first == second
    assert joules(first) == pytest.approx(1.0 + 100.0 * 2e-3)
    account = only(books)
    assert joules(account.operators) == pytest.approx(2.4)
    assert joules(account.idle) == pytest.approx(100.0 * 6e-3)
    assert joules(account.unexplained) == pytest.approx(0.1)
    assert (account.host, account.waits) == (None, None)
    assert books.split == "replayed"
    assert books.unexplained_share == pytest.approx(0.1 / 3.1)
    assert books.is_closed is True


def test_an_operator_s_energy_is_divided_among_its_kernels_by_time() -> None:
    run = gpu_run(("gemm", 3e-3, 0), ("reduce", 1e-3, 0))
    first, second = open_books(with_replays(run, replay(0, 1.2), calls={0: 0})).kernels["gpu0"]
    assert joules(first) == pytest.approx(1.2)
    assert joules(second) == pytest.approx(0.4)
    instant = gpu_run(("gemm", 0.0, 0), ("reduce", 0.0, 0))
    first, second = open_books(with_replays(instant, replay(0, 1.2), calls={0: 0})).kernels["gpu0"]
    assert joules(first) == joules(second) == pytest.approx(0.6)


def test_too_much_is_unexplained_too() -> None:
    run = gpu_run(("gemm", 2e-3, 0), joules=2.0)
    books = open_books(with_replays(run, replay(0, 3.0), calls={0: 0}))
    assert joules(only(books).unexplained) == pytest.approx(2.0 - 3.2 - 0.8)
    assert books.is_closed is False
    assert books.unexplained_share == pytest.approx(1.0)
    assert LIMIT_SHARE < 1.0


def test_the_least_explained_account_is_counted_and_has_the_most_unexplained_energy() -> None:
    def account(domain: str, unexplained: Energy | None, *, counted: bool = True) -> Account:
        return Account(domain, energy(9.0), None, None, None, None, unexplained, counted=counted)

    known = [account("gpu0", energy(1.0)), account("gpu1", energy(-2.0)), account("gpu2", None)]
    books = Books((*known, account("cpu", energy(5.0), counted=False)))
    assert books.least_explained == known[1]
    assert Books((known[2],)).least_explained is None


def test_too_much_here_does_not_make_up_for_too_little_there() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    domains = {"gpu0": domain_energy(2.0, STEP_S, 0.0), "gpu1": domain_energy(2.0, STEP_S, 0.0)}
    run = replace(run, measurement=metered(domains))
    books = open_books(with_replays(run, replay(0, 4.0), calls={0: 0}))
    assert [joules(account.unexplained) for account in books.accounts] == pytest.approx([-2.0, 2.0])
    assert books.unexplained_share == pytest.approx(1.0)


def test_a_replay_below_rest_costs_no_less_than_nothing() -> None:
    run = gpu_run(("gemm", 1e-3, 0))
    (found,) = open_books(with_replays(run, replay(0, -0.5, share=0.1), calls={0: 0})).kernels["gpu0"]
    assert found is not None
    assert (found.joules, found.low) == (0.0, 0.0)


def test_calls_that_differ_make_the_interval_wider() -> None:
    alike = with_replays(gpu_run(("a", 2e-3, 0), ("a", 2e-3, 1)), replay(0, 1.0, share=0.0), calls={0: 0, 1: 0})
    unlike = with_replays(gpu_run(("a", 1e-3, 0), ("a", 3e-3, 1)), replay(0, 1.0, share=0.0), calls={0: 0, 1: 0})
    found = [open_books(run).kernels["gpu0"][0] for run in (alike, unlike)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].half_width_share < 0.01
    assert found[1].half_width_share == pytest.approx(0.5, rel=0.01)


def test_what_was_not_replayed_is_attributed() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 2e-3, 1), ("none", 1e-3, None))
    books = open_books(with_replays(run, replay(0, 1.0), replay(1, None, note="failed"), calls={0: 0, 1: 1}))
    sources = [each.source for each in books.kernels["gpu0"] if each is not None]
    assert sources == ["replayed", "attributed", "attributed"]
    assert books.replays["gpu0"] == (0, None, None)
    assert books.replayed_share([0]) == 1.0
    assert books.replayed_share([1, 2]) == 0.0
    whole = books.total(range(3))
    assert whole is not None
    assert whole.source == "attributed"
    assert books.replayed_share(range(3)) == pytest.approx(1.2 / whole.joules)


def test_a_replay_in_another_domain_is_not_this_one_s() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    books = open_books(with_replays(run, replay(0, 1.0, "gpu1"), calls={0: 0}))
    assert books.split == "attributed"


def test_a_gpu_at_rest_has_no_operators() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    domains = {"gpu1": domain_energy(1.1, STEP_S, 100.0, counted=False, rested=True)}
    books = open_books(replace(run, measurement=metered(domains)))
    account = only(books)
    assert joules(account.operators) == 0.0
    assert joules(account.idle) == pytest.approx(1.0)
    assert joules(account.unexplained) == pytest.approx(0.1)
    assert books.rested == {"gpu1"}


def test_kernels_of_a_device_without_a_domain_are_not_known() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    run = replace(run, kernels=(*run.kernels, replace(run.kernels[0], device="cuda:1")))
    books = open_books(run)
    assert books.kernels["gpu0"][1] is None
    assert books.total([1]) is None
    assert books.replayed_share([1]) is None


def test_without_idle_power_the_parts_are_not_known() -> None:
    account = only(open_books(gpu_run(("gemm", 2e-3, 0), rest_w=None)))
    assert parts(account) == []
    full = only(open_books(gpu_run(("gemm", 10e-3, 0), rest_w=None)))
    assert joules(full.operators) == pytest.approx(5.0)
    assert joules(full.idle) == 0.0


def test_without_a_trace_nothing_is_known() -> None:
    run = replace(gpu_run(("gemm", 2e-3, 0)), kernels=(), traced_s=None)
    books = open_books(run)
    assert parts(only(books)) == []
    assert (books.split, books.unexplained_share, books.is_closed, books.total([])) == (None, None, None, None)


def test_without_a_measurement_the_books_are_empty() -> None:
    assert open_books(replace(gpu_run(("gemm", 2e-3, 0)), measurement=None)) == Books()


def test_a_meter_of_the_whole_machine_is_not_split() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    domains = {"gpu0": domain_energy(5.0, STEP_S, 100.0), "psys": domain_energy(9.0, STEP_S, 200.0, counted=False)}
    gpu, psys = open_books(replace(run, measurement=metered(domains))).accounts
    assert parts(psys) == []
    assert parts(gpu)


def test_the_host_s_energy_is_that_of_operators_python_and_waits() -> None:
    run = cpu_run(4e-3, joules=1.0, rest_w=20.0, cpu_s=8e-3)
    run = replace(run, waits=(Wait("cudaStreamSynchronize", 0.0, 2e-3, None, 0),))
    run = with_replays(run, replay(0, 0.4, "cpu", call_s=3e-3, cpu_s=4e-3), calls={0: 0})
    account = only(open_books(run))
    # 0.8 J above the 0.2 J of rest in 8 ms of CPU time: 100 W for each CPU second.
    assert joules(account.operators) == pytest.approx(0.4 + 20.0 * 3e-3)
    assert joules(account.idle) == pytest.approx(20.0 * 7e-3)
    assert joules(account.waits) == pytest.approx(0.2)
    assert joules(account.host) == pytest.approx(0.2)
    assert joules(account.unexplained) == pytest.approx(0.0, abs=1e-12)


def test_what_operators_may_have_taken_more_the_host_may_have_taken_less() -> None:
    run = cpu_run(4e-3, joules=1.0, rest_w=20.0, cpu_s=8e-3)
    sure, unsure = (
        only(open_books(with_replays(run, replay(0, 0.4, "cpu", share=share, cpu_s=4e-3), calls={0: 0})))
        for share in (0.0, 0.5)
    )
    assert sure.host is not None
    assert unsure.host is not None
    assert sure.host.joules == unsure.host.joules
    assert sure.host.high - sure.host.joules < 0.02
    assert unsure.host.high - unsure.host.joules == pytest.approx(0.2, rel=0.02)
    assert unsure.host.joules - unsure.host.low == pytest.approx(0.2, rel=0.02)


def test_a_replay_that_costs_less_than_its_cpu_time_leaves_something_unexplained() -> None:
    run = with_replays(cpu_run(4e-3), replay(0, 0.3, "cpu", call_s=3e-3, cpu_s=4e-3), calls={0: 0})
    account = only(open_books(run))
    assert joules(account.host) == pytest.approx(0.4)
    assert joules(account.unexplained) == pytest.approx(0.1)


def test_without_replays_of_the_host_its_parts_fit_the_meter() -> None:
    account = only(open_books(cpu_run(4e-3)))
    assert joules(account.operators) == pytest.approx(0.4)
    assert joules(account.idle) == pytest.approx(20.0 * 6e-3)
    assert joules(account.host) == pytest.approx(80.0 * 6e-3)
    assert joules(account.waits) == 0.0
    assert joules(account.unexplained) == pytest.approx(0.0, abs=1e-12)


def test_a_few_operators_on_the_host_of_a_gpu_do_not_cost_all_it_drew() -> None:
    account = only(open_books(cpu_run(10e-6)))
    assert joules(account.operators) == pytest.approx(1e-3)
    assert joules(account.host) > 0.7


def test_without_cpu_time_what_python_cost_is_unexplained() -> None:
    account = only(open_books(cpu_run(4e-3, cpu_s=None)))
    assert (account.host, account.waits) == (None, None)
    assert joules(account.unexplained) == pytest.approx(80.0 * 6e-3)


def test_waits_take_no_more_than_the_cpu_time_that_is_left() -> None:
    run = replace(cpu_run(1e-3, cpu_s=2e-3), waits=(Wait("sync", 0.0, 1.0, None, 0), Wait("sync", 0.0, -1.0, None, 0)))
    account = only(open_books(run))
    assert joules(account.host) == pytest.approx(0.0, abs=1e-12)
    assert joules(account.waits) == pytest.approx(0.8 * 0.9)


def test_every_domain_of_the_host_has_its_own_replay() -> None:
    run = cpu_run(4e-3)
    domains = {"cpu0": domain_energy(1.0, STEP_S, 20.0), "dram0": domain_energy(0.1, STEP_S, 5.0)}
    run = replace(run, measurement=metered(domains, cpu_s=8e-3))
    facts = {"call_s": 3e-3, "cpu_s": 4e-3}
    run = with_replays(run, replay(0, 0.4, "cpu0", **facts), replay(0, 0.02, "dram0", **facts), calls={0: 0})
    books = open_books(run)
    assert joules(books.kernels["cpu0"][0]) == pytest.approx(0.46)
    assert joules(books.kernels["dram0"][0]) == pytest.approx(0.035)
    total = books.total([0])
    assert total is not None
    assert total.joules == pytest.approx(0.495)
    assert total.source == "replayed"


def test_an_estimate_stays_one() -> None:
    run = cpu_run(4e-3, rest_w=None)
    domain = replace(domain_energy(1.0, STEP_S, None), energy=energy(1.0, 0.1, "estimated"))
    account = only(open_books(replace(run, measurement=metered({"cpu": domain}, cpu_s=8e-3))))
    assert {part.source for part in parts(account)} == {"estimated"}
    assert joules(account.idle) == 0.0


def test_one_replay_adds_up_and_different_ones_in_quadrature() -> None:
    run = gpu_run(("a", 1e-3, 0), ("a", 1e-3, 1), ("b", 1e-3, 2), rest_w=0.0)
    books = open_books(with_replays(run, replay(0, 1.0), replay(2, 1.0), calls={0: 0, 1: 0, 2: 1}))
    same, different = books.total([0, 1]), books.total([0, 2])
    assert same is not None
    assert different is not None
    assert same.high - same.joules == pytest.approx(0.1)
    assert different.high - different.joules == pytest.approx(math.hypot(0.05, 0.05))
    assert (same.source, different.source) == ("replayed", "replayed")


def test_attributed_energies_add_up_but_not_beyond_what_was_metered() -> None:
    run = gpu_run(("a", 1e-3, None), ("b", 1e-3, None), ("c", 4e-3, None))
    books = open_books(run)
    one, two, every = books.total([0]), books.total([0, 1]), books.total([0, 1, 2])
    assert one is not None
    assert two is not None
    assert every is not None
    assert two.high - two.joules == pytest.approx(2 * (one.high - one.joules))
    assert every.half_width_share < 0.02
    assert (every.low, every.high) == pytest.approx((only(books).operators.low, only(books).operators.high))  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 10.0), st.floats(0.0, 1.0)), min_size=1, max_size=8))
def test_a_sum_is_between_quadrature_and_adding_up(found: list[tuple[int, float, float]]) -> None:
    energies = [(key, energy(each, share, "replayed")) for key, each, share in found]
    total = add(energies)
    assert total is not None
    halves = [e.high - e.joules for _, e in energies]
    assert math.hypot(*halves) - 1e-9 <= total.high - total.joules <= sum(halves) + 1e-9
    assert total.high - total.joules == pytest.approx(total.joules - total.low, abs=1e-9)
    one = add([(0, e) for _, e in energies])
    assert one is not None
    assert one.high - one.joules == pytest.approx(sum(halves), abs=1e-9)


@given(runs())
@settings(deadline=None)
def test_more_kernels_cost_no_less(run: Run) -> None:
    books = open_books(run)
    before = 0.0
    for count in range(len(run.kernels) + 1):
        total = books.total(range(count))
        assert total is None or total.joules >= before - 1e-12
        before = before if total is None else total.joules


def test_a_real_recording_without_replays() -> None:
    run = load(GOLDEN / "h200_gpt2.jd")
    books = open_books(run)
    gpu = books.accounts[0]
    assert books.split == "attributed"
    assert joules(gpu.idle) + joules(gpu.operators) == pytest.approx(gpu.metered.joules, rel=1e-12)
    assert sum(joules(each) for each in books.kernels["gpu0"]) == pytest.approx(joules(gpu.operators), rel=1e-12)
    assert books.is_closed is True


def test_a_step_of_many_kernels() -> None:
    run = gpt2_run(400)
    books = open_books(run)
    assert len(run.kernels) > 5000
    assert only(replace(books, accounts=books.accounts[:1])).operators is not None


def test_the_sum_of_replayed_operators_is_less_sure_than_they_are_alone() -> None:
    """In a program they run side by side; an attributed sum is fitted to the meter and has no such error."""
    run = with_replays(gpu_run(("gemm", 2e-3, 0), joules=3.1), replay(0, 1.0), calls={0: 0})
    account = only(open_books(run))
    assert account.operators is not None and account.unexplained is not None
    alone = open_books(run).total(range(len(run.kernels)))
    assert alone is not None
    assert account.operators.joules == pytest.approx(alone.joules)
    least_j = ALONE_SHARE * alone.joules
    assert account.operators.high - account.operators.joules >= least_j
    assert account.operators.high - account.operators.joules > alone.high - alone.joules
    assert account.unexplained.high - account.unexplained.joules >= least_j


@pytest.mark.parametrize(("joules", "exceeds"), [(1.1e-3, True), (1.0e-3, False), (0.5e-3, False)])
def test_operators_that_cost_more_than_the_meter_and_all_errors_are_reported(joules: float, *, exceeds: bool) -> None:
    run = cpu_run(2e-3, joules=1e-3, rest_w=None, cpu_s=5e-3)
    assert run.measurement is not None
    domain = replace(run.measurement.domains["cpu"], energy=Energy(1e-3, 0.98e-3, 1.02e-3, "estimated"))
    run = replace(run, measurement=replace(run.measurement, domains={"cpu": domain}))
    row = replay(0, joules, "cpu", share=0.02, source="estimated", rest_w=0.0, call_s=5e-3, cpu_s=5e-3)
    books = open_books(with_replays(run, row, calls={0: 0}))
    assert books.exceeds_meter is exceeds
    (account,) = books.accounts
    assert exceeds_meter(account) is exceeds
    assert not exceeds_meter(replace(account, unexplained=None))
    assert not exceeds_meter(replace(account, domain="gpu0"))
