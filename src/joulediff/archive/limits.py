"""How much a file may cost its reader: ten times its own size, and a little more.

Parquet can say very much in very few bytes. A reader cannot tell a repetitive run from an attack, so the
writer keeps to the limit: it pads a file that would be too small for what it holds.
"""

from __future__ import annotations

MANIFEST = "manifest.json"
PADDING = "padding"
# Well below where ZIP needs its 64-bit form; a run of 50,000 operators takes a thirtieth.
MAX_FILE_BYTES = 2**30
# A usual manifest takes 4 kB. A byte of it may become 32 in memory (`[[],[],[]]`).
MAX_MANIFEST_BYTES = 2**20
JSON_FACTOR = 32
# Enough for about 10,000 operators, however well they are packed.
FREE_BYTES = 64 * 2**20
MEMORY_FACTOR = 10


def table_entry(table: str) -> str:
    """Return the name of a table's entry in the container."""
    return f"{table}.parquet"


def missing_bytes(size_bytes: int, memory_bytes: int) -> int:
    """Return by how much a file is too small for the memory that reading it takes, beside itself."""
    needed = -(-(memory_bytes - FREE_BYTES) // (MEMORY_FACTOR - 1))
    return max(0, needed - size_bytes)
