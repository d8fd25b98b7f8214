"""Two programs for the tests of diagnosis: invented steps, with kernels and energies as if a GPU had run them.

`LiveProgram` stands for a program that can still be run: it answers from a table, and keeps a list of the questions.
`diagnosis_torch` has the same for steps of PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import invented
import paths
from invented import Tensor, call
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.significance import RowComparison
from joulediff.energy.ledger import Costs
from joulediff.frameworks.jobs import OTHER, Job, JobCost, Variant, VariantCost
from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import RegionGroup
from joulediff.model.diff import Diff
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.measurement import Measurement
from joulediff.model.run import Frame, Kernel, Op, Replay, Run, Setting, SourceText
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.source_files import ProgramSource
from run_builders import domain_energy, energy, measurement

STEP_S = 10e-3
# A joule of work takes so long, unless a test says otherwise.
SECONDS_A_JOULE = 1e-4
# Operators that run no kernel.
VIEWS = (
    "view",
    "t",
    "unfold",
    "transpose",
    "permute",
    "expand",
    "unsqueeze",
    "slice",
    "select",
    "_unsafe_view",
    "detach",
)

Step = Callable[[], Any]
Cost = Callable[[Op], float | None]


def draw(*shape: int, seed: int = 0, name: str | None = None) -> Tensor:
    return Tensor(invented.draw(*shape, seed=seed), name=name)


def apply(name: str, function: Callable[[Any], Any], x: Tensor) -> Tensor:
    """Return an operator of one input that `invented` does not have."""
    return call(name, function(x.array), x)


def first_rows(x: Tensor, count: int) -> Tensor:
    """Return the first rows of a tensor, as a view."""
    return call("slice", x.array[:count], x, count, is_view=True)


def costs(table: Mapping[str, float], rest: float = 1.0) -> Cost:
    """Return the joules of an operator by its name without `aten::`; views cost nothing."""

    def find(op: Op) -> float | None:
        name = op.name.removeprefix("aten::")
        return None if name in VIEWS else table.get(name, rest)

    return find


def measured(
    run: Run,
    cost: Cost,
    *,
    device: str = "cuda:0",
    kernel: Callable[[Op], str] = lambda op: f"{op.name}_kernel",
    seconds: Callable[[Op], float] | None = None,
    share: float = 0.01,
    source: Any = "replayed",
    rest_w: float = 0.0,
    more_j: float = 0.0,
    step_s: float = STEP_S,
    **changes: Any,
) -> Run:
    """Return a captured run as if a device had run it: a kernel and a replay for each operator that costs something.

    What is metered is all of that, the resting power of the idle time, and `more_j` that nothing explains.
    """
    kernels: list[Kernel] = []
    replays: list[Replay] = []
    ops: list[Op] = []
    now_s, total_j = 0.0, more_j
    kind: Any = "cpu" if device == "cpu" else "kernel"
    domain = "cpu" if device == "cpu" else "gpu0"
    for op in run.ops:
        joules = cost(op)
        if joules is None:
            ops.append(replace(op, device=device))
            continue
        length_s = joules * SECONDS_A_JOULE if seconds is None else seconds(op)
        net_j = joules - rest_w * length_s
        kernels.append(Kernel(kernel(op), kind, device, 7, now_s, length_s, op.id, None, "op"))
        ops.append(replace(op, device=device, replay=len(replays)))
        half_j = share * joules
        replays.append(Replay(op.id, domain, net_j, net_j - half_j, net_j + half_j, source, cpu_s=length_s))
        now_s, total_j = now_s + length_s, total_j + joules
    metered_j = total_j + rest_w * (step_s - now_s)
    kept = domain_energy(metered_j, step_s, rest_w, energy=energy(metered_j, 0.01, "metered"))
    facts: dict[str, Any] = {
        "ops": tuple(ops),
        "values": tuple(replace(value, device=device) for value in run.values),
        "kernels": tuple(kernels),
        "replays": tuple(replays),
        "traced_s": step_s,
        "measurement": measurement(step_s, energy=kept.energy, domains={domain: kept}, cpu_s=now_s),
        "sources": _sources(run),
    }
    return replace(run, **{**facts, **changes})


def _find(file: str) -> Path:
    """Return the file of the tests that a recording names, wherever in their folders it lies."""
    return next(paths.TESTS.rglob(Path(file).name), Path(file))


def _sources(run: Run) -> tuple[SourceText, ...]:
    files = {frame.file for frame in run.frames if frame.owner is None}
    found = ((file, _find(file)) for file in sorted(files))
    return tuple(SourceText(file, 1, path.read_text(encoding="utf-8")) for file, path in found if path.exists())


def record(step: Step, cost: Cost, **changes: Any) -> Run:
    """Return what a step does, measured."""
    return measured(invented.record(step), cost, **changes)


def comparison_of(a: Run, b: Run) -> Comparison:
    return Comparison(a, b, match_regions(a, b))


def region_of(sides: Comparison, name: str, kind: str = "equal") -> Region:
    """Return the first region of a kind that has an operator of that name."""
    for region in sides.regions:
        names = [sides.a.ops[op].name for op in region.a] + [sides.b.ops[op].name for op in region.b]
        if region.kind == kind and f"aten::{name}" in names:
            return region
    raise AssertionError(f"no {kind} region with {name}")


def compared(a: Energy | None, b: Energy | None, *, p_value: float | None = 0.0, same: bool = False) -> RowComparison:
    """Return a row without operators, for what looks at energies alone."""
    return RowComparison(RegionGroup("mm", "", "equal", (0,), 1, 1), (), a, b, same, p_value)


def frames(*lines: tuple[str, int, str] | tuple[str, int, str, str]) -> tuple[Frame, ...]:
    """Return a call path, outermost first: file, line, function, and the library where it is not the user's."""
    found = []
    for at, (file, line, function, *owner) in enumerate(lines):
        found.append(Frame(file, line, function, owner[0] if owner else None, at - 1 if at else None))
    return tuple(found)


