"""A program that runs under a guard: nothing of it is left when it, this process or both have ended.

This process waits for the guard, and the guard for the program and every process below it (`guard.py`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from joulediff.model.errors import JoulediffError
from joulediff.process.exit_reasons import explain_exit
from joulediff.process.guard import ENDED, REFUSED, STARTED, Guard

# Longest wait for a program to end that was asked to, or whose pipe is closed: only the program itself can delay that.
END_S = 5.0
_GUARD = Path(__file__).resolve().parent / "guard.py"
_LINE_BYTES = 64


class GuardedProgram:
    """A program under a guard. Signals that ask this process to end are sent to it, until `close`."""

    def __init__(self) -> None:
        self.asked: int | None = None
        """The signal that asked this process to end, if one did."""
        self.pid = 0
        self.was_killed = False
        """Whether it was killed from here."""
        self.overdue_s = float("inf")
        """When a program that was asked to end must have ended."""
        self._guard: subprocess.Popen[bytes] | int | None = None
        self._told = b""
        self._code: int | None = None
        # Before the program exists: a signal in between must not leave it behind.
        _signals.add(self)

    def start(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int],
        env: Mapping[str, str] | None,
        output: int | None = None,
    ) -> None:
        """Start a command in the program's process; raises OSError if the system refuses.

        Its standard output and standard error go to `output`, or where those of this process go.
        """
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        words = [sys.executable, "-I", "-S", str(_GUARD), str(orders), str(reports), tempfile.gettempdir()]
        try:
            self._guard = subprocess.Popen(
                [*words, *command], pass_fds=(orders, reports, *pass_fds), env=env, stdout=output, stderr=output
            )
        finally:
            os.close(orders)
            os.close(reports)
        self._begin()

    def fork(self) -> bool:
        """Continue as the program in a new process, and as its parent in this one; return True in the parent."""
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        guard = os.fork()
        if guard == 0:
            os.close(self._orders)
            os.close(self._reports)
            inside = Guard(orders, reports, tempfile.gettempdir())
            if not inside.fork():
                _signals.remove(self)
                return False
            inside.watch()
            os._exit(0)
        os.close(orders)
        os.close(reports)
        self._guard = guard
        self._begin()
        return True

    def _begin(self) -> None:
        what, number = self._read_report(None) or (REFUSED, 0)
        if what != STARTED:
            self._wait_for_guard()
            raise OSError(number, os.strerror(number) if number else "the guard of the program has ended")
        self.pid = number
        if self.asked is not None:
            self.kill()

    def poll(self) -> int | None:
        """Return the exit code of the program, or the negative number of its signal; None while it runs."""
        return self._read_code(0.0)

    def wait(self, limit_s: float | None) -> int | None:
        """Return the exit code once nothing of the program is left; None if it had to be killed here."""
        code = self._read_code(limit_s)
        if code is None:
            self.kill()
            code = self._read_code(None)
        self._wait_for_guard()
        return None if self.was_killed else code

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, if it still runs."""
        with suppress(OSError):
            os.write(self._orders, bytes([number]))

    def kill(self) -> None:
        """Kill the program if it still runs."""
        if self.pid and self.poll() is None:
            self.was_killed = True
            self.send_signal(signal.SIGKILL)

    def forward_signal(self, number: int) -> None:
        """Forward a signal to the program, and kill the program at the second one."""
        is_second, self.asked = self.asked is not None, self.asked or number
        if not self.pid:
            return
        if is_second:
            self.kill()
        elif number != signal.SIGINT:
            self.send_signal(signal.SIGTERM)
            self.overdue_s = time.monotonic() + END_S
        elif not terminal_signals_program():
            self.send_signal(number)

    def close(self) -> None:
        """End the program if it still runs, and forward no more signals."""
        if self.pid:
            self.kill()
            self.wait(END_S)
        for fd in (self._orders, self._reports):
            os.close(fd)
        _signals.remove(self)

    def _read_code(self, limit_s: float | None) -> int | None:
        if self._code is None and (found := self._read_report(limit_s)) is not None:
            what, number = found
            # Without a report the guard was killed, and the kernel killed the program.
            self._code = os.waitstatus_to_exitcode(number) if what == ENDED else -signal.SIGKILL
            if what != ENDED:
                with suppress(OSError):
                    os.kill(self.pid, signal.SIGKILL)
        return self._code

    def _read_report(self, limit_s: float | None) -> tuple[str, int] | None:
        """Return the next report of the guard, within a time; an empty one if the guard has ended."""
        while b"\n" not in self._told:
            if not select.select([self._reports], [], [], limit_s)[0]:
                return None
            chunk = os.read(self._reports, _LINE_BYTES)
            if not chunk:
                return "", 0
            self._told += chunk
        line, _, self._told = self._told.partition(b"\n")
        what, _, number = line.decode().partition(" ")
        return what, int(number)

    def _wait_for_guard(self) -> None:
        if isinstance(self._guard, int):
            with suppress(ChildProcessError):
                os.waitpid(self._guard, 0)
        elif self._guard is not None:
            self._guard.wait()


def continue_guarded(stage: str) -> int | None:
    """Continue in a new process under a guard: return its exit code in this process, and None in the new one.

    `stage` says what the new process does, for the error if a signal ends it. Without `fork` this process goes on.
    """
    if not hasattr(os, "fork"):
        return None
    program = GuardedProgram()
    try:
        if not program.fork():
            return None
    except OSError as error:
        raise JoulediffError(f"cannot start a process ({error.strerror})", fix="end other processes") from error
    code = program.wait(None)
    program.close()
    if code is None or code < 0:
        raise explain_exit(stage, code, program.asked)
    return code


class _Signals:
    """Forwards signals that ask this process to end to all running programs."""

    def __init__(self) -> None:
        self._programs: list[GuardedProgram] = []
        self._before: dict[int, Any] = {}

    def add(self, program: GuardedProgram) -> None:
        self._programs.append(program)
        if len(self._programs) > 1:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)

    def remove(self, program: GuardedProgram) -> None:
        self._programs.remove(program)
        if not self._programs:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _end(self, number: int, _: FrameType | None) -> None:
        for program in list(self._programs):
            program.forward_signal(number)


_signals = _Signals()


def terminal_signals_program() -> bool:
    """Return whether this process is in a terminal's foreground, so that the terminal signals the program too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
