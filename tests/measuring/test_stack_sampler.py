"""The sampler of Python stacks: what a sample counts for, and the time of functions of C and of collections."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType

import pytest

from joulediff.measuring.stack_sampler import StackSampler, why_not_sampled
from joulediff.model.errors import JoulediffError


class Clock:
    """Time and CPU time, set by hand."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0


def scripted(clock: Clock) -> StackSampler:
    sampler = StackSampler(period_s=1.0, now=lambda: clock.now_s, cpu_s=lambda: clock.cpu_s)
    sampler.start()
    return sampler


def own_frame() -> FrameType:
    return sys._getframe(1)


def test_a_sample_counts_for_every_tick_since_the_last() -> None:
    clock = Clock()
    sampler = scripted(clock)

    def step() -> None:
        clock.now_s = clock.cpu_s = 1.2
        sampler.tick(own_frame())
        clock.now_s = clock.cpu_s = 5.9  # four ticks in a call of C
        sampler.tick(own_frame())

    sampler.call(step)
    samples = sampler.samples(steps=2)
    assert [(each.kind, each.time_s, each.count) for each in samples] == [("line", 2.0, 1), ("line", 0.5, 1)]
    assert [sampler.frames[each.frame or 0].line for each in samples] == [
        step.__code__.co_firstlineno + 4,
        step.__code__.co_firstlineno + 2,
    ]
    assert [each.cpu_s for each in samples] == [2.0, 0.5]


def test_time_in_which_the_thread_did_not_run_is_no_cpu_time() -> None:
    clock = Clock()
    sampler = scripted(clock)

    def step() -> None:
        clock.now_s, clock.cpu_s = 4.0, 1.0
        sampler.tick(own_frame())

    sampler.call(step)
    (sample,) = sampler.samples(steps=1)
    assert (sample.time_s, sample.cpu_s) == (4.0, 1.0)


def test_ticks_outside_of_the_step_do_not_count() -> None:
    clock = Clock()
    sampler = scripted(clock)
    clock.now_s = clock.cpu_s = 3.0
    sampler.tick(own_frame())

    def step() -> None:
        clock.now_s = clock.cpu_s = 4.5
        sampler.tick(own_frame())

    sampler.call(step)
    assert [each.time_s for each in sampler.samples(steps=1)] == [1.0]


def test_a_collection_has_its_own_time_and_no_ticks() -> None:
    clock = Clock()
    sampler = scripted(clock)

    def step() -> None:
        clock.now_s = clock.cpu_s = 0.5
        sampler.collect("start", own_frame())
        clock.now_s = clock.cpu_s = 3.25
        sampler.tick(own_frame())
        sampler.collect("stop", own_frame())
        clock.now_s = clock.cpu_s = 4.5
        sampler.tick(own_frame())

    sampler.call(step)
    found = {each.kind: each for each in sampler.samples(steps=1)}
    assert (found["gc"].time_s, found["gc"].count) == (2.75, 1)
    assert (found["line"].time_s, found["line"].count) == (1.0, 1)


def measured(parts: dict[str, Callable[[], object]], steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of each part of a step, by its own clock and by the sampler."""
    sampler, timed, sampled = StackSampler(), defaultdict[str, float](float), defaultdict[str, float](float)

    def step() -> None:
        for name, part in parts.items():
            begin_s = time.perf_counter()
            part()
            timed[name] += time.perf_counter() - begin_s

    with sampler.running():
        for _ in range(steps):
            sampler.call(step)
    for sample in sampler.samples(steps):
        at = sample.frame
        path = []
        while at is not None:
            path.append(sampler.frames[at].function.rpartition(".")[2])
            at = sampler.frames[at].parent
        for name in parts:
            sampled[name] += sample.time_s if name in path else 0.0
    whole = sum(timed.values())
    covered_s = sum(each.time_s for each in sampler.samples(steps))
    assert covered_s == pytest.approx(whole / steps, rel=0.1)
    return {name: each / whole for name, each in timed.items()}, {name: sampled[name] / covered_s for name in parts}


def test_calls_of_c_and_pure_python_have_their_share_of_the_time() -> None:
    numbers = [random.random() for _ in range(2_000)]
    gc.freeze()  # of a whole session, a collection would take most of the step
    objects = [[number] for number in range(20_000)]

    def sorting() -> None:
        for _ in range(3):
            sorted(numbers)  # holds the interpreter lock, for less than a tick

    def python() -> int:
        total = 0
        for number in range(10_000):
            total += number * number
        return total

    def collecting() -> None:
        gc.collect()

    timed, sampled = measured({"sorting": sorting, "python": python, "collecting": collecting}, steps=400)
    assert objects and sampled == {name: pytest.approx(share, abs=0.07) for name, share in timed.items()}


def test_signal_and_timer_are_as_before() -> None:
    before = signal.getsignal(signal.SIGALRM)
    collectors = list(gc.callbacks)
    sampler = StackSampler()
    with pytest.raises(ValueError, match="seen"), sampler.running():
        sampler.call(lambda: [][0] if False else int("seen"))
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert gc.callbacks == collectors


def test_a_program_that_takes_the_signal_keeps_it() -> None:
    def own(_: int, __: FrameType | None) -> None: ...

    sampler = StackSampler()
    try:
        with pytest.raises(JoulediffError, match="uses the timer signal"), sampler.running():
            sampler.call(lambda: signal.signal(signal.SIGALRM, own))
        assert signal.getsignal(signal.SIGALRM) is own
        assert why_not_sampled() == "the program uses the timer signal itself"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert why_not_sampled() is None


def test_only_the_main_thread_is_sampled() -> None:
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(why_not_sampled()))
    thread.start()
    thread.join()
    assert found == ["the step does not run in the main thread, and only that one handles signals"]
