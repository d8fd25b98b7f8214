"""Loads thousands of broken, hostile and merely odd archives, and holds each load to what the format promises.

    python benchmarks/fuzz_archive.py [--count 10000] [--seed 0] [--workers 2] [--only SEED]

Every load must return a run or raise ArchiveError: no other exception, no crash of the process, no more than
`LIMIT_S` seconds, and no more memory than ten times the file and `FREE_BYTES`. A run that comes back must be one
that can be walked, written and read again. Mutant number n is made by seed n alone, so any finding can be
repeated with `--only n`. Loads run in processes of their own; one that dies is noted and replaced. Linux only:
the peak of memory is read from /proc. Exits with 1 if any promise was broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from archive_mutants import KINDS, mutate
from archive_runs import large_run, small_run
from joulediff.archive.container import FREE_BYTES, MEMORY_FACTOR, pack
from joulediff.archive.reader import load
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.archive.writer import to_entries
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Run

LIMIT_S = 10.0
MAKE_LIMIT_S = 300.0
BATCH = 250
# Larger runs are bombs that fit: writing them again would only take memory that was not measured.
MAX_JUDGED = 100_000
# What Python and the allocators keep from one load to the next, and pages that are touched once.
SLACK_BYTES = 24 * 2**20


@dataclass
class Tally:
    runs: int = 0
    errors: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    growth_bytes: int = 0
    share: float = 0.0
    """Of the memory that was allowed."""
    broken: list[str] = field(default_factory=list)


def bases() -> list[bytes]:
    return [pack(to_entries(small_run())), pack(to_entries(large_run(40)))]


def make(begin: int, end: int, folder: Path) -> None:
    """Write the mutants of a range of seeds: elsewhere than they are loaded, so that only loading is measured."""
    known = bases()
    for seed in range(begin, end):
        kind, data = mutate(seed, known)
        (folder / f"{seed}.jd").write_bytes(data)
        (folder / f"{seed}.txt").write_text(kind)


def work(begin: int, end: int) -> None:
    """Load the mutants of a range of seeds, and say on standard output what came of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm_up(folder / "warm.jd")
        rest_bytes = resident("VmRSS")
        for first in range(begin, end, BATCH):
            last = min(first + BATCH, end)
            say("making", first)
            subprocess.run([sys.executable, __file__, "--make", str(first), str(last), name], check=True)
            for seed in range(first, last):
                try_one(seed, folder, rest_bytes)


def try_one(seed: int, folder: Path, rest_bytes: int) -> None:
    path, kind = folder / f"{seed}.jd", (folder / f"{seed}.txt").read_text()
    release()
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    say("loading", seed, kind)
    begin_s = time.perf_counter()
    found = attempt(path)
    took_s = time.perf_counter() - begin_s
    growth = max(0, resident("VmHWM") - rest_bytes)
    outcome = judge(found) if isinstance(found, Run) else found
    say("loaded", seed, kind, outcome, f"{took_s:.4f}", growth, path.stat().st_size)
    path.unlink()


def warm_up(path: Path) -> None:
    for data in bases():
        path.write_bytes(data)
        load(path)
    release()


def release() -> None:
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()


def attempt(path: Path) -> Run | str:
    try:
        return load(path)
    except ArchiveError as error:
        return "error" if error.what and error.fix else "an error without its three parts"
    except BaseException as error:  # noqa: BLE001
        return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def judge(run: Run) -> str:
    """Return `run` for one whose references all lead somewhere, and that can be written and read again."""
    try:
        for op in run.ops:
            run.call_path(op.id)
            [replay.energy for replay in run.replays_of(op.id)]
        for value in run.values:
            run.signature_of(value.id)
        if len(run.frames) + sum(len(source.file) for source in run.sources) < MAX_JUDGED:
            from_wire(to_wire(run))
    except BaseException as error:  # noqa: BLE001
        return f"a run that is none: {type(error).__name__}: {' '.join(str(error).split())[:100]}"
    return "run"


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def say(*words: object) -> None:
    sys.stdout.write("\t".join(map(str, words)) + "\n")
    sys.stdout.flush()


