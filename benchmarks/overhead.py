"""Measure the overhead of joulediff: start-up time, import time, and the sampling thread's share of a core.

    python benchmarks/overhead.py [--seconds 10]

Runs on any machine; the sampling share is that of the meters found there. Start-up times are
compared with a bare interpreter in the same run, and with peers if they are installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time

import psutil


def median_run_s(arguments: list[str], repeats: int = 7) -> float | None:
    """Return the median time of a Python command, or None if it fails."""
    times = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], capture_output=True, env=os.environ, check=False)
        times.append(time.perf_counter() - start_s)
        if done.returncode != 0:
            return None
    return statistics.median(times)


def print_start_up() -> None:
    bare_s = median_run_s(["-c", "pass"])
    assert bare_s is not None
    print(f"{'python -c pass':32}{bare_s * 1e3:8.0f} ms")
    for name, arguments in {
        "joulediff --help": ["-m", "joulediff", "--help"],
        "import joulediff": ["-c", "import joulediff"],
        "import zeus.monitor": ["-c", "import zeus.monitor"],
        "import codecarbon": ["-c", "import codecarbon"],
    }.items():
        took_s = median_run_s(arguments)
        shown = "not installed" if took_s is None else f"{took_s * 1e3:8.0f} ms  {took_s / bare_s:5.1f}x"
        print(f"{name:32}{shown}")


def sampling_share(seconds: float) -> tuple[float, list[str]]:
    """Return the CPU time of the whole sampling thread as a share of one core, and the meters it polled."""
    from joulediff.measuring.meters import open_meters
    from joulediff.measuring.meters.meter import RealClock
    from joulediff.measuring.sampler import Sampler

    with open_meters("auto") as opened, Sampler(opened.meters, clock=RealClock()):
        thread = next(t for t in threading.enumerate() if t.name == "joulediff-sampler")
        start_s, end_s = (_after(thread.native_id, wait_s) for wait_s in (1.0, seconds))
        return (end_s - start_s) / seconds, [meter.name for meter in opened.meters]


def _after(thread_id: int | None, wait_s: float) -> float:
    time.sleep(wait_s)
    used = next(t for t in psutil.Process().threads() if t.id == thread_id)
    return used.user_time + used.system_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    print_start_up()
    share, meters = sampling_share(arguments.seconds)
    print(f"{'sampling thread':32}{100 * share:8.2f} % of a core ({', '.join(meters)}; ticks of 10 ms)")


if __name__ == "__main__":
    main()
