"""The pipe between child and parent: complete messages or none, whatever the program does to it."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.model.errors import JoulediffError
from joulediff.process.protocol import (
    Answer,
    Disconnected,
    Done,
    Failure,
    Inbox,
    InvalidMessage,
    Message,
    RunSoFar,
    Sender,
    Stage,
)

HEADER = struct.Struct("!2sBI")


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """Read and write ends; a test that closes one takes it out."""
    open_ends = list(os.pipe())
    yield open_ends
    for fd in open_ends:
        os.close(fd)


def frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(b"jd", kind, len(body)) + body


def received(fd: int) -> list[Message]:
    return list(Inbox().feed(os.read(fd, 1 << 16)))


def test_messages_arrive_as_they_were_sent(ends: list[int]) -> None:
    sender = Sender(ends[1])
    failure = Failure("error", "the step raised ± ☃", "mend it", exit_code=2, trace="Traceback\n  line")
    sender.stage("measuring", 0.5)
    sender.run(b"{}")
    sender.failed(failure)
    sender.done()
    assert received(ends[0]) == [Stage("measuring", 0.5), RunSoFar(b"{}"), failure, Done()]


def test_messages_arrive_in_pieces(ends: list[int]) -> None:
    sender, inbox = Sender(ends[1]), Inbox()
    sender.run(b"abc")
    sender.stage("next")
    data = os.read(ends[0], 1 << 16)
    assert [m for byte in data for m in inbox.feed(bytes([byte]))] == [RunSoFar(b"abc"), Stage("next")]


def test_a_stage_is_reported_again_only_after_a_while(ends: list[int]) -> None:
    sender = Sender(ends[1])
    for share in (0.1, 0.2, 0.3):
        sender.stage("measuring", share)
    sender.stage("done")
    assert received(ends[0]) == [Stage("measuring", 0.1), Stage("done")]


def test_a_share_stays_a_share(ends: list[int]) -> None:
    sender = Sender(ends[1])
    sender.stage("a", 1.5)
    sender.stage("b", -1e-9)
    assert received(ends[0]) == [Stage("a", 1.0), Stage("b", 0.0)]


def test_long_texts_are_cut(ends: list[int]) -> None:
    sender = Sender(ends[1])
    sender.stage("x" * 10_000)
    sender.failed(Failure("error", "y" * 10_000, trace="z" * 20_000))
    stage, failure = received(ends[0])
    assert isinstance(stage, Stage)
    assert isinstance(failure, Failure)
    assert len(stage.text) <= 100
    assert len(failure.what) <= 5_000


def test_a_parent_that_does_not_read_does_not_stop_the_program(ends: list[int]) -> None:
    sender = Sender(ends[1])
    for number in range(10_000):
        sender.stage(f"stage {number}")
    assert received(ends[0])[0] == Stage("stage 0")


def test_a_run_that_is_too_large_is_refused(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.process.protocol.MAX_RUN_BYTES", 10)
    with pytest.raises(JoulediffError, match="more than can be sent"):
        Sender(ends[1]).run(b"x" * 11)


def test_a_dead_parent_is_noticed(ends: list[int]) -> None:
    sender = Sender(ends[1])
    os.close(ends.pop(0))
    with pytest.raises(Disconnected):
        sender.stage("anyone?")
    with pytest.raises(Disconnected):
        sender.run(b"{}")


def test_a_pipe_that_the_program_closed_is_noticed(ends: list[int]) -> None:
    sender = Sender(ends[1])
    os.close(ends.pop(1))
    with pytest.raises(Disconnected):
        sender.stage("anyone?")


def test_a_file_under_the_number_of_the_pipe_is_not_written_to(ends: list[int], tmp_path: Path) -> None:
    sender = Sender(ends[1])
    with (tmp_path / "mine").open("wb") as file:
        os.dup2(file.fileno(), ends[1])
    with pytest.raises(Disconnected):
        sender.run(b"secret")
    assert (tmp_path / "mine").read_bytes() == b""


def test_ctrl_c_waits_until_a_message_is_whole(ends: list[int]) -> None:
    sender, inbox = Sender(ends[1]), Inbox()
    body = b"x" * (1 << 20)  # more than a pipe holds: the sender is in the middle of it until somebody reads
    messages: list[Message] = []

    def interrupt_and_read() -> None:
        list(inbox.feed(os.read(ends[0], 1 << 10)))  # so it has begun
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while not messages:
            messages.extend(inbox.feed(os.read(ends[0], 1 << 16)))

    reader = threading.Thread(target=interrupt_and_read)
    interrupted = False
    try:
        reader.start()
        sender.run(body)
    except KeyboardInterrupt:
        interrupted = True
    reader.join()
    assert interrupted
    assert messages == [RunSoFar(body)]


def test_a_forked_copy_cannot_send() -> None:
    code = """
import os
from joulediff.process.protocol import Sender
ours, theirs = os.pipe()
sender = Sender(theirs)
if (copy := os.fork()) == 0:
    sender.run(b"copy")
    os.write(1, b"the copy lives")
os.waitpid(copy, 0)
sender.run(b"own")
os.write(1, os.read(ours, 100)[7:])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    assert done.stdout == b"own"


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is no message",
        HEADER.pack(b"jd", 9, 0),
        HEADER.pack(b"jd", 1, 5000),
        HEADER.pack(b"jd", 2, (1 << 30) + 1),
        frame(4, b"x"),
        *(
            HEADER.pack(b"jd", 1, len(body)) + body
            for body in (b"{", b"[]", b'{"text": 3}', b'{"text": "a", "share": 2}')
        ),
        frame(1, b"{"),
        frame(1, b"[]"),
        frame(1, b'{"text": 3}'),
        frame(1, b'{"text": "a", "share": 2}'),
        frame(1, b'{"text": "a", "share": NaN}'),
        frame(1, b'{"words": "a"}'),
        frame(3, b'{"sort": "x", "what": "a"}'),
        frame(3, b'{"sort": "error"}'),
        frame(3, b'{"sort": "error", "what": "a", "exit_code": 77}'),
    ],
)
def test_bytes_that_are_not_a_message_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage):
        list(Inbox().feed(data))


@given(st.binary(max_size=200), st.integers(0, 6), st.integers(0, 60))
def test_any_bytes_are_messages_or_refused(body: bytes, kind: int, size: int) -> None:
    for data in (body, HEADER.pack(b"jd", kind, size) + body):
        try:
            found = list(Inbox().feed(data))
        except InvalidMessage:
            continue
        assert all(isinstance(m, Stage | RunSoFar | Failure | Done | Answer) for m in found)
