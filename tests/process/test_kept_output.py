"""The output of a program that is not shown, and its last lines."""

from __future__ import annotations

import os

from joulediff.model.errors import JoulediffError
from joulediff.process.kept_output import KeptOutput


def last_lines(written: bytes) -> tuple[str, ...]:
    with KeptOutput() as kept:
        os.write(kept.fileno(), written)
        return kept.last_lines()


def test_nothing_was_printed() -> None:
    assert last_lines(b"") == ()
    assert last_lines(b"\n \n\r\n") == ()


def test_the_last_ten_lines_are_kept() -> None:
    written = b"".join(b"line %d\n" % number for number in range(100_000))
    assert last_lines(written) == tuple(f"line {number}" for number in range(99_990, 100_000))


def test_a_line_is_what_a_terminal_shows_of_it_in_the_end() -> None:
    assert last_lines(b" 10%|#\r 20%|##\r 30%|###\ndone\n") == (" 30%|###", "done")
    assert last_lines(b"\x1b[31mred\x1b[0m \x07bell\n") == ("red  bell",)
    assert last_lines("größe ±\n".encode()) == ("größe ±",)
    assert last_lines(b"\xff\xfe broken") == ("\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} broken",)


def test_a_long_line_is_cut() -> None:
    (line,) = last_lines(b"x" * 100_000 + b"\n")
    assert len(line) == 200
    assert line.endswith("x…")


def test_two_writers_share_the_file() -> None:
    with KeptOutput() as kept:
        other = os.dup(kept.fileno())
        os.write(kept.fileno(), b"one\n")
        os.write(other, b"two\n")
        os.write(kept.fileno(), b"three\n")
        os.close(other)
        assert kept.last_lines() == ("one", "two", "three")


def test_an_error_ends_with_the_output() -> None:
    error = JoulediffError("it failed", fix="try again")
    error.output = ("loading", "no data")
    assert str(error) == "it failed\n  try again\n  the last lines that the program printed:\n    loading\n    no data"
