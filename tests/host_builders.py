"""A run with sampled host time in the lines of a source text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from diagnosis_builders import costs, draw, record
from invented import Tensor
from joulediff.model.run import Frame, HostSample, Run, Sampling, SourceText

X, W = draw(16, 32), draw(32, 32, seed=1)
STEP_S = 10e-3


def program() -> Tensor:
    return X @ W


# A path of (text of the line, function), or (library function,), with its milliseconds.
Path = Sequence[tuple[str, ...]]


def host_run(
    source: str, times: dict[tuple[Any, ...], float], *, steps: int = 100, gc: Sequence[str] = (), **changes: Any
) -> Run:
    """Return a run with the given host time, in milliseconds a step, for each line of the source."""
    run = record(program, costs({"mm": 0.3}), rest_w=100.0, step_s=changes.pop("step_s", STEP_S))
    lines = [line.strip() for line in source.splitlines()]
    frames: list[Frame] = list(run.frames)
    samples: list[HostSample] = []

    def add(path: Sequence[Any]) -> int:
        at: int | None = None
        for each in path:
            if isinstance(each, tuple):
                frame = Frame("lib/" + each[0], 7, each[1], "lib", at)
            else:
                number = lines.index(each) + 1
                above = (line for line in lines[number - 1 :: -1] if line.startswith("def "))
                frame = Frame("prog.py", number, next(above)[4:].partition("(")[0], None, at)
            if frame not in frames:
                frames.append(frame)
            at = frames.index(frame)
        assert at is not None
        return at

    wait = changes.pop("wait", {})
    for path, time_ms in times.items():
        time_s = time_ms / 1e3
        kind: Any = "gc" if path[-1] in gc else "line"
        cpu_s = time_s * (1 - wait.get(path[-1], 0.0))
        samples.append(HostSample(add(path), kind, time_s, cpu_s, round(time_ms * steps)))
    sampling = Sampling(steps, 1e-3, STEP_S, STEP_S)
    sources = (*run.sources, SourceText("prog.py", 1, source))
    return replace(run, frames=tuple(frames), host_samples=tuple(samples), sampling=sampling, sources=sources)