def sums(diff: Diff) -> tuple[float, float]:
    """Return what the rows of each side come to."""
    pairs = [(row.energy_a, row.energy_b) for row in diff.rows]
    found = [sum(each.joules for each in side if each is not None) for side in zip(*pairs, strict=True)]
    return found[0], found[1]


def jitter(seed: int, share: float = 0.2) -> Any:
    """Return costs that are off by up to 20 %, each in its own way."""
    chance, plain = random.Random(seed), costs({"mm": 2.0})

    def find(op: Op) -> float | None:
        joules = plain(op)
        return None if joules is None else joules * (1 + chance.uniform(-share, share))

    return find


def assert_books_close(a: Run, b: Run) -> None:
    diff = diagnose(a, b)
    for run, found in zip((a, b), sums(diff), strict=True):
        assert run.measurement is not None
        assert found == pytest.approx(run.measurement.energy.joules)


Answer = JobCost | float | str


@dataclass
class LiveProgram:
    """A program that answers from a table.

    Its own operators have their recorded cost. `answers` has the cost of each change: joules, a `JobCost`, or a text
    for a change that fails. A change is known by the text of its settings (`torch.x = True`), by `layout` for inputs in
    another form, and by `calls` for operators of the other program. The answers of a list are given one after the
    other, and the last one from then on.
    """

    run: Run
    answers: Mapping[str, Answer | Sequence[Answer]] = field(default_factory=dict)
    traces: Mapping[str, LineTrace] = field(default_factory=dict)
    without_sync: Measurement | None = None
    difference: float | None = 0.0
    """The distance of the outputs without a wait from those of the program."""
    changed: Run | None = None
    """The step under other settings; without one, the step as it is."""
    steps: Mapping[str, Measurement | str] = field(default_factory=dict)
    """Measurements of the whole step by the text of its settings, or a text for one that fails."""
    export_error: str | None = None
    """Why it exports no tensor."""
    asked: list[str] = field(default_factory=list)

    def measure_job(self, job: Job, *, window_s: float, as_other: bool = False) -> JobCost:
        key = name_of(job)
        self.asked.append(key)
        answer = self._answer(key, job)
        if isinstance(answer, str):
            return JobCost(None, None, note=answer)
        if isinstance(answer, float):
            return JobCost(energy(answer, 0.005, "replayed"), 1e-3, ("changed_kernel",), 0.0)
        return answer

    def compare_job(self, job: Job) -> JobCost:
        found = self.answers.get("compare", "not in the table")
        self.asked.append("compare")
        if isinstance(found, str):
            return JobCost(None, None, note=found)
        assert isinstance(found, float)
        return JobCost(None, None, difference=found)

    def _answer(self, key: str, job: Job) -> Answer:
        found = self.answers.get(key)
        if found is None and key != "own":
            return "not in the table"
        if found is None:
            books = Costs(self.run)
            return JobCost(books.of(job.ops), books.time_s(job.ops), books.names(job.ops))
        if isinstance(found, (JobCost, float, str)):
            return found
        return found[min(self.asked.count(key), len(found)) - 1]

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        return "changed", self.changed or self.run

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        self.asked.append(f"export {', '.join(map(str, values))}")
        if self.export_error is not None:
            raise JoulediffError(self.export_error)
        path.write_text("exported")

    def import_tensors(self, path: Path) -> None:
        self.asked.append(f"import what was {path.read_text()}")

    def read_source(self) -> ProgramSource:
        raise JoulediffError("its source cannot be read")

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        raise JoulediffError("it cannot be changed")

    def trace_lines(self, target: Target) -> LineTrace | None:
        return self.traces.get(target.function)

    def measure(self, *, seconds: float, wait_s: float, settings: Mapping[str, Setting] | None = None) -> Measurement:
        key = _settings_text(settings or {}) or "own"
        self.asked.append(f"step: {key}")
        found = self.steps.get(key, self.run.measurement)
        if isinstance(found, str):
            raise JoulediffError(found)
        assert found is not None
        return found

    def measure_without_sync(self, file: str, line: int) -> VariantCost:
        self.asked.append(f"no wait in line {line}")
        if self.without_sync is None:
            raise JoulediffError("no wait there can be left out")
        found = self.without_sync
        return VariantCost(after=found.energy, after_s=found.step_s, difference=self.difference, is_measured=True)


def name_of(job: Job) -> str:
    """Return what a job changes."""
    parts = [_settings_text(job.settings)] if job.settings else []
    if job.run == OTHER:
        parts.append("calls")
    elif any(feed.form is not None for feed in job.feeds):
        parts.append("layout")
    return " and ".join(parts) or "own"


def _settings_text(settings: Mapping[str, Setting]) -> str:
    return " and ".join(f"{name} = {value}" for name, value in sorted(settings.items()))


class EndedProgram(LiveProgram):
    """A program that ends when it is asked for anything."""

    def measure_job(self, job: Job, *, window_s: float, as_other: bool = False) -> JobCost:
        raise JoulediffError("the program ended")
