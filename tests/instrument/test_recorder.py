"""Segments of a thread never overlap, and cover its time from the begin to the end."""

from __future__ import annotations

import random
import signal
import sys
import threading
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from call_builders import FakeCall, FakeProgram
from joulediff.instrument.recorder import BETWEEN, MEASURING, MOST_DEPTH, Alone, CallRecorder, Segment
from joulediff.instrument.rewriting.calls import Api, SourceSite


def rows(table):
    return [Segment(int(row[0]), *row[1:]) for row in table.tolist()]


def test_calls_and_gaps_cover_the_time_of_the_program():
    program = FakeProgram()
    program.run(1.0)
    program.call("torch.relu", 3, 0.5)
    program.run(0.25)
    program.call("torch.relu", 4, 0.5)
    program.run(2.0)
    program.recorder.stop()
    taken = rows(program.recorder.take().ended)
    assert [each.end_s - each.start_s for each in taken] == [1.0, 0.5, 0.25, 0.5, 2.0]
    assert all(a.end_s == b.start_s for a, b in pairwise(taken))


def test_a_gap_is_named_by_the_calls_around_it():
    program = FakeProgram()
    for _ in range(3):
        program.call("torch.relu", 3, 0.5)
        program.run(0.1)
        program.call("torch.relu", 8, 0.5)
        program.run(0.2)
    program.recorder.stop()
    gaps = {
        (node.after and node.after.line, node.site and node.site.line): node.calls
        for node in program.recorder.nodes
        if node.is_gap
    }
    assert gaps == {(None, 3): 1, (3, 8): 3, (8, 3): 2, (8, None): 1}


def test_a_call_inside_a_call_is_a_child_and_not_the_self_time_of_its_parent():
    program = FakeProgram()

    def inside():
        program.run(0.1)
        program.call("torch.relu", 9, 0.4)
        program.run(0.2)

    program.call("torch.nn.Module.__call__", 3, inside)
    outer, inner = program.recorder.call_nodes()
    assert inner.parent == outer.id
    assert outer.total_s == pytest.approx(0.7)
    seconds = {outer.id: 0.0, inner.id: 0.0}
    for each in rows(program.recorder.take().ended):
        if each.node in seconds:
            seconds[each.node] += each.end_s - each.start_s
    assert seconds[outer.id] == pytest.approx(0.3)
    assert seconds[inner.id] == pytest.approx(0.4)


def test_an_open_call_is_taken_up_to_now_and_comes_again_when_it_ends():
    program = FakeProgram()
    seen = []

    def inside():
        program.run(1.0)
        seen.append(program.recorder.take())
        program.run(2.0)

    program.call("torch.relu", 3, inside)
    (opened,) = rows(seen[0].open)
    assert (opened.start_s, opened.end_s) == (10.0, 11.0)
    (ended,) = [each for each in rows(program.recorder.take().ended) if each.node == opened.node]
    assert (ended.start_s, ended.end_s) == (10.0, 13.0)


def test_an_exception_ends_the_call():
    program = FakeProgram()

    def fails():
        program.run(0.5)
        raise ValueError

    with pytest.raises(ValueError):
        program.call("torch.relu", 3, fails)
    program.call("torch.relu", 4, 0.5)
    assert [node.parent for node in program.recorder.call_nodes()] == [0, 0]


def test_calls_that_end_out_of_order_are_counted_and_leave_nothing_open():
    program = FakeProgram()
    first = FakeCall(program.site(1), program.api("torch.relu"))
    second = FakeCall(program.site(2), program.api("torch.relu"))
    program.recorder.begin(first)
    program.recorder.begin(second)
    program.recorder.end(first)
    program.recorder.end(second)
    program.run(1.0)
    assert program.recorder.out_of_order == 1
    assert rows(program.recorder.take().open)[0].node == BETWEEN


def test_a_deep_recursion_does_not_grow_the_tree_without_end():
    program = FakeProgram()

    def descend(depth):
        if depth:
            program.call("torch.relu", 3, lambda: descend(depth - 1))

    descend(3 * MOST_DEPTH)
    nodes = list(program.recorder.call_nodes())
    assert len(nodes) <= MOST_DEPTH + 1
    assert sum(node.calls for node in nodes) == 3 * MOST_DEPTH


