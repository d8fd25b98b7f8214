"""The errors that users see. Each names the failure, the object that failed, and the next step.

The command line prints `str(error)` and nothing else, so a message must stand alone.
"""

from __future__ import annotations

import errno


class JoulediffError(Exception):
    """Any failure a user can act on. `exit_code` is the exit code of the command line."""

    exit_code = 1
    out_of_memory = False
    """The program, or a device, had no memory left."""
    output: tuple[str, ...] = ()
    """The last lines that the program printed, if they were not shown."""

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what, *([self.fix] if self.fix else [])]
        if self.output:
            lines += ["the last lines that the program printed:", *(f"  {line}" for line in self.output)]
        return "\n  ".join(lines)


# The names of exceptions that say that memory ran out, of Python and of frameworks.
OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError", "ResourceExhaustedError")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an exception says that memory ran out: by its type, or by the text of a device library."""
    if isinstance(error, MemoryError) or (isinstance(error, JoulediffError) and error.out_of_memory):
        return True
    text = str(error).lower()
    return type(error).__name__ in OUT_OF_MEMORY or "out of memory" in text or "can't allocate memory" in text


class WrongType(JoulediffError, TypeError):
    """A function of joulediff was given a value of a type that it cannot use."""


def full_disk(error: BaseException) -> JoulediffError | None:
    """Return the error for an exception that says that a disk, a quota or the largest size of a file is full."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return None
    place = f" {error.filename}" if error.filename else ""
    return JoulediffError(
        f"cannot write{place}: {error.strerror}",
        fix="free space there, in the folder of temporary files (TMPDIR) and where reports are written",
    )


class MeterUnavailable(JoulediffError):
    """A meter cannot be opened on this machine."""


class MeterFailed(JoulediffError):
    """A meter stopped answering, or answered nonsense, after it had been opened."""


class NotCovered(JoulediffError):
    """Energy was asked for a time in which the meter has no readings."""

    exit_code = 2


class ProgramError(JoulediffError):
    """The user's program cannot be found, loaded or run."""


class ArchiveError(JoulediffError):
    """A run cannot be written, or a file is not a recorded run."""
