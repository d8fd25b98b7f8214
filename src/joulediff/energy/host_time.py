"""The host time of a run by the user's own line, and the function of a library that each line calls.

Every sample is in exactly one line, so the lines sum to the sampled time of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulediff.model.run import Frame, Run

GARBAGE_COLLECTION = "garbage collection"


@dataclass(frozen=True, slots=True)
class LineTime:
    """The time of one line per step. `calls` is the function of a library that it calls, or `GARBAGE_COLLECTION`."""

    frame: Frame | None
    """The user's line; a library's line if no own code called it; None for the call of the step itself."""
    calls: str
    time_s: float
    cpu_s: float
    count: int
    """Number of samples, or of collections."""


def split_path(path: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], Frame | None]:
    """Return the user's own frames of a call path, and the function of a library that the innermost of them calls."""
    own = tuple(frame for frame in path if frame.owner is None)
    last = max((at for at, frame in enumerate(path) if frame.owner is None), default=-1)
    return own, path[last + 1] if last + 1 < len(path) else None


def function_name(frame: Frame | None) -> str:
    """Return a function of a library with its module, `json.decoder.decode`; empty text for none."""
    if frame is None or frame.owner is None:
        return ""
    module = frame.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{frame.function}"


def line_times(run: Run) -> tuple[LineTime, ...]:
    """Return the host time of each line and function that it calls, the longest first."""
    found: dict[tuple[str, int, str] | None, list[LineTime]] = {}
    for sample in run.host_samples:
        own, callee = split_path(run.index.path_to(sample.frame))
        frame = own[-1] if own else callee
        calls = GARBAGE_COLLECTION if sample.kind == "gc" else function_name(callee)
        key = None if frame is None else (frame.file, frame.line, calls)
        found.setdefault(key, []).append(LineTime(frame, calls, sample.time_s, sample.cpu_s, sample.count))
    totals = (
        LineTime(
            each[0].frame,
            each[0].calls,
            sum(part.time_s for part in each),
            sum(part.cpu_s for part in each),
            sum(part.count for part in each),
        )
        for each in found.values()
    )
    return tuple(sorted(totals, key=lambda line: -line.time_s))
