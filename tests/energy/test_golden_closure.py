"""Four programs recorded with replay on an H200 by `benchmarks/closure.py --keep`: their books close."""

from __future__ import annotations

import pytest

import paths
from golden_files import check_golden
from joulediff.archive.reader import load
from joulediff.energy.attribution import attribute
from joulediff.energy.ledger import Books, open_books
from joulediff.model.measurement import Account
from joulediff.model.run import Run
from show_builders import render

GOLDEN = paths.GOLDEN
PROGRAMS = ("gpt2", "llama", "resnet50", "train")


@pytest.fixture(scope="module", params=PROGRAMS)
def run(request: pytest.FixtureRequest) -> Run:
    return load(GOLDEN / "closure" / f"{request.param}.jd")


@pytest.fixture(scope="module")
def books(run: Run) -> Books:
    return open_books(run)


@pytest.fixture(scope="module")
def account(books: Books) -> Account:
    (found,) = (each for each in books.accounts if each.counted)
    return found


def test_they_are_small(run: Run) -> None:
    assert (GOLDEN / "closure" / f"{run.label}.jd").stat().st_size < 1_000_000


def test_operators_and_idle_are_what_was_metered(account: Account) -> None:
    assert account.operators is not None and account.idle is not None
    share = (account.operators.joules + account.idle.joules) / account.metered.joules
    assert 0.97 <= share <= 1.03


def test_the_parts_sum_to_the_meter(account: Account) -> None:
    parts = (account.operators, account.idle, account.unexplained)
    assert sum(part.joules for part in parts if part is not None) == pytest.approx(account.metered.joules)


def test_kernels_sum_to_the_operators(run: Run, books: Books, account: Account) -> None:
    total = books.total(range(len(run.kernels)))
    assert total is not None and account.operators is not None
    assert total.joules == pytest.approx(account.operators.joules)


def test_most_of_it_was_replayed_with_real_inputs_in_graphs(run: Run, books: Books) -> None:
    share = books.replayed_share(range(len(run.kernels)))
    assert share is not None and share > 0.99
    measured = [row for row in run.replays if row.energy_j is not None and row.domain == "gpu0"]
    assert {row.inputs for row in measured} == {"real"}
    assert {row.how for row in measured} == {"graph"}


def test_replays_ran_at_the_programs_clock_or_are_marked(run: Run) -> None:
    assert run.measurement is not None
    program_mhz = run.measurement.clocks_mhz["gpu0"]
    measured = [row for row in run.replays if row.clock_mhz is not None]
    assert measured
    for row in measured:
        assert abs(row.clock_mhz / program_mhz - 1) <= 0.01 or "MHz" in (row.note or "")


def test_power_times_time_misjudges_single_operators(run: Run, books: Books) -> None:
    """Attribution alone is far off for the operators with the highest and the lowest power."""
    naive, found = attribute(run, "gpu0"), books.kernels["gpu0"]
    ratios = [
        a.joules / b.joules
        for a, b, kernel in zip(naive, found, run.kernels, strict=True)
        if a is not None and b is not None and kernel.duration_s > 1e-5
    ]
    assert min(ratios) < 0.85
    assert max(ratios) > 1.15


@pytest.mark.parametrize("columns", [80, 120])
def test_show_is_as_it_was(run: Run, columns: int, pytestconfig: pytest.Config) -> None:
    check_golden(f"closure/{run.label}_{columns}.txt", render(run, columns), pytestconfig)
