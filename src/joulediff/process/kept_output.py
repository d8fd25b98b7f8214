"""The output of a program that is not shown: its last lines explain a failure.

It is written to a file without a name. Reading a pipe would take CPU time while the energy of the program is measured.
"""

from __future__ import annotations

import os
import re
import tempfile

_MOST_LINES = 10
_MOST_CHARS = 200
_TAIL_BYTES = 1 << 14
# Colours and movements of the cursor.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")


class KeptOutput:
    """A file for standard output and standard error, which `with` closes."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="joulediff-")  # noqa: SIM115 - `with` closes it

    def __enter__(self) -> KeptOutput:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        """Return the descriptor to write to."""
        return self._file.fileno()

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines that are not blank, as plain text."""
        size = os.fstat(self.fileno()).st_size
        tail = os.pread(self.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
        lines = [_as_seen(line) for line in tail.split("\n")]
        return tuple([line for line in lines if line][-_MOST_LINES:])


def _as_seen(line: str) -> str:
    """Return what a terminal shows of a line in the end: a progress bar writes over itself."""
    shown = _ESCAPES.sub("", line).rstrip().rpartition("\r")[2]
    plain = "".join(c if c.isprintable() else " " for c in shown).rstrip()
    return plain if len(plain) <= _MOST_CHARS else plain[: _MOST_CHARS - 1] + "…"
