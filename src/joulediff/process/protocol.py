"""The messages between child and parent, over two pipes: frames of a kind, a length and a body.

The parent trusts no frame: its length is bounded, its body is checked, nothing is unpickled. The program shares its
process with the sender, so the sender checks before each message that its file descriptor is still the pipe, and that
this is the process that was started and not a forked copy.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Literal, get_args

from joulediff.model.errors import JoulediffError
from joulediff.model.run import PASSES, PassName
from joulediff.model.units import format_si

_HEADER = struct.Struct("!2sBI")
_MARK = b"jd"
_STAGE, _RUN, _FAILED, _DONE, _ANSWER, _ATTACHED = range(1, 7)
# A run of 100,000 operators takes about a tenth of this.
MAX_RUN_BYTES = 1 << 30
_LIMITS = {
    _STAGE: 4096,
    _RUN: MAX_RUN_BYTES,
    _FAILED: 1 << 20,
    _DONE: 0,
    _ANSWER: 1 << 26,
    _ATTACHED: MAX_RUN_BYTES,
}
# More runs than any command or answer has.
MAX_ATTACHED = 2
# Exit code of a child whose pipe is closed: one that programs seldom use.
LOST_CODE = 75
_STAGE_CHARS = 100
_TEXT_CHARS, _TRACE_CHARS = 5_000, 100_000
# Shortest time between two reports of one stage, so that reports take no time from the program.
_STAGE_S = 0.25

FailureKind = Literal["error", "raised", "stopped", "fault"]


@dataclass(frozen=True, slots=True)
class Stage:
    """The child reports progress, in a pass of the recording once one has begun."""

    text: str
    share: float | None = None
    pass_name: PassName | None = None


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """The recording so far, in the archive's wire form: the changes since the previous one."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a recording ends early: an error, an exception that the program raised, a stop, or a fault in joulediff."""

    kind: FailureKind
    what: str
    fix: str | None = None
    exit_code: int = 1
    trace: str = ""
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The last recording was complete."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command, in plain data that its receiver checks; `attached` are runs in their wire form."""

    content: object
    attached: tuple[bytes, ...] = ()


Message = Stage | RunSoFar | Failure | Done | Answer


class Disconnected(BaseException):
    """The parent has ended, or the program closed the pipe. A BaseException, so that no handler of errors stops it."""


class InvalidMessage(Exception):
    """The bytes in the pipe are not a message."""


class Sender:
    """The child's end. A forked copy of the child that sends exits instead."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._pid = os.getpid()
        self._pipe = _identity(fd)
        self._shown: tuple[str, float] = ("", -math.inf)
        # Frames of two threads must not mix.
        self._writing = threading.RLock()
        os.register_at_fork(after_in_child=self._close_in_fork)

    def stage(self, text: str, share: float | None = None, pass_name: PassName | None = None) -> None:
        """Report progress, unless the parent is too busy to read: the program never waits for that."""
        now_s = time.monotonic()
        if text == self._shown[0] and now_s < self._shown[1] + _STAGE_S:
            return
        self._shown = (text, now_s)
        shown = None if share is None else min(max(share, 0.0), 1.0)
        frame = _frame(_STAGE, _to_json({"text": text[:_STAGE_CHARS], "share": shown, "pass_name": pass_name}))
        self._check()
        # A write of up to PIPE_BUF bytes is atomic, so an interrupt cannot split it.
        with self._writing:
            if len(frame) <= select.PIPE_BUF and select.select([], [self._fd], [], 0)[1]:
                self._write(frame)

    def run(self, wire: bytes) -> None:
        """Send a recording in its wire form."""
        _check_size(wire)
        self._send(_RUN, wire)

    def failed(self, failure: Failure) -> None:
        """Report why the recording ends early."""
        what, fix = failure.what[:_TEXT_CHARS], failure.fix and failure.fix[:_TEXT_CHARS]
        kept = replace(failure, what=what, fix=fix, trace=failure.trace[-_TRACE_CHARS:])
        self._send(_FAILED, _to_json(asdict(kept)))

    def answer(self, content: object, attached: Sequence[bytes] = ()) -> None:
        """Answer a command."""
        for wire in attached:
            _check_size(wire)
        for wire in attached:
            self._send(_ATTACHED, wire)
        self._send(_ANSWER, json.dumps(content).encode())

    def done(self) -> None:
        """Report that the last recording was complete."""
        self._send(_DONE, b"")

    def _send(self, kind: int, body: bytes) -> None:
        self._check()
        with _interrupts_deferred(), self._writing:
            self._write(_frame(kind, body))

    def _write(self, frame: bytes) -> None:
        left = memoryview(frame)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            raise Disconnected from error

    def _check(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)
        if _identity(self._fd) != self._pipe:
            raise Disconnected

    def _close_in_fork(self) -> None:
        """Close a forked copy's end, so that the parent sees the end of the child and not of its copies."""
        if self._fd >= 0 and _identity(self._fd) == self._pipe:
            os.close(self._fd)
        self._fd = -1


