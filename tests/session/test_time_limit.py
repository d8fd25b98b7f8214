"""A limit on the time of Python code."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from joulediff.model.errors import JoulediffError
from joulediff.session.time_limit import time_limit


def test_a_loop_without_end_is_ended() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(JoulediffError, match="the loop did not end"), time_limit(0.05, "the loop did not end"):
        while True:
            pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_code_that_ends_in_time_is_left_alone() -> None:
    with time_limit(0.05, "late"):
        done = True
    time.sleep(0.1)
    assert done


def test_there_is_no_limit_in_another_thread() -> None:
    seen: list[bool] = []

    def work() -> None:
        with time_limit(0.01, "late"):
            time.sleep(0.03)
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_timer_of_the_program_is_kept() -> None:
    signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        with time_limit(0.01, "late"):
            time.sleep(0.03)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
