"""Runs of programs without a framework: sampled functions with their lines, outputs and a CPU's energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from joulediff.frameworks.plain.output_tree import flatten
from joulediff.frameworks.plain.signatures import add_outputs, sign_columns
from joulediff.model.run import Frame, HostSample, Pass, Run, Sampling, SourceText
from run_builders import domain_energy, measurement

STEP_S = 10e-3
STEPS = 100
PASSES = (
    Pass("metered", "done", 1.0),
    Pass("sampled", "done", 0.5),
    Pass("traced", "skipped", 0.0, "no framework"),
    Pass("captured", "done", 0.1),
)

Place = tuple[str, int]
"""A function with a line of it; a function of a library with line 0."""


def plain_run(
    label: str,
    times_ms: dict[Sequence[Place], float],
    *,
    joules: float = 1.0,
    file: str = "prog.py",
    output: Any = 1.0,
    wait: dict[Sequence[Place], float] | None = None,
    gc: Sequence[Sequence[Place]] = (),
    rest_w: float | None = None,
    source: str = "",
    **changes: Any,
) -> Run:
    """Return a run whose step spends so many milliseconds in each call path; `wait` are shares without the CPU."""
    frames: list[Frame] = []
    samples: list[HostSample] = []
    for path, time_ms in times_ms.items():
        at: int | None = None
        for function, line in path:
            is_library = line == 0
            frame = Frame("lib.py" if is_library else file, line or 1, function, "lib" if is_library else None, at)
            if frame not in frames:
                frames.append(frame)
            at = frames.index(frame)
        busy = 1 - (wait or {}).get(path, 0.0)
        kind: Any = "gc" if path in gc else "line"
        samples.append(HostSample(at, kind, time_ms / 1e3, busy * time_ms / 1e3, round(time_ms * STEPS)))
    domain = domain_energy(joules, STEP_S, rest_w, device="CPU")
    run = Run(label, f"{file}:build", "2026-11-20T10:31:22+00:00", "0.1.0", passes=PASSES)
    values, signatures = add_outputs(run, sign_columns(flatten(output)))
    found = measurement(STEP_S, label=label, domains={"cpu": domain}, energy=domain.energy, net_energy=None)
    sampling = Sampling(STEPS, 1e-3, STEP_S, STEP_S)
    return replace(
        run,
        measurement=found,
        frames=tuple(frames),
        host_samples=tuple(samples),
        sampling=sampling,
        values=values,
        signatures=signatures,
        sources=(SourceText(file, 1, source),) if source else (),
        **changes,
    )