class Inbox:
    """The parent's end: reads messages from bytes as they arrive."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._attached: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield the messages that `chunk` completes."""
        self._bytes += chunk
        while len(self._bytes) >= _HEADER.size:
            mark, kind, size = _HEADER.unpack_from(self._bytes)
            if mark != _MARK or kind not in _LIMITS or size > _LIMITS[kind]:
                raise InvalidMessage
            end = _HEADER.size + size
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            if kind != _ATTACHED:
                message = _read(kind, body)
                if isinstance(message, Answer):
                    message, self._attached = replace(message, attached=tuple(self._attached)), []
                yield message
            elif len(self._attached) < MAX_ATTACHED:
                self._attached.append(body)
            else:
                raise InvalidMessage


class Commands:
    """The child's end of the pipe for commands."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._pipe = _identity(fd)

    def next(self) -> tuple[dict[str, object], list[bytes]]:
        """Return the next command and the runs attached to it; raises Disconnected when the parent is gone."""
        attached: list[bytes] = []
        kind, body = self._read_frame()
        while kind == _ATTACHED and len(attached) < MAX_ATTACHED:
            attached.append(body)
            kind, body = self._read_frame()
        try:
            found = json.loads(body) if kind == _ANSWER else None
        except (ValueError, RecursionError) as error:
            raise Disconnected from error
        if not isinstance(found, dict):
            raise Disconnected
        return found, attached

    def _read_frame(self) -> tuple[int, bytes]:
        if _identity(self._fd) != self._pipe:
            raise Disconnected
        mark, kind, size = _HEADER.unpack(self._read(_HEADER.size))
        if mark != _MARK or size > _LIMITS.get(kind, -1):
            raise Disconnected
        return kind, self._read(size)

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                chunk = os.read(self._fd, min(size - len(found), 1 << 20))
            except OSError as error:
                raise Disconnected from error
            if not chunk:
                raise Disconnected
            found += chunk
        return bytes(found)


def to_command(command: dict[str, object], attached: Sequence[bytes] = ()) -> bytes:
    """Return a command as it is sent; `attached` are runs in their wire form."""
    return b"".join(_frame(_ATTACHED, each) for each in attached) + _frame(_ANSWER, _to_json(command))


def _check_size(wire: bytes) -> None:
    if len(wire) > MAX_RUN_BYTES:
        raise JoulediffError(
            f"the recording has {format_si(len(wire), 'B')}, more than can be sent",
            fix="record a smaller step: fewer layers, or fewer tokens",
        )


def _frame(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(_MARK, kind, len(body)) + body


def _to_json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode()


def _read(kind: int, body: bytes) -> Message:
    if kind == _RUN:
        return RunSoFar(body)
    if kind == _DONE:
        return Done()
    try:
        fields = json.loads(body)
        if kind == _ANSWER:
            return Answer(fields)
        message = Stage(**fields) if kind == _STAGE else Failure(**fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidMessage from error
    if not (_is_stage(message) if isinstance(message, Stage) else _is_failure(message)):
        raise InvalidMessage
    return message


def _is_stage(stage: Stage) -> bool:
    number = isinstance(stage.share, int | float) and not isinstance(stage.share, bool)
    known = stage.pass_name is None or stage.pass_name in PASSES
    return isinstance(stage.text, str) and known and (stage.share is None or (number and 0 <= stage.share <= 1))


def _is_failure(failure: Failure) -> bool:
    texts = isinstance(failure.what, str) and isinstance(failure.trace, str)
    known = (
        failure.kind in get_args(FailureKind) and failure.exit_code in (1, 2) and type(failure.out_of_memory) is bool
    )
    return texts and known and (failure.fix is None or isinstance(failure.fix, str))


def _identity(fd: int) -> tuple[int, int] | None:
    """Return the identity of an open file: the program may close the pipe and open a file under its number."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C until a frame is written, and handle it then."""
    came = False
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread
        return

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.getsignal(signal.SIGINT)
    if before is None:  # not set from Python, so it cannot be restored
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
