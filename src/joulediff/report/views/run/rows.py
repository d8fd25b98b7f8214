"""The operators and kernels of a run in rows, each with its energy and device time.

Every operator and every kernel is in exactly one row of any grouping, so the rows sum to the run. Kernels without an
operator have separate rows: kernels of a compiled module, and kernels that could not be joined.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from joulediff.energy.device_time import has_trace
from joulediff.energy.ledger import Books
from joulediff.matching.rows import name_ops
from joulediff.model.energy import Energy, joules_of, mean_power_w
from joulediff.model.run import Frame, Kernel, Op, Run
from joulediff.report.views.run.facts import busy_times, line_of
from joulediff.report.views.short_texts import short_files

By = Literal["op", "module", "line", "kernel", "region"]
# The key of a row, its name, and its place.
_Label = tuple[object, str, str]
_Fold = Callable[[str], str]

NOT_JOINED = "(not joined)"
# From this share on, apart from rounding, it is all.
ALL = 1.0 - 1e-9
_THE_MODEL = "(the model)"
_NO_MODULE = "(no module)"
_NO_LINE = "(no line)"
OUTSIDE = "(outside of regions)"
# More than this many modules of one type that differ only in numbers are layers, and one row.
_LAYERS = 3


@dataclass(frozen=True, slots=True)
class RunRow:
    """A group of operators and kernels. None is unknown."""

    name: str
    where: str
    calls: int
    """Operators executed."""
    kernels: tuple[int, ...]
    """Indices into the kernels of the run."""
    kernel_s: float | None
    energy: Energy | None = None
    """In the domains of the total; also None for operators without device work."""
    replayed_share: float | None = None
    """The share of the energy that was measured by replay."""

    busy_s: float = 0.0
    """The time in which the energy was used."""

    @property
    def source(self) -> str:
        """Return the source of the energy: `replayed`, `attributed`, `98% replayed`, `estimated`; empty without any."""
        if self.energy is None or self.energy.source == "estimated" or self.replayed_share is None:
            return "" if self.energy is None else self.energy.source
        percent = math.floor(100 * self.replayed_share)
        return "replayed" if self.replayed_share >= ALL else f"{percent}% replayed" if percent else "attributed"

    @property
    def power_w(self) -> float | None:
        """Return the mean power while its kernels ran."""
        return mean_power_w(self.energy, self.busy_s)


@dataclass(slots=True)
class _Group:
    name: str
    where: str
    ops: list[Op] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)


def has_regions(run: Run) -> bool:
    """Return whether the program names regions."""
    return any(op.region is not None for op in run.ops)


def group_rows(run: Run, by: By, books: Books) -> tuple[RunRow, ...]:
    """Return the rows of a run, the most energy first, or the longest device time without energies."""
    groups = _groups(run, by)
    busy_s = busy_times(run, books)
    rows = [_row(run, books, group, busy_s) for group in groups]
    return tuple(sorted(rows, key=_rank))


def _groups(run: Run, by: By) -> Iterable[_Group]:
    if by == "kernel":
        return _kernels_by_name(run)
    return _ops_by_region(run) if by == "region" else _ops_by(run, by)


def fold_rows(rows: Sequence[RunRow], top: int, books: Books) -> tuple[RunRow, ...]:
    """Return the first `top` rows, and one row for the rest."""
    if len(rows) <= top + 1:
        return tuple(rows)
    return (*rows[:top], total_row(rows[top:], books, f"{len(rows) - top} more"))


def total_row(rows: Sequence[RunRow], books: Books, name: str = "total") -> RunRow:
    """Return the sum of rows. Its time is the sum of the known times."""
    known = [row.kernel_s for row in rows if row.kernel_s is not None]
    calls, kernels = sum(row.calls for row in rows), tuple(i for row in rows for i in row.kernels)
    time_s, busy_s = sum(known) if known else None, sum(row.busy_s for row in rows)
    return RunRow(name, "", calls, kernels, time_s, books.total(kernels), books.replayed_share(kernels), busy_s)


def _row(run: Run, books: Books, group: _Group, busy_s: Sequence[float]) -> RunRow:
    kernels = tuple(group.kernels)
    known = has_trace(run) and (kernels or any(run.index.is_costed(op.id) for op in group.ops))
    return RunRow(
        group.name,
        group.where,
        len(group.ops),
        kernels,
        kernel_s=sum((run.kernels[i].duration_s for i in kernels), 0.0) if known else None,
        energy=books.total(kernels),
        replayed_share=books.replayed_share(kernels),
        busy_s=sum(busy_s[i] for i in kernels),
    )


def _rank(row: RunRow) -> tuple[object, ...]:
    # Layers with the same work differ only by rounding: their names order them.
    joules = float(f"{joules_of(row.energy):.9g}")
    return (-joules, -(row.kernel_s or 0.0), -len(row.kernels), -row.calls, row.name, row.where)


def _kernels_by_name(run: Run) -> Iterable[_Group]:
    groups: dict[tuple[str, str], _Group] = {}
    fold = _fold_layers(run)
    for i, kernel in enumerate(run.kernels):
        groups.setdefault((kernel.name, kernel.kind), _Group(kernel.name, "")).kernels.append(i)
    for group in groups.values():
        launchers = Counter(_launcher(run, run.kernels[i], fold) for i in group.kernels)
        (group.where, _), *others = launchers.most_common()
        group.where += f" and {len(others)} more" if others else ""
    return groups.values()


def _launcher(run: Run, kernel: Kernel, fold: _Fold) -> str:
    return _label_loose(kernel, fold)[1] if kernel.op is None else run.ops[kernel.op].name


def _ops_by_region(run: Run) -> Iterable[_Group]:
    """Return the operators directly in each region, without those of inner regions, and the rest."""
    groups: dict[str, _Group] = {}
    for op in run.ops:
        name = op.region or OUTSIDE
        group = groups.setdefault(name, _Group(name, ""))
        group.ops.append(op)
        group.kernels += run.index.kernels[op.id]
    loose = [i for i, kernel in enumerate(run.kernels) if kernel.op is None]
    if loose:
        groups.setdefault(OUTSIDE, _Group(OUTSIDE, "")).kernels += loose
    for group in groups.values():
        group.where = name_ops(run, [op.id for op in group.ops])
    return groups.values()


def _ops_by(run: Run, by: Literal["op", "module", "line"]) -> Iterable[_Group]:
    groups: dict[object, _Group] = {}
    fold = _fold_layers(run)
    label_op = {"op": _label_by_op, "module": _label_by_module, "line": _label_by_line}[by](run, fold)
    compiled = {kernel.module for kernel in run.kernels if kernel.op is None and kernel.module is not None}
    homes: list[_Group] = []
    fused = _label_fused(run, fold) if by == "op" else {}
    for op in run.ops:
        region = _region_of(op, compiled) if op.compiled and not run.index.kernels[op.id] else None
        plain = fused.get(op.id) or label_op(op)
        key, name, where = plain if region is None or op.id in fused else _label_compiled(fold(region))
        homes.append(groups.setdefault(key, _Group(name, where)))
        homes[-1].ops.append(op)
    for i, kernel in enumerate(run.kernels):
        if kernel.op is not None:
            homes[kernel.op].kernels.append(i)
            continue
        key, name, where = _label_loose(kernel, fold)
        groups.setdefault(key, _Group(name, where)).kernels.append(i)
    return groups.values()


def _label_fused(run: Run, fold: _Fold) -> dict[int, _Label]:
    """Return the labels of operators that one kernel of compiled code computes together with others."""
    together: dict[int, list[int]] = {}
    for op, owner in sorted(run.index.fused.items()):
        together.setdefault(owner, []).append(op)
    found: dict[int, _Label] = {}
    place = _place_text(run)
    for owner, ops in together.items():
        first, name = run.ops[owner], name_ops(run, ops)
        where = fold(first.module) if first.module else place(line_of(run, owner))
        if len(ops) > 1:
            found |= dict.fromkeys(ops, (("fused", name, where), name, where))
    return found


def _label_by_op(run: Run, fold: _Fold) -> Callable[[Op], _Label]:
    place = _place_text(run)

    def label(op: Op) -> _Label:
        where = fold(op.module) if op.module else place(line_of(run, op.id))
        return (op.name, where, op.module_type), op.name, where

    return label


def _label_by_module(run: Run, fold: _Fold) -> Callable[[Op], _Label]:  # noqa: ARG001
    def label(op: Op) -> _Label:
        name = _NO_MODULE if op.module is None else fold(op.module) or _THE_MODEL
        return (name, op.module_type), name, op.module_type or ""

    return label


def _label_by_line(run: Run, fold: _Fold) -> Callable[[Op], _Label]:  # noqa: ARG001
    place = _place_text(run)

    def label(op: Op) -> _Label:
        frame = line_of(run, op.id)
        if frame is None:
            return _NO_LINE, _NO_LINE, ""
        return (frame.file, frame.line), place(frame), run.line_text(frame.file, frame.line) or frame.function

    return label


def _label_compiled(module: str) -> _Label:
    name = f"compiled: {module or _THE_MODEL}"
    return name, name, ""


def _label_loose(kernel: Kernel, fold: _Fold) -> _Label:
    return (NOT_JOINED, NOT_JOINED, "") if kernel.module is None else _label_compiled(fold(kernel.module))


def _region_of(op: Op, compiled: set[str]) -> str | None:
    """Return the innermost compiled module an operator is in."""
    at = op.module
    while at:
        if at in compiled:
            return at
        at = at.rpartition(".")[0]
    return "" if "" in compiled else None


def _fold_layers(run: Run) -> _Fold:
    types = {k.module: None for k in run.kernels if k.module} | {
        op.module: op.module_type for op in run.ops if op.module
    }
    layers = {module: (re.sub(r"(?<![^.])\d+(?![^.])", "*", module), kind) for module, kind in types.items()}
    alike = Counter(layers.values())
    # The modules of a plain Sequential have only numbers: a pattern would name nothing.
    folded = {m: layer[0] for m, layer in layers.items() if alike[layer] > _LAYERS and layer[0].strip("*.")}
    return lambda module: folded.get(module, module)


def _place_text(run: Run) -> Callable[[Frame | None], str]:
    names = short_files(frame.file for frame in run.frames)
    return lambda frame: _NO_LINE if frame is None else f"{names[frame.file]}:{frame.line}"
