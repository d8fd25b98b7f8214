"""Writes files whole, and gives places for files that exist for a while: nothing is left if a process is killed.

Where the system allows it, a file that is being written has no name, so nobody has to remove it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Processes of the same user can open a file of another one here, whether it has a name or not.
_OPEN_FILES = Path("/proc/self/fd")
# Removes a folder when the process that holds the other end of its standard input has ended.
_REMOVE = "import shutil, sys; sys.stdin.buffer.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


def write_whole(target: Path, data: bytes) -> None:
    """Write a file completely or not at all; a file that is there is replaced. Raises OSError if it cannot be written.

    A process that is killed meanwhile leaves the previous file or none. On a file system without unnamed files, and in
    the microseconds before the file gets its name, it also leaves a scratch file beside it.
    """
    scratch = target.with_name(f".joulediff-{secrets.token_hex(8)}.tmp")
    try:
        if not _write_unnamed(scratch, data):
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(target)
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _write_unnamed(place: Path, data: bytes) -> bool:
    """Write a file that gets its name at the end; return False if the system or the file system cannot."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    if not unnamed or not _OPEN_FILES.exists():
        return False
    try:
        fd = os.open(place.parent, unnamed | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError:  # the reason, if it is another one, is that of writing the named file
        return False
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
        try:
            # With `src_dir_fd` Python follows the link, which names the open file; a full path needs no folder.
            os.link(_OPEN_FILES / str(fd), place, src_dir_fd=fd)
        except OSError:  # not allowed in some containers
            return False
    return True


@contextmanager
def open_scratch_file() -> Iterator[Path]:
    """Give the path of a new file for this process and other processes of the user, which is removed afterwards."""
    if not _OPEN_FILES.exists():
        with open_scratch_folder() as folder:
            yield folder / "scratch"
        return
    with tempfile.TemporaryFile(prefix="joulediff-") as file:
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


@contextmanager
def open_scratch_folder() -> Iterator[Path]:
    """Give an empty folder that is removed afterwards, also if this process is killed."""
    folder = tempfile.mkdtemp(prefix="joulediff-")
    words = [sys.executable, "-I", "-S", "-c", _REMOVE, folder]
    try:
        with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True):
            try:
                yield Path(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:  # if the process cannot be started
        shutil.rmtree(folder, ignore_errors=True)