def listener(begin: int, end: int, tallies: dict[str, Tally], lock: threading.Lock) -> None:
    """Run workers over a range until it is done, noting each that dies or hangs."""
    while begin < end:
        child = subprocess.Popen(
            [sys.executable, __file__, "--work", str(begin), str(end)], stdout=subprocess.PIPE, text=True
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=pump, args=(child, lines), daemon=True).start()
        seed, kind, reason = begin - 1, "(start)", None
        while True:
            try:
                line = lines.get(timeout=MAKE_LIMIT_S if kind.startswith("(") else LIMIT_S)
            except queue.Empty:
                child.send_signal(signal.SIGKILL)
                reason = f"hangs for more than {LIMIT_S:g} s"
                break
            if not line:
                break
            step, number, *rest = line.rstrip("\n").split("\t")
            seed, kind = int(number), rest[0] if rest else "(making)"
            if step == "loaded":
                with lock:
                    note(tallies[kind], seed, *rest[1:])
        code = child.wait()
        if code or reason:
            told = reason or f"the process died with {signal.Signals(-code).name if code < 0 else code}"
            with lock:
                tallies[kind].broken.append(f"seed {seed}: {told}")
        elif seed < end - 1:
            with lock:
                tallies[kind].broken.append(f"seed {seed}: the process stopped early")
        begin = seed + 1


def pump(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put("")


def note(tally: Tally, seed: int, outcome: str, took: str, growth: str, size: str) -> None:
    took_s, growth_bytes = float(took), int(growth)
    allowed = MEMORY_FACTOR * int(size) + FREE_BYTES
    tally.runs += outcome == "run"
    tally.errors += outcome == "error"
    tally.seconds += took_s
    tally.slowest_s = max(tally.slowest_s, took_s)
    tally.growth_bytes = max(tally.growth_bytes, growth_bytes)
    tally.share = max(tally.share, growth_bytes / allowed)
    if outcome not in ("run", "error"):
        tally.broken.append(f"seed {seed}: {outcome}")
    if growth_bytes > allowed + SLACK_BYTES:
        tally.broken.append(f"seed {seed}: {growth_bytes / 2**20:.0f} MiB for a file of {int(size) / 1024:.0f} KiB")
    if took_s > LIMIT_S:
        tally.broken.append(f"seed {seed}: {took_s:.1f} s")


def report(tallies: dict[str, Tally], took_s: float) -> bool:
    print(f"{'mutants':18}{'count':>7}{'run':>7}{'error':>7}{'broken':>8}{'slowest':>10}{'peak':>10}{'of allowed':>12}")
    for kind in [*KINDS, *(kind for kind in tallies if kind not in KINDS)]:
        t = tallies[kind]
        print(
            f"{kind:18}{t.runs + t.errors:7}{t.runs:7}{t.errors:7}{len(t.broken):8}{t.slowest_s:8.2f} s"
            f"{t.growth_bytes / 2**20:6.0f} MiB{t.share:12.0%}"
        )
    every = list(tallies.values())
    broken = [line for tally in every for line in tally.broken]
    count = sum(t.runs + t.errors for t in every)
    print(
        f"{'in all':18}{count:7}{sum(t.runs for t in every):7}{sum(t.errors for t in every):7}{len(broken):8}"
        f"{max(t.slowest_s for t in every):8.2f} s{max(t.growth_bytes for t in every) / 2**20:6.0f} MiB"
        f"{max(t.share for t in every):12.0%}"
    )
    print(f"allowed: {MEMORY_FACTOR} x file + {FREE_BYTES / 2**20:.0f} MiB, {LIMIT_S:g} s; took {took_s:.0f} s")
    print(f"{'every load kept its promises' if not broken else 'BROKEN PROMISES'}")
    for line in broken[:50]:
        print(f"  {line}")
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", type=int, help="load one mutant here, and show what comes of it")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(int(options.make[0]), int(options.make[1]), Path(options.make[2]))
        return 0
    if options.work:
        work(*options.work)
        return 0
    if options.only is not None:
        work(options.only, options.only + 1)
        return 0
    tallies: dict[str, Tally] = defaultdict(Tally)
    lock, begin_s = threading.Lock(), time.perf_counter()
    edges = [options.seed + options.count * at // options.workers for at in range(options.workers + 1)]
    threads = [threading.Thread(target=listener, args=(a, b, tallies, lock)) for a, b in pairwise(edges)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0 if report(tallies, time.perf_counter() - begin_s) else 1


if __name__ == "__main__":
    sys.exit(main())
