"""The traced pass: a few steps under PyTorch's profiler, of which the one of median time is used.

Separate steps warm the profiler up, because its first events include its setup; in a long step that does not matter, so
it is traced once. A single step could be one that
something else on the machine delayed. Random numbers are seeded alike before each, so that each step runs the same
operators as the captured one.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joulediff.frameworks.torch.capture.threads import Leave, Task, Tasks
from joulediff.frameworks.torch.sync import synchronise
from joulediff.frameworks.torch.trace.chrome import OUR_SYNC, STEP, WARM_UP, read_trace, task_mark
from joulediff.frameworks.torch.trace.traced import Traced
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.pysource.programs import Step

_LOG_LEVEL = "KINETO_LOG_LEVEL"
# Steps for warming up and steps that are traced, within the limit.
WARM_UPS = 5
STEPS = 5
LIMIT_S = 0.5
# A step longer than this runs once. The profiler keeps 1.2 kB for each event, and a host has a million events a second.
LONG_S = 0.25
# Above every level of Kineto's messages: at 5 PyTorch 2.13 still writes "profiler_start" to standard error.
_SILENT = "6"


def trace_step(
    step: Step, *, begin: Callable[[], None] | None = None, listener: ProgressListener | None = None
) -> Traced:
    """Run `step` a few times under the profiler and return the traced step of median time.

    `begin` runs before each, to seed random numbers. The step's exceptions pass through, and no profiler is
    left running.
    """
    with tempfile.TemporaryDirectory(prefix=f"joulediff-{os.getpid()}-") as folder:
        path = Path(folder) / "trace.json"
        write_trace(step, path, begin=begin, listener=listener)
        if listener is not None:
            listener.stage("reading the trace")
        return read_trace(path)


def write_trace(
    step: Step, path: Path, *, begin: Callable[[], None] | None = None, listener: ProgressListener | None = None
) -> None:
    """Run `step` a few times under the profiler and write its trace to `path`."""
    listener = listener or ProgressListener()
    with _profiling() as profiler:
        for name, before, most in ((WARM_UP, 0, WARM_UPS), (STEP, WARM_UPS, STEPS)):
            spent_s, count = 0.0, 0
            while count == 0 or (count < most and spent_s + spent_s / count < LIMIT_S):
                planned = min(most, LIMIT_S * count / spent_s) if count else most  # the limit may come first
                done = before + most * min(1.0, count / planned)
                listener.stage(f"step {before + count + 1}", done / (WARM_UPS + STEPS))
                spent_s += _run_marked(step, name, begin)
                count += 1
            if count == 1 and spent_s > LONG_S:
                break
    profiler.export_chrome_trace(str(path))


def _run_marked(step: Step, name: str, begin: Callable[[], None] | None) -> float:
    """Run the step once under a name, and return its seconds."""
    from torch.autograd.profiler import record_function

    if begin is not None:
        begin()
    synchronise()
    start_s = time.perf_counter()
    with record_function(name):
        with Tasks(_mark_task).attached():
            output = step()
        with record_function(OUR_SYNC):
            synchronise()
    took_s = time.perf_counter() - start_s
    del output
    if not _is_profiled():
        raise _another_profiler("the step runs its own profiler")
    return took_s


def _mark_task(task: Task) -> Leave:
    """Mark a task in the trace, in the thread that runs it."""
    from torch.autograd.profiler import record_function

    mark = record_function(task_mark(task.key))
    mark.__enter__()
    return lambda: mark.__exit__(None, None, None)


@contextmanager
def _profiling() -> Iterator[Any]:
    """Run the profiler within the context, and always stop it."""
    if _is_profiled():
        raise _another_profiler("one is active in this process already")
    profiler = make_profiler()
    try:
        with _silence():
            profiler.__enter__()
    except RuntimeError as error:
        raise _another_profiler(str(error)) from error
    try:
        yield profiler
    finally:
        # Stopped by another one, it crashes the process if it is stopped again (2.13).
        if _is_profiled():
            with _silence():
                profiler.__exit__(None, None, None)


def make_profiler() -> Any:
    """Return the profiler that `torch.profiler` wraps, for the host and for CUDA if the program uses it.

    The wrapper imports the compiler: 850 modules, two to four seconds. Without `use_kineto` the profiler records events
    instead of kernels, and no kernel of the device is in its trace. Without `profile_all_threads`, which older versions
    lack, it sees only the thread that starts it and autograd's.
    """
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    try:
        config = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        config = None
    device = "cuda" if torch.cuda.is_initialized() else None
    return profile(use_device=device, use_kineto=True, experimental_config=config)


def _is_profiled() -> bool:
    """Return whether a profiler is active, in this thread or another. Two at once can crash the process (2.13)."""
    import torch

    enabled = getattr(torch.autograd, "_profiler_enabled", lambda: False)
    return enabled() or getattr(torch.autograd.profiler, "_is_profiler_enabled", False)


def _another_profiler(why: str) -> JoulediffError:
    return JoulediffError(
        f"the step cannot be traced beside another PyTorch profiler: {why}",
        fix="record without it (look for torch.profiler, torch.autograd.profiler, emit_nvtx or emit_itt)",
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress the profiler's messages to the user: they are about our use of it."""
    had = os.environ.get(_LOG_LEVEL)
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
            yield
    finally:
        if had is None:
            del os.environ[_LOG_LEVEL]
