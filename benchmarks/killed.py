"""Kill joulediff or its programs at random moments, and look for what is left 5 s later.

    python benchmarks/killed.py [--count 40] [--seed 0] [--json FILE]

Each try starts `measure`, `record` or `diff` on programs that start processes of their own, waits for a random part of
the command's usual time, and sends SIGKILL to joulediff or to a random process below it. If joulediff itself was not
killed, it may first end as it does after an error. Left over are: running processes of the try, files in its folder for
temporary files and in shared memory, and files beside the recordings. Every recording must be readable. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from joulediff.archive.reader import load
from joulediff.model.errors import JoulediffError

LIMIT_S = 5.0
# An end after an error: joulediff may save the other program's recording first.
END_LIMIT_S = 60.0
TOKEN = "JOULEDIFF_KILLED_TRY"
SHARED_MEMORY = Path("/dev/shm")
PROGRAM = """
import multiprocessing, subprocess, sys
import torch

torch.manual_seed(0)
torch.set_num_threads(1)


def build():
    x = torch.randn(256, 256)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    multiprocessing.get_context("fork").Process(target=__import__("time").sleep, args=(600,), daemon=True).start()
    return lambda: torch.nn.functional.gelu(x @ x).sum()
"""
SHORT = ["--seconds", "1", "--wait", "0"]
COMMANDS = {
    "measure": ["measure", "one.py", *SHORT],
    "record": ["record", "one.py", "-o", "one.jd", *SHORT],
    "diff": ["diff", "one.py", "two.py", "--keep", "kept", *SHORT],
}


@dataclass(frozen=True, slots=True)
class Try:
    """One kill. `processes` and `files` are left over."""

    command: str
    victim: str
    after_s: float
    processes: tuple[str, ...]
    files: tuple[str, ...]
    unreadable: tuple[str, ...]
    recordings: int

    @property
    def is_clean(self) -> bool:
        return not (self.processes or self.files or self.unreadable)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    usual_s = {name: run_whole(name) for name in COMMANDS}
    print("usual times:", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in usual_s.items()))
    tries = []
    for number in range(options.count):
        command = list(COMMANDS)[number % len(COMMANDS)]
        found = kill_once(command, chance.uniform(0.05, 1.0) * usual_s[command], chance, kills_parent=number % 2 == 0)
        tries.append(found)
        left = [*found.processes, *found.files, *(f"unreadable {name}" for name in found.unreadable)]
        print(f"{number + 1:3} {found.command:8} {found.victim:28} after {found.after_s:5.1f} s "
              f"{found.recordings} recordings  {'; '.join(left) or 'nothing left'}", flush=True)  # fmt: skip
    clean = sum(each.is_clean for each in tries)
    print(f"{clean} of {len(tries)} left nothing after {LIMIT_S:.0f} s, and only readable recordings")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in tries], indent=1))
    sys.exit(clean < len(tries))


def run_whole(command: str) -> float:
    """Return the seconds of a command that nobody disturbs."""
    with tempfile.TemporaryDirectory() as folder:
        begin_s = time.monotonic()
        start(command, Path(folder), "whole").wait()
        return time.monotonic() - begin_s


def start(command: str, folder: Path, token: str) -> subprocess.Popen[bytes]:
    for name in ("one.py", "two.py"):
        (folder / name).write_text(PROGRAM)
    (folder / "tmp").mkdir()
    env = {**os.environ, TOKEN: token, "TMPDIR": str(folder / "tmp"), "JOULEDIFF_CACHE": str(folder / "cache")}
    words = [sys.executable, "-m", "joulediff", *COMMANDS[command]]
    return subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_once(command: str, after_s: float, chance: random.Random, *, kills_parent: bool) -> Try:
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name), shared_memory()
        parent = start(command, folder, token)
        with suppress(subprocess.TimeoutExpired):
            parent.wait(after_s)
        below = {pid: text for pid, text in processes_of(token).items() if pid != parent.pid}
        pid = parent.pid if kills_parent or not below else chance.choice(sorted(below))
        victim = "joulediff" if pid == parent.pid else below[pid]
        if parent.poll() is not None:
            victim = "(had ended)"
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            parent.wait(END_LIMIT_S)
        end_s = time.monotonic() + LIMIT_S
        while left(folder, token, before) != ((), ()) and time.monotonic() < end_s:
            time.sleep(0.1)
        processes, files = left(folder, token, before)
        for each in processes_of(token):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        recordings = [*folder.rglob("*.jd")]
        unreadable = [path.name for path in recordings if not is_readable(path)]
        return Try(command, victim, after_s, processes, files, tuple(unreadable), len(recordings))


def left(folder: Path, token: str, before: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the running processes of a try, and the files that should not be there."""
    known = {"one.py", "two.py", "tmp", "cache", "kept", "__pycache__"}
    files = [path.relative_to(folder).as_posix() for path in (folder / "tmp").rglob("*")]
    files += [path.name for path in folder.iterdir() if path.name not in known and path.suffix != ".jd"]
    files += [path.name for path in folder.glob("kept/*") if path.suffix != ".jd"]
    files += [f"shared memory {name}" for name in shared_memory() - before]
    return tuple(processes_of(token).values()), tuple(files)


def processes_of(token: str) -> dict[int, str]:
    """Return the running processes with this value of the variable, by id."""
    found, mark = {}, f"{TOKEN}={token}".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = describe((entry / "cmdline").read_bytes().decode().split("\0"))
    return found


def describe(words: list[str]) -> str:
    """Return a short name of a process."""
    if any(word.endswith("guard.py") for word in words):
        return "guard"
    if "-m" in words:
        return " ".join(words[words.index("-m") + 1 :][:2])
    if any(word.endswith("import_hook.py") for word in words):
        return "program"
    return " ".join(Path(word).name for word in words)[:28]


def shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def is_readable(path: Path) -> bool:
    try:
        load(path)
    except JoulediffError:
        return False
    return True


if __name__ == "__main__":
    main()
