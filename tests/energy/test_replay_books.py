"""Replay and the books on a simulated GPU: replayed operators and idle sum to its metered energy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.energy.ledger import Books, open_books
from joulediff.model.measurement import Account
from joulediff.model.run import Run
from replay_fakes import ADD, FULL_MHZ, MM, REST_W, ReplaySetup, Work, make_program

WORKS = {"mm": MM, "add": ADD, "norm": Work(380.0, 20e-6), "gelu": Work(500.0, 10e-6)}
CALLS = ("mm", "add", "norm", "mm", "gelu", "add")


def books_of(run: Run, works: dict[str, Work], *, seconds: float = 60.0, rest_share: float | None = None) -> Books:
    going, _ = ReplaySetup().replay(run, works, seconds=seconds, rest_share=rest_share)
    going.go()
    return open_books(going.result())


def only(books: Books) -> Account:
    (account,) = books.accounts
    return account


def test_each_kernel_costs_its_simulated_energy() -> None:
    run = make_program(CALLS, WORKS, gap_s=1e-3)
    books = books_of(run, WORKS)
    for name, found in zip(CALLS, books.kernels["gpu0"], strict=True):
        assert found is not None and found.source == "replayed"
        assert found.low <= WORKS[name].energy_j() + REST_W * WORKS[name].call_s <= found.high
    idle = only(books).idle
    assert idle is not None and idle.joules == pytest.approx(REST_W * 1e-3)
    assert books.unexplained_share == pytest.approx(0.0, abs=0.005)


def test_books_close_when_the_time_for_replay_was_short() -> None:
    books = books_of(make_program(CALLS, WORKS, gap_s=1e-3), WORKS, seconds=1.0)
    assert {None} < set(books.replays["gpu0"])
    assert books.is_closed


def test_replay_at_the_power_limit_does_not_fake_closed_books() -> None:
    """A program below the limit, replayed without rests: the difference is unexplained."""
    run = make_program(["mm"] * 4, WORKS, gap_s=2e-3)
    assert run.measurement is not None and run.measurement.clocks_mhz == {"gpu0": FULL_MHZ}
    paced, forced = (only(books_of(run, WORKS, rest_share=share)).unexplained for share in (None, 0.0))
    assert paced is not None and forced is not None
    assert abs(paced.joules) < abs(forced.joules)
    assert forced.low > 0.0


@settings(deadline=None, max_examples=20)
@given(
    works=st.lists(st.builds(Work, st.floats(200.0, 1100.0), st.floats(1e-5, 1e-3)), min_size=1, max_size=4),
    calls=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    gap_s=st.floats(0.0, 5e-3),
)
def test_operators_and_idle_sum_to_the_metered_energy(works: list[Work], calls: list[int], gap_s: float) -> None:
    named = {f"op{i}": work for i, work in enumerate(works)}
    run = make_program([f"op{i % len(works)}" for i in calls], named, gap_s=gap_s)
    books = books_of(run, named)
    account = only(books)
    assert account.operators is not None and account.idle is not None and account.unexplained is not None
    explained_j = account.operators.joules + account.idle.joules
    assert explained_j + account.unexplained.joules == pytest.approx(account.metered.joules)
    # 95 % intervals, and operators whose clock could not be matched lie at the end of theirs.
    half_j = max(account.unexplained.high - account.unexplained.joules, 0.002 * account.metered.joules)
    assert abs(account.unexplained.joules) <= 2 * half_j
    assert books.is_closed
    assert books.split == "replayed"
    assert all(each is not None for each in books.kernels["gpu0"])