def test_another_thread_has_calls_but_no_gaps():
    program = FakeProgram()

    def work():
        program.call("torch.relu", 7, 1.0)
        program.run(5.0)
        program.call("torch.relu", 8, 1.0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    taken = program.recorder.take()
    assert sorted(each.end_s - each.start_s for each in rows(taken.ended)) == [1.0, 1.0]
    assert [each.node for each in rows(taken.open)] == [BETWEEN]
    assert len(program.recorder.take().open) == 1


def test_random_programs_keep_their_time():
    for seed in range(50):
        random_calls = random.Random(seed)
        program = FakeProgram()

        def act(depth, program=program, random_calls=random_calls):
            for _ in range(random_calls.randrange(4)):
                program.run(random_calls.random())
                if depth < 4:
                    name, line = random_calls.choice(["torch.a", "numpy.b"]), random_calls.randrange(5)
                    program.call(name, line, lambda: act(depth + 1))

        act(0)
        program.run(0.5)
        program.recorder.stop()
        spans = sorted((each.start_s, each.end_s) for each in rows(program.recorder.take().ended))
        assert spans[0][0] == program.start_s
        assert spans[-1][1] == program.clock.now()
        assert all(a[1] == b[0] for a, b in pairwise(spans))


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs signals of POSIX")
@pytest.mark.parametrize("is_signal", [True, False])
def test_a_fault_stays_here_and_the_error_of_a_signal_handler_does_not(is_signal):
    def handler(*_arguments):
        raise LookupError("here")

    def fail():
        if is_signal:
            signal.raise_signal(signal.SIGALRM)
        else:
            handler()

    recorder = CallRecorder(wait=fail, now_s=lambda: 0.0, cpu_s=lambda: 0.0)
    recorder.start()
    call = FakeCall(SourceSite("a.py", 1, 0, "f", "<module>"), Api("torch.relu", "torch"))
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(LookupError) if is_signal else nullcontext():
            recorder.begin(call)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(recorder.faults) == (0 if is_signal else 1)


def test_devices_are_waited_for_before_the_time_is_taken():
    order = []
    recorder = CallRecorder(
        wait=lambda: order.append("wait"), now_s=lambda: order.append("now") or 0.0, cpu_s=lambda: 0.0
    )
    recorder.start()
    call = FakeCall(SourceSite("a.py", 1, 0, "f", "<module>"), Api("torch.relu", "torch"))
    order.clear()
    recorder.begin(call)
    assert order == ["wait", "now"]
    order.clear()
    recorder.end(call)
    assert order == ["wait", "now"]


def test_no_segment_is_lost_or_doubled_while_threads_end_calls():
    recorder = CallRecorder(wait=None)
    recorder.start()
    api, spent_s = Api("numpy.sum", "numpy"), {}

    def work(number):
        site = SourceSite("train.py", number, 0, "f", "main")
        for _ in range(2_000):
            outer, inner = FakeCall(site, api), FakeCall(site, api)
            recorder.begin(outer)
            recorder.begin(inner)
            recorder.end(inner)
            recorder.end(outer)
        spent_s[number] = outer.mark.node.total_s

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    taken, opened = [], []
    try:
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            found = recorder.take()
            taken.append(found.ended)
            opened.append((len(taken) - 1, found.open))
    finally:
        sys.setswitchinterval(before_s)
    taken += [recorder.take().ended, recorder.take().ended]
    for number in range(1, 4):
        ids = [node.id for node in recorder.call_nodes() if node.site.line == number]
        assert sum(recorder.nodes[each].calls for each in ids) == 4_000
        own = [table[np.isin(table[:, 0], ids)] for table in taken]
        whole = np.concatenate(own)
        whole = whole[np.argsort(whole[:, 1], kind="stable")]
        assert (whole[1:, 1] >= whole[:-1, 2]).all()
        assert (whole[:, 2] - whole[:, 1]).sum() == pytest.approx(spent_s[number], rel=1e-6)
        # What is open when it is taken has not ended in what was taken with it or before.
        for at, rows_open in opened:
            for row in rows_open[np.isin(rows_open[:, 0], ids)]:
                assert all(not (table[:, 1] == row[1]).any() for table in own[: at + 1])


def test_calls_beyond_the_largest_tree_are_added_to_the_first_of_their_site(monkeypatch):
    monkeypatch.setattr("joulediff.instrument.recorder.MOST_NODES", 8)
    program = FakeProgram()
    for line in (*range(20), *range(20)):
        program.call("torch.relu", line, 0.25)
    assert [node.site.line for node in program.recorder.call_nodes()] == list(range(20))
    assert [node.total_s for node in program.recorder.call_nodes()] == [0.5] * 20
    count = len(program.recorder.nodes)
    for line in reversed(range(20)):
        program.call("torch.relu", line, 0.25)
    assert len(program.recorder.nodes) == count
    assert len(program.recorder._gaps) <= 8


class Interrupted(Alone):
    """Chooses each call. A wait ends with Ctrl-C."""

    def __init__(self, program, when):
        self._program, self._when = program, when

    def is_chosen(self, node):
        return True

    def wait_before(self):
        self._program.run(2.0)
        if self._when == "before":
            raise KeyboardInterrupt

    def wait_after(self, node):
        self._program.run(3.0)
        if self._when == "after":
            raise KeyboardInterrupt


@pytest.mark.parametrize(("when", "waits_s", "rest_s"), [("before", 2.0, 2.0), ("after", 5.0, 2.0)])
def test_a_wait_that_is_stopped_ends_as_a_wait(when, waits_s, rest_s):
    program = FakeProgram()
    program.recorder._alone = Interrupted(program, when)
    program.run(1.0)
    with pytest.raises(KeyboardInterrupt):
        program.call("torch.relu", 3, 0.5)
    program.run(1.0)
    program.recorder.stop()
    taken = rows(program.recorder.take().ended)
    gaps = {node.id for node in program.recorder.nodes if node.is_gap}
    assert sum(each.end_s - each.start_s for each in taken if each.node == MEASURING) == waits_s
    assert sum(each.end_s - each.start_s for each in taken if each.node in gaps) == rest_s
