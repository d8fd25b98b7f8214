"""Memory that a program frees stays with its process while it is measured.

glibc returns the end of its heap to the system when enough of it is free, and each page costs a fault when it is used
again. Whether that happens in every step or in none depends on where a few small blocks came to lie, so two processes
of the same program differ: steps with temporary tensors of 16 MB took 49 to 219 ms on a CPU, and 27 to 31 ms with freed
memory kept. Both limits are set for a process as a whole, before the program starts, and alike on both sides of a diff.
A program whose user set them keeps them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from joulediff.model.measurement import Condition

NAME = "freed memory"
_MIB = 2**20
# Blocks of at least this size are still taken from the system and returned to it: the limit up to which glibc moves its
# own threshold, and the largest that it accepts.
_MMAP_THRESHOLD_BYTES = 32 * _MIB
# Free memory at the end of the heap above this is returned.
_TRIM_THRESHOLD_BYTES = 1024 * _MIB
# Parameters of `mallopt` in malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")

_is_kept = False


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep memory that it frees, from now on; return whether it does.

    Other C libraries, and limits that the user set, are left as they are.
    """
    global _is_kept
    if not _is_set_by_user(environ):
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return _is_kept
        done = (
            mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES),
            mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        )
        _is_kept = _is_kept or all(done)
    return _is_kept


def _is_set_by_user(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in _VARIABLES) or "glibc.malloc." in environ.get("GLIBC_TUNABLES", "")


def judge_freed_memory() -> Condition:
    """Return what happens to the memory that this process frees; either way is a fact, and no fault."""
    limits = f"up to {_TRIM_THRESHOLD_BYTES // _MIB} MiB, in blocks below {_MMAP_THRESHOLD_BYTES // _MIB} MiB"
    return Condition(NAME, True, f"kept by the process {limits}" if _is_kept else "as the C library does by itself")
