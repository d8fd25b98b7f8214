"""A run in one file, `.jd`, and as bytes between two processes.

Both forms hold the same tables (`snapshot`) and pass the same checks (`check`); neither is trusted.
"""

from joulediff.archive.reader import load
from joulediff.archive.snapshot import Snapshot, from_wire, to_wire
from joulediff.archive.writer import save, why_unwritable

__all__ = ["Snapshot", "from_wire", "load", "save", "to_wire", "why_unwritable"]
