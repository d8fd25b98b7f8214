"""What a run says about its replays."""

from __future__ import annotations

from time import process_time

from archive_runs import large_run, small_run
from joulediff.model.energy import Energy


def test_replays_of_an_operator_are_those_of_every_domain() -> None:
    run = small_run()
    assert run.replays_of(0) == run.replays[:2]
    assert run.replays_of(1) == run.replays[2:]
    assert run.replays_of(2) == ()


def test_calls_of_one_distinct_operator_share_its_replays() -> None:
    run = large_run(40)
    assert run.replays_of(10) == run.replays_of(19) == run.replays[2:4]
    assert {replay.op for replay in run.replays_of(19)} == {10}


def test_replays_are_found_at_once_however_many_there_are() -> None:
    run = large_run(2000)
    begin_s = process_time()
    for _ in range(10):
        assert all(len(run.replays_of(op.id)) == 2 for op in run.ops)
    assert process_time() - begin_s < 1.0


def test_the_energy_of_a_replay_has_its_interval_or_is_unknown() -> None:
    measured, _, unmeasured = small_run().replays
    assert measured.energy == Energy(0.01, 0.009, 0.012, "replayed")
    assert unmeasured.energy is None
