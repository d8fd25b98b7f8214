"""Measure what a rewritten call costs more than a plain one: not watched, and watched.

    python benchmarks/apis_overhead.py

The listener of a watched call takes two time stamps and does nothing else. Each figure is the median of several rounds
that take turns with the plain program. The last line is of a script under `joulediff apis`, with all that is measured
and joined meanwhile. Ends with 1 if a call that is not watched costs 1 µs or a watched one 10 µs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.instrument.rewriting.sites import Watcher

CALLS = 20_000
ROUNDS = 15
MOST_UNWATCHED_US, MOST_WATCHED_US = 1.0, 10.0
SCRIPT = """
import time
import numpy as np
x = np.ones(3)
rounds = []
for _ in range(5):
    begin = time.perf_counter()
    for _ in range(100_000):
        np.negative(x)
    rounds.append((time.perf_counter() - begin) * 10)
print(sorted(rounds)[2])
"""
# The name of the call, its source, and the library that it belongs to.
PROGRAMS = (
    *((f"function, {n} arguments", f"f({', '.join(['x'] * n)})", "library") for n in (0, 1, 2, 4, 8)),
    ("function, 4 keywords", "f(a=x, b=x, c=x, d=x)", "library"),
    ("function, 4 constants", "f(1, 2, 3, 4)", "library"),
    ("function, 1 array", "f(array)", "library"),
    ("function, 8 arrays", "f(array, array, array, array, array, array, array, array)", "library"),
    ("method of an object", "thing.method(x)", "library"),
    ("builtin function", "len(text)", "library"),
    ("method of a list", "values.count(x)", "library"),
    ("class", "Thing()", "library"),
    ("object that is called", "thing(x)", "library"),
)
LIBRARY = """
def f(*args, **named): pass
class Thing:
    def __init__(self): pass
    def __call__(self, x): pass
    def method(self, x): pass
thing = Thing()
"""


class TimeStamps:
    """A listener that takes two time stamps."""

    def begin(self, call: Any) -> None:
        call.mark = time.perf_counter_ns()

    def end(self, call: Any) -> None:
        call.mark = time.perf_counter_ns() - call.mark


def make_loop(source: str, watcher: Watcher | None) -> Any:
    """Return a function that makes a call many times, and takes the time of it."""
    program = (
        "def loop(count, clock, x, text, values, array):\n"
        "    begin = clock()\n"
        "    for _ in count:\n"
        f"        {source}\n"
        "    return clock() - begin\n"
    )
    names: dict[str, Any] = {"__name__": "library"}
    exec(LIBRARY, names)
    code = compile(program, "program", "exec") if watcher is None else compile_rewritten(program, "program", watcher)
    exec(code, names)
    arguments = (time.perf_counter_ns, 5, "abc", [1, 2, 3], np.ones(10))
    return lambda: names["loop"](range(CALLS), *arguments)


def measure(source: str, library: str) -> tuple[float, float, float]:
    """Return the microseconds of the plain call, and what it costs more not watched and watched."""
    unwatched, watched = Watcher(["another_library"], TimeStamps()), Watcher([library], TimeStamps())
    loops = [make_loop(source, watcher) for watcher in (None, unwatched, watched)]
    rounds = [[loop() / CALLS / 1000 for loop in loops] for _ in range(ROUNDS + 2)][2:]
    unwatched.stop()
    watched.stop()
    plain = statistics.median(each[0] for each in rounds)
    more = [statistics.median(each[index] - each[0] for each in rounds) for index in (1, 2)]
    return plain, more[0], more[1]


def run_script(command: list[str]) -> float:
    """Return the microseconds of a call in a script, as the script itself measures them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(SCRIPT)
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
        words = [sys.executable, *command, str(path)]
        shown = subprocess.run(words, capture_output=True, text=True, env=environ, check=False).stdout
    return float(shown.splitlines()[0])


def main() -> int:
    """Print a table; return 1 if a figure is above its limit."""
    print(f"Python {sys.version.split()[0]}, median of {ROUNDS} rounds of {CALLS:,} calls, in µs a call")
    print(f"{'call':28}{'plain':>8}{'not watched':>14}{'watched':>10}")
    worst = [0.0, 0.0]
    for name, source, library in PROGRAMS:
        plain, unwatched, watched = measure(source, library)
        # Builtin functions belong to no library.
        shown = f"{watched:+10.2f}" if not name.startswith(("builtin", "method of a list")) else f"{'-':>10}"
        print(f"{name:28}{plain:8.3f}{unwatched:+14.3f}{shown}", flush=True)
        worst = [max(worst[0], unwatched), max(worst[1], watched)]
    print(f"most: {worst[0]:.2f} µs not watched, {worst[1]:.2f} µs watched")
    plain_us, apis_us = run_script([]), run_script(["-m", "joulediff", "apis"])
    print(f"np.negative of an array of 3: {plain_us:.3f} µs, under joulediff apis {apis_us - plain_us:+.2f}")
    worst[1] = max(worst[1], apis_us - plain_us)
    return int(worst[0] >= MOST_UNWATCHED_US or worst[1] >= MOST_WATCHED_US)


if __name__ == "__main__":
    sys.exit(main())
