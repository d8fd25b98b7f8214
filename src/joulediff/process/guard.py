"""Runs a program, and ends it with every process that it started once it or joulediff has ended.

Two processes of their own between joulediff and the program, an outer and an inner one. They work while the program
holds the interpreter's lock, and whichever one process is killed. On Linux both are subreapers, so no process below can
leave them. If the outer one is killed, the inner one ends the program; if the inner one is killed, the kernel kills the
program and the outer one ends the rest. On other systems they find only processes whose parents run.

It is run by its path, in isolated mode, so it uses the standard library only.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from contextlib import suppress

STARTED, REFUSED, ENDED = "started", "refused", "ended"
# Time for processes to end by themselves once the program has ended: multiprocessing's tracker takes milliseconds.
SETTLE_S = 0.3
# Time between asking a process to end and killing it.
GRACE_S = 1.0
# A process in an uninterruptible wait cannot be killed.
GIVE_UP_S = 10.0
_POLL_S = 0.02
_CANNOT_START = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python ignores these two in its own process.
_IGNORED = [number for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)) if number is not None]


def main() -> None:
    """Guard the command in `sys.argv`, after the numbers of two pipes and the folder for temporary files."""
    orders, reports, folder, *command = sys.argv[1:]
    guard = Guard(int(orders), int(reports), folder)
    reader, writer = os.pipe()  # a successful exec closes it
    if not guard.fork():
        try:
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            os.execv(command[0], command)  # noqa: S606
        except OSError as error:
            os.write(writer, str(error.errno or errno.EIO).encode())
        finally:
            os._exit(_CANNOT_START)
    os.close(writer)
    if refused := os.read(reader, 16).decode():
        guard.report(REFUSED, int(refused))
    else:
        guard.watch()


class Guard:
    """A process that guards one program.

    Each byte of the pipe `orders` is the number of a signal for the program; its end is the end of joulediff. Lines of
    the pipe `reports` have the id of the program, and how it ended.
    """

    def __init__(self, orders: int, reports: int, folder: str) -> None:
        self._orders, self._reports, self._folder = orders, reports, folder
        for fd in (orders, reports):
            os.set_inheritable(fd, False)
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)
        self._outer = 0
        self._program = 0
        self._has_ended = False

    def fork(self) -> bool:
        """Fork a process for the program; return True in the inner guard, and False in the program.

        The outer guard does not return: it ends once nothing is left below it.
        """
        handlers = {number: signal.signal(number, _wake_up) for number in (*_ENDING, signal.SIGCHLD)}
        before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._fork_inner()
        guard = os.getpid()
        self._program = os.fork()
        if self._program:
            os.write(self._tells_outer, str(self._program).encode())
            return True
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(_CANNOT_START)
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for fd in (self._wake, self._waker, self._orders, self._reports, self._tells_outer):
            os.close(fd)
        return False

    def _fork_inner(self) -> None:
        """Continue as the inner guard in a new process; this one becomes the outer guard."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._outer = os.getpid()
        told, self._tells_outer = os.pipe()
        inner = os.fork()
        if inner:
            os.close(self._tells_outer)
            self._watch_inner(inner, told)
            os._exit(0)
        os.close(told)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGCHLD)  # wakes `watch` up

    def _watch_inner(self, inner: int, told: int) -> None:
        """Return once the inner guard and all processes below have ended. `told` gives the id of the program."""
        signal.set_wakeup_fd(-1)
        self._leave_terminal(told, self._reports)
        os.waitpid(inner, 0)
        self._program = int(os.read(told, 16) or 0)
        self._end_the_rest()
        self._reap()
        self._remove_scratch()

    def report(self, what: str, number: int) -> None:
        """Send one line to joulediff, if it is there."""
        with suppress(OSError):
            os.write(self._reports, f"{what} {number}\n".encode())

    def watch(self) -> None:
        """Return once the program and all processes below it have ended."""
        self._leave_terminal(self._orders, self._reports, self._wake, self._waker)
        self.report(STARTED, self._program)
        is_ordered = True
        while is_ordered and not self._has_ended and os.getppid() == self._outer:
            ready, _, _ = select.select([self._orders, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            if self._orders in ready:
                orders = os.read(self._orders, 64)
                is_ordered = bool(orders)
                for number in orders:
                    self._send(self._program, number)
        if not self._has_ended:
            self._end_program()
        self._end_the_rest()
        self._remove_scratch()

    def _leave_terminal(self, *kept: int) -> None:
        """Have no part in the terminal's signals, and close all files but those `kept`: they end with the program."""
        with suppress(OSError):
            os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        last = 2
        for fd in sorted(kept):
            os.closerange(last + 1, fd)
            last = fd
        os.closerange(last + 1, os.sysconf("SC_OPEN_MAX") if sys.platform != "linux" else 1 << 16)

    def _reap(self) -> None:
        """Collect processes that ended, and report the end of the program."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._program:
                    self._has_ended = True
                    self.report(ENDED, status)

    def _send(self, pid: int, number: int) -> None:
        """Signal a process; the program only until it is reaped, as its number may be another's then."""
        if pid != self._program or not self._has_ended:
            with suppress(OSError):
                os.kill(pid, number)

    def _end_program(self) -> None:
        """Ask the program to end, and kill it if it does not."""
        self._send(self._program, signal.SIGTERM)
        end_s = time.monotonic() + GRACE_S
        while not self._has_ended and time.monotonic() < end_s + GIVE_UP_S:
            if time.monotonic() > end_s:
                self._send(self._program, signal.SIGKILL)
            time.sleep(_POLL_S)
            self._reap()

    def _end_the_rest(self) -> None:
        """Let processes that the program left end by themselves, then ask them, then kill them.

        Those that ignore the request are killed last: some free the shared memory that killed ones leave.
        """
        asked: set[int] = set()
        begin_s = time.monotonic()
        while left := _processes_below(os.getpid()):
            spent_s = time.monotonic() - begin_s - SETTLE_S
            for pid in left:
                if spent_s > 2 * GRACE_S or (spent_s > GRACE_S and not _ignores_sigterm(pid)):
                    self._send(pid, signal.SIGKILL)
                elif spent_s > 0 and pid not in asked:
                    asked.add(pid)
                    self._send(pid, signal.SIGTERM)
            if spent_s > GIVE_UP_S:
                return
            time.sleep(_POLL_S)
            self._reap()

    def _remove_scratch(self) -> None:
        """Remove the scratch folders of a program that could not do so itself (the traced pass makes some)."""
        import shutil

        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith(f"joulediff-{self._program}-"):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _wake_up(*_: object) -> None:
    """Do nothing: the number of the signal arrives in the pipe of `set_wakeup_fd`."""


def _prctl(option: int, value: int) -> None:
    """Set a property of this process, on Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    with suppress(OSError, AttributeError):  # a C library without prctl
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _processes_below(root: int) -> list[int]:
    """Return the running processes that descend from `root`.

    A process counts as ended when its first thread has, while its other threads may still be the parents of others.
    """
    children: dict[int, list[int]] = {}
    ended = set()
    for pid, parent, is_running in _read_processes():
        children.setdefault(parent, []).append(pid)
        if not is_running:
            ended.add(pid)
    found, left = [], [root]
    while left:
        below = children.pop(left.pop(), [])
        found += [pid for pid in below if pid not in ended]
        left += below
    return found


def _read_processes() -> list[tuple[int, int, bool]]:
    """Return the id of each process, that of its parent, and whether it runs."""
    if sys.platform != "linux":
        return _list_processes()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes as long to load as Python
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                found.append((int(name), int(parent), state not in (b"Z", b"X")))
    return found


def _list_processes() -> list[tuple[int, int, bool]]:
    import subprocess

    with subprocess.Popen(["/bin/ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE) as listing:
        text = listing.communicate()[0].decode()
    rows = [(int(pid), int(parent), not state.startswith("Z")) for pid, parent, state in _cells(text)]
    return [row for row in rows if row[0] != listing.pid]


def _cells(text: str) -> list[list[str]]:
    return [cells for line in text.splitlines() if len(cells := line.split()) == 3]


def _ignores_sigterm(pid: int) -> bool:
    if sys.platform != "linux":
        return False
    with suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


if __name__ == "__main__":
    main()
