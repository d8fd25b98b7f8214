"""A run as bytes between two processes, for an environment that has only Python's standard library.

The tables are JSON here. What arrives is checked like a file: the other process ran someone's program.
"""

from __future__ import annotations

import json

from joulediff.archive.plain import read_json
from joulediff.archive.tables import check_tables, from_tables, to_tables
from joulediff.errors import ArchiveError
from joulediff.runs import Run

_FIX = "record again, with the same version of joulediff on both sides"


def to_wire(run: Run) -> bytes:
    """Return a run as JSON text of plain ASCII."""
    tables = to_tables(run)
    return json.dumps({"manifest": tables.manifest, "tables": tables.columns}, separators=(",", ":")).encode("ascii")


def from_wire(data: bytes) -> Run:
    """Return the run in bytes that `to_wire` made; raises ArchiveError for any others."""
    try:
        found = read_json(data)
        if not isinstance(found, dict) or not isinstance(found.get("tables"), dict):
            raise ArchiveError("it holds no recorded run")
        return from_tables(check_tables(found.get("manifest"), found["tables"]))
    except ArchiveError as error:
        raise ArchiveError(f"the run that was sent cannot be read: {error.what}", fix=error.fix or _FIX) from error
    except MemoryError as error:
        raise ArchiveError("the run that was sent needs more memory than there is", fix=_FIX) from error
