"""Notes when watched calls begin and end, in every thread of the program, as a tree of calls and a list of segments.

A segment is a stretch of time of one thread with the node of the tree that ran in it: the innermost open call, or the
gap between two calls. The segments of a thread do not overlap, so what is attributed to them is counted once.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from joulediff.instrument.rewriting.calls import Api, Call, SourceSite
from joulediff.instrument.rewriting.signals import is_of_signal_handler
from joulediff.model.energy import Energy

# Calls below more calls add to the first node of their site and API, which bounds the tree.
MOST_DEPTH = 60
# More distinct paths of calls, or gaps, than a report can show. Calls on further paths are added up in the same way.
MOST_NODES = 50_000

# The first nodes of every tree.
CALLS, BETWEEN, MEASURING = range(3)
"""All calls, the code between calls, and waits that were inserted to measure calls alone."""
FIRST_NODES = 3


class Segment(NamedTuple):
    """A stretch of time of one thread, with the CPU time of the process at both ends. In tables it is a row."""

    node: int
    start_s: float
    end_s: float
    start_cpu_s: float
    end_cpu_s: float


FIELDS = len(Segment._fields)
_END = Segment._fields.index("end_s")


@dataclass(slots=True, eq=False)
class Node:
    """The calls of one site below the same calls, a gap between two calls, or one of the first nodes."""

    id: int
    parent: int
    site: SourceSite | None = None
    api: Api | None = None
    after: SourceSite | None = None
    """Of a gap: the call before it; None at the begin of the program."""
    depth: int = 0
    calls: int = 0
    total_s: float = 0.0
    shortest_s: float = float("inf")
    longest_s: float = 0.0
    input_bytes: int | None = None
    isolated: int = 0
    alone_j: list[dict[str, Energy]] = field(default_factory=list)
    """Of each call that was measured alone: its energy above idle, by domain."""
    children: dict[tuple[int, int], Node] = field(default_factory=dict)

    @property
    def is_gap(self) -> bool:
        """Whether it is code between calls."""
        return self.parent == BETWEEN


class _Open(NamedTuple):
    """A call that has begun and not ended."""

    thread: _Thread
    node: Node
    start_s: float
    is_alone: bool


class _Thread:
    """The open calls of one thread, and its segments that were not taken yet."""

    __slots__ = (
        "before",
        "current",
        "is_main",
        "owner",
        "root",
        "segments",
        "stack",
        "taken",
        "taken_size",
        "taken_to_s",
    )

    def __init__(self, root: Node, *, is_main: bool, now_s: float, cpu_s: float) -> None:
        self.root = root
        self.is_main = is_main
        self.owner = threading.current_thread()
        self.stack: list[_Open] = []
        self.segments = array("d")
        """The numbers of each `Segment`, one after the other: appending is quick, and so is making a table of them."""
        self.taken, self.taken_size = array("d"), 0
        self.taken_to_s = float("-inf")
        """The end of the last segment that was taken."""
        self.before: SourceSite | None = None
        """The last call that ended outside of any other."""
        self.current = (BETWEEN, now_s, cpu_s)
        """The node of the open segment, and its begin. One tuple, so that another thread reads all or nothing."""

    def take(self) -> list[np.ndarray]:
        """Return the segments that ended since the last time, as tables.

        The thread may just have added one to the array that was taken before: it comes with the next call.
        """
        late = _copy(self.taken)[self.taken_size :]
        self.taken, self.segments = self.segments, array("d")
        found = _copy(self.taken)
        self.taken_size = len(found)
        tables = [late.reshape(-1, FIELDS), found.reshape(-1, FIELDS)]
        self.taken_to_s = max([self.taken_to_s, *(table[-1, _END] for table in tables if len(table))])
        return tables


def _copy(numbers: array[float]) -> np.ndarray:
    """Return the numbers; the thread that owns them may append meanwhile, which a view of the array would forbid."""
    return np.frombuffer(numbers.tobytes())


class Taken(NamedTuple):
    """Segments that have ended, and those that are open: they come again, from the same begin, when they end.

    Both are tables with a row for each `Segment`.
    """

    ended: np.ndarray
    open: np.ndarray


class Alone:
    """Measures chosen calls alone, from rest to rest. The default chooses none."""

    def is_chosen(self, node: Node) -> bool:  # noqa: ARG002
        """Return whether the next call of a node is measured alone."""
        return False

    def wait_before(self) -> None:
        """Wait until the machine rests."""

    def wait_after(self, node: Node) -> None:
        """Wait until the machine rests again, and note the energy of the call of `node` that has just ended."""


class CallRecorder:
    """Listens to calls. `wait` waits for the devices at the begin and the end of each call."""

    def __init__(
        self,
        *,
        wait: Callable[[], None] | None,
        now_s: Callable[[], float] = time.perf_counter,
        cpu_s: Callable[[], float] = time.process_time,
        alone: Alone | None = None,
    ) -> None:
        self._wait = wait
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._alone = alone
        self._lock = threading.Lock()
        self._threads: list[_Thread] = []
        self.nodes = [Node(CALLS, -1), Node(BETWEEN, -1), Node(MEASURING, -1)]
        self._gaps: dict[tuple[int, int], Node] = {}
        self._first: dict[tuple[int, int], Node] = {}
        """The first node of each site and API."""
        self.out_of_order = 0
        """Calls that ended before a call inside of them, as greenlets do."""
        self.faults: list[str] = []
        """Faults of joulediff itself, which left calls out."""
        self._local = threading.local()

    def start(self) -> float:
        """Begin in this thread, which becomes the main one, and return the time."""
        now_s = self._now_s()
        self._local.thread = self._add_thread(is_main=True, now_s=now_s)
        return now_s

    def begin(self, call: Call) -> None:
        """Note that a call begins."""
        try:
            self._begin(call)
        except Exception as error:  # a fault here must not reach the program
            if is_of_signal_handler(error):
                raise
            self.faults.append(f"{type(error).__name__}: {error}")

    def _begin(self, call: Call) -> None:
        try:
            thread: _Thread = self._local.thread
        except AttributeError:
            thread = self._local.thread = self._add_thread(is_main=False, now_s=self._now_s())
        stack = thread.stack
        around = stack[-1].node if stack else thread.root
        node = around.children.get((id(call.site), id(call.api))) or self._add_call(around, call)
        node.calls += 1
        if call.input_bytes is not None:
            node.input_bytes = (node.input_bytes or 0) + call.input_bytes
        if self._wait is not None:
            self._wait()
        is_alone = self._alone is not None and self._is_alone(thread, node, call)
        cpu_s = self._cpu_s()
        now_s = self._now_s()
        self._close(thread, now_s, cpu_s, before=call.site)
        thread.current = (node.id, now_s, cpu_s)
        call.mark = opened = _Open(thread, node, now_s, is_alone)
        stack.append(opened)

    def end(self, call: Call) -> None:
        """Note that a call has ended."""
        try:
            if call.mark is not None:
                self._end(call, call.mark)
        except Exception as error:  # a fault here must not reach the program
            if is_of_signal_handler(error):
                raise
            self.faults.append(f"{type(error).__name__}: {error}")

    def _end(self, call: Call, opened: _Open) -> None:
        thread, node, start_s, is_alone = opened
        if self._wait is not None:
            self._wait()
        cpu_s = self._cpu_s()
        now_s = self._now_s()
        took_s = now_s - start_s
        node.total_s += took_s
        if took_s < node.shortest_s:
            node.shortest_s = took_s
        if took_s > node.longest_s:
            node.longest_s = took_s
        stack = thread.stack
        if stack and stack[-1] is opened:
            started, started_s, started_cpu_s = thread.current
            thread.segments.extend((started, started_s, now_s, started_cpu_s, cpu_s))
            stack.pop()
            if stack:
                thread.current = (stack[-1].node.id, now_s, cpu_s)
            else:
                thread.before = call.site
                thread.current = (BETWEEN, now_s, cpu_s)
        else:
            self.out_of_order += 1
            thread.stack = [each for each in stack if each is not opened]
        if is_alone:
            self._wait_after(thread, node)

    def take(self) -> Taken:
        """Return the segments that ended since the last time, and those that are open."""
        now_s, cpu_s = self._now_s(), self._cpu_s()
        ended, opened = [np.zeros((0, FIELDS))], []
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            has_ended = not thread.owner.is_alive()
            node, start_s, start_cpu_s = thread.current  # before the segments: what it misses, they have
            ended += thread.take()
            # A segment that ended while it was looked at was taken: it must not count as open too.
            has_begun = start_s >= thread.taken_to_s
            if has_begun and (thread.is_main or node != BETWEEN):
                opened.append((node, start_s, max(now_s, start_s), start_cpu_s, max(cpu_s, start_cpu_s)))
            if has_ended and not thread.is_main:
                ended += thread.take()
                with self._lock:
                    self._threads.remove(thread)
        return Taken(np.concatenate(ended), np.array(opened, dtype=float).reshape(-1, FIELDS))

    def stop(self) -> None:
        """Note the end of the program: the main thread's open gap has no call after it."""
        now_s, cpu_s = self._now_s(), self._cpu_s()
        for thread in list(self._threads):
            if thread.is_main and thread.current[0] == BETWEEN:
                self._close(thread, now_s, cpu_s, before=None)
                thread.current = (BETWEEN, now_s, cpu_s)

    def _close(self, thread: _Thread, now_s: float, cpu_s: float, *, before: SourceSite | None) -> None:
        """End the open segment; `before` is the site of the call that begins."""
        node, start_s, start_cpu_s = thread.current
        if node == BETWEEN:
            if not thread.is_main:
                return
            node = self._gap(thread.before, before).id
        thread.segments.extend((node, start_s, now_s, start_cpu_s, cpu_s))

    def _is_alone(self, thread: _Thread, node: Node, call: Call) -> bool:
        assert self._alone is not None
        if not self._alone.is_chosen(node):
            return False
        node.isolated += 1
        cpu_s, now_s = self._cpu_s(), self._now_s()
        around = thread.current[0]
        self._close(thread, now_s, cpu_s, before=call.site)
        thread.current = (MEASURING, now_s, cpu_s)
        try:
            self._alone.wait_before()
        except BaseException:  # Ctrl-C: the call does not begin, and the program goes on
            self._resume(thread, around)
            raise
        return True

    def _wait_after(self, thread: _Thread, node: Node) -> None:
        assert self._alone is not None
        after = thread.current
        thread.current = (MEASURING, after[1], after[2])
        try:
            self._alone.wait_after(node)
        finally:
            self._resume(thread, after[0])

    def _resume(self, thread: _Thread, node: int) -> None:
        """End an inserted wait: the node runs again."""
        cpu_s, now_s = self._cpu_s(), self._now_s()
        self._close(thread, now_s, cpu_s, before=None)
        thread.current = (node, now_s, cpu_s)

    def _gap(self, after: SourceSite | None, before: SourceSite | None) -> Node:
        key = (id(after), id(before))
        found = self._gaps.get(key)
        if found is None and len(self._gaps) >= MOST_NODES:
            found = self.nodes[BETWEEN]
        elif found is None:
            found = self._gaps[key] = self._add(Node(-1, BETWEEN, site=before, after=after))
        found.calls += 1
        return found

    def _add_call(self, around: Node, call: Call) -> Node:
        key = (id(call.site), id(call.api))
        first = self._first.get(key)
        is_too_deep = around.depth >= MOST_DEPTH or len(self.nodes) >= MOST_NODES
        if is_too_deep and first is not None:
            return first
        parent, depth = (CALLS, MOST_DEPTH) if is_too_deep else (around.id, around.depth + 1)
        node = self._add(Node(-1, parent, site=call.site, api=call.api, depth=depth))
        self._first.setdefault(key, node)
        if not is_too_deep:
            around.children[key] = node
        return node

    def _add(self, node: Node) -> Node:
        with self._lock:
            node.id = len(self.nodes)
            self.nodes.append(node)
        return node

    def _add_thread(self, *, is_main: bool, now_s: float) -> _Thread:
        # Each thread has a root of its own, so that two threads never count in one node.
        root = Node(CALLS, -1)
        thread = _Thread(root, is_main=is_main, now_s=now_s, cpu_s=self._cpu_s())
        with self._lock:
            self._threads.append(thread)
        return thread

    def call_nodes(self) -> Iterator[Node]:
        """Yield the nodes of calls."""
        return (node for node in list(self.nodes) if node.api is not None)
