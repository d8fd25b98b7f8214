"""A run as JSON (`joulediff.run/1`): everything that the terminal report shows, without folding.

A part that was not measured, traced or captured is null, never zero and never an empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.energy.device_time import has_trace
from joulediff.energy.host_energy import HostBy, host_parts
from joulediff.energy.host_time import LineTime, line_times
from joulediff.energy.ledger import Books, open_books
from joulediff.energy.unseen import find_unseen
from joulediff.frameworks.framework import place_of
from joulediff.model.energy import Energy, Scale, joules_of, mean_power_w, subtract_common
from joulediff.model.measurement import Account, Unseen
from joulediff.model.run import Frame, Kernel, Op, Pass, Replay, Run, Sampling, Setting, work_of
from joulediff.report.json import copy_fields, dump
from joulediff.report.json.measurement import ConditionsRecord, StepRecord, conditions_record, step_record
from joulediff.report.views.run.facts import busy_times, has_capture, line_of, op_times
from joulediff.report.views.run.ledger import add_accounts
from joulediff.report.views.run.rows import OUTSIDE, group_rows, has_regions
from joulediff.report.views.run.timeline import Activity, Gap, WaitPlace, group_waits, trace_activity

RUN_SCHEMA = "joulediff.run/1"


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """The energy of a step in one domain, or in all, and its parts."""

    metered: Energy
    operators: Energy | None
    idle: Energy | None
    host: Energy | None
    waits: Energy | None
    unexplained: Energy | None
    not_split: Energy | None
    """All but the idle part: recordings without replay have no finer split."""


@dataclass(frozen=True, slots=True)
class DomainAccountRecord:
    """An account of one domain."""

    account: AccountRecord = field(metadata={"inline": True})
    in_total: bool


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The ledger of a run."""

    domains: Mapping[str, DomainAccountRecord]
    total: AccountRecord | None
    split: str | None
    unexplained_share: float | None
    is_closed: bool | None = field(metadata={"name": "closed"})
    exceeds_meter: bool


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """A named region with the operators directly in it, without those of regions inside it."""

    name: str
    calls: int
    kernel_s: float | None
    energy: Energy | None


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """A tensor that an operator read or made."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class OpRecord:
    """Calls of one operator from one line with inputs of the same form; facts are those of the first call."""

    id: int
    name: str
    overload: str
    module: str | None
    file: str | None
    line: int | None
    user_file: str | None
    user_line: int | None
    phase: str
    compiled: bool
    calls: int
    kernel_s: float | None
    energy: Energy | None
    power_w: float | None
    replay: int | None
    arguments: str
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A replayed operator, and the number of operators that its result applies to."""

    replay: Replay = field(metadata={"inline": True})
    ops: int


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """All launches of one kernel on one device."""

    name: str
    kind: str
    device: str
    streams: tuple[int, ...]
    calls: int
    kernel_s: float
    energy: Energy | None
    size_bytes: int | None
    joined: int


@dataclass(frozen=True, slots=True)
class GapEndRecord:
    """The kernel before or after a gap, and its operator."""

    kernel: str
    op: int | None
    name: str | None


@dataclass(frozen=True, slots=True)
class GapRecord:
    """A time in which nothing ran on a device; null is the begin or the end of the step."""

    start_s: float
    duration_s: float
    after: GapEndRecord | None
    before: GapEndRecord | None


@dataclass(frozen=True, slots=True)
class ActivityRecord:
    """One device in the traced step."""

    device: str
    span_s: float
    busy_s: float
    idle_s: float
    largest_gap: GapRecord | None


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """Waits of one kind at one line."""

    name: str
    file: str | None
    line: int | None
    calls: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class HostRecord:
    """Time of the host in one line, and the function of a library that it calls."""

    file: str | None
    line: int | None
    function: str | None
    calls: str
    time_s: float
    cpu_s: float
    count: int


@dataclass(frozen=True, slots=True)
class HostPartRecord:
    """A function or a line with its share of the energy of a step that has no operators."""

    function: str
    file: str | None
    line: int | None
    calls: str
    energy: Energy | None
    time_s: float
    cpu_s: float
    count: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The fields of `joulediff.run/1`."""

    schema: str
    label: str
    program: str | None
    created: str
    tool: str
    passes: tuple[Pass, ...]
    notes: tuple[str, ...]
    step: StepRecord
    conditions: ConditionsRecord
    traced_s: float | None
    ledger: LedgerRecord | None
    regions: tuple[RegionRecord, ...] | None
    outside_regions: RegionRecord | None
    """The other operators and kernels, if the program names regions."""
    ops: tuple[OpRecord, ...] | None
    replays: tuple[ReplayRecord, ...] | None
    kernels: tuple[KernelRecord, ...] | None
    unseen: Unseen | None
    idle: tuple[ActivityRecord, ...] | None
    waits: tuple[WaitRecord, ...] | None
    sampling: Sampling | None
    host: tuple[HostRecord, ...] | None
    functions: tuple[HostPartRecord, ...] | None
    lines: tuple[HostPartRecord, ...] | None
    settings: Mapping[str, Setting]


def run_to_json(run: Run, *, scale: Scale | None = None) -> str:
    """Return a run as JSON text. `scale` asks for the cost of many steps too."""
    return dump(run_record(run, scale=scale))


def run_record(run: Run, *, scale: Scale | None = None) -> RunRecord:
    """Return the fields of `joulediff.run/1`."""
    traced, captured, books = has_trace(run), has_capture(run), open_books(run)
    found, regions = run.measurement, _regions(run, books) if has_regions(run) else ()
    return copy_fields(
        RunRecord,
        run,
        schema=RUN_SCHEMA,
        step=StepRecord() if found is None else step_record(found, scale),
        conditions=ConditionsRecord() if found is None else conditions_record(found),
        ledger=None if found is None else _ledger(books),
        regions=tuple(each for each in regions if each.name != OUTSIDE) if captured else None,
        outside_regions=next((each for each in regions if each.name == OUTSIDE), None),
        ops=_ops(run, books) if captured else None,
        replays=_replays(run) if _has_replays(run) else None,
        kernels=_kernels(run.kernels, books) if traced else None,
        unseen=find_unseen(run, books),
        idle=tuple(_activity(run, each) for each in trace_activity(run)) if traced else None,
        waits=tuple(_wait(each) for each in group_waits(run)) if traced else None,
        host=None if run.sampling is None else tuple(_host(each) for each in line_times(run)),
        functions=_host_parts(run, "function"),
        lines=_host_parts(run, "line"),
    )


def _ledger(books: Books) -> LedgerRecord:
    total = add_accounts(books.accounts)
    domains = {a.domain: DomainAccountRecord(_account(a), a.counted) for a in books.accounts}
    return copy_fields(LedgerRecord, books, domains=domains, total=None if total is None else _account(total))


def _account(account: Account) -> AccountRecord:
    return copy_fields(AccountRecord, account, not_split=subtract_common(account.metered, account.idle))


def _ops(run: Run, books: Books) -> tuple[OpRecord, ...]:
    groups: dict[object, list[Op]] = {}
    for op in run.ops:
        work = work_of(run, op.id, alignment=False, kernels=False)
        groups.setdefault((op.module, _file_and_line(line_of(run, op.id)), work), []).append(op)
    times, kernels, busy_s = op_times(run), run.index.kernels, busy_times(run, books)
    found = []
    for ops in groups.values():
        indices = [i for op in ops for i in kernels[op.id]]
        energy = books.total(indices)
        power_w = mean_power_w(energy, sum(busy_s[i] for i in indices))
        found.append(_op(run, ops, _sum_times([times[op.id] for op in ops]), energy, power_w))
    return tuple(sorted(found, key=lambda op: (-joules_of(op.energy), -(op.kernel_s or 0.0), op.id)))


def _op(run: Run, ops: Sequence[Op], kernel_s: float | None, energy: Energy | None, power_w: float | None) -> OpRecord:
    first = ops[0]
    file, line = _file_and_line(line_of(run, first.id))
    user_file, user_line = _file_and_line(place_of(run, first.id))
    return copy_fields(
        OpRecord,
        first,
        file=file,
        line=line,
        user_file=user_file,
        user_line=user_line,
        calls=len(ops),
        kernel_s=kernel_s,
        energy=energy,
        power_w=power_w,
        inputs=tuple(copy_fields(ValueRecord, run.values[i]) for i in first.inputs),
        outputs=tuple(copy_fields(ValueRecord, run.values[i]) for i in first.outputs),
    )


def _file_and_line(frame: Frame | None) -> tuple[str | None, int | None]:
    return (None, None) if frame is None else (frame.file, frame.line)


def _has_replays(run: Run) -> bool:
    return bool(run.replays) or any(p.name == "replayed" and p.status in ("done", "partial") for p in run.passes)


def _replays(run: Run) -> tuple[ReplayRecord, ...]:
    counts = Counter(run.replays[op.replay].op for op in run.ops if op.replay is not None)
    return tuple(ReplayRecord(replay, counts[replay.op]) for replay in run.replays)


def _sum_times(times: Sequence[float | None]) -> float | None:
    known = [time_s for time_s in times if time_s is not None]
    return sum(known) if known else None


def _regions(run: Run, books: Books) -> tuple[RegionRecord, ...]:
    return tuple(
        RegionRecord(each.name, each.calls, each.kernel_s, each.energy) for each in group_rows(run, "region", books)
    )


def _kernels(kernels: Sequence[Kernel], books: Books) -> tuple[KernelRecord, ...]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, kernel in enumerate(kernels):
        groups.setdefault((kernel.name, kernel.kind, kernel.device), []).append(i)
    found = [_kernel([kernels[i] for i in indices], books.total(indices)) for indices in groups.values()]
    return tuple(sorted(found, key=lambda kernel: (-joules_of(kernel.energy), -kernel.kernel_s, kernel.name)))


def _kernel(group: Sequence[Kernel], energy: Energy | None) -> KernelRecord:
    sizes = [kernel.size_bytes for kernel in group if kernel.size_bytes is not None]
    return copy_fields(
        KernelRecord,
        group[0],
        streams=tuple(sorted({k.stream for k in group})),
        calls=len(group),
        kernel_s=sum(k.duration_s for k in group),
        energy=energy,
        size_bytes=sum(sizes) if len(sizes) == len(group) else None,
        joined=sum(k.op is not None for k in group),
    )


def _activity(run: Run, found: Activity) -> ActivityRecord:
    gap = None if found.largest_gap is None else _gap(run, found.largest_gap)
    return copy_fields(ActivityRecord, found, largest_gap=gap)


def _gap(run: Run, gap: Gap) -> GapRecord:
    return copy_fields(GapRecord, gap, after=_gap_end(run, gap.after), before=_gap_end(run, gap.before))


def _gap_end(run: Run, kernel: Kernel | None) -> GapEndRecord | None:
    if kernel is None:
        return None
    return GapEndRecord(kernel.name, kernel.op, None if kernel.op is None else run.ops[kernel.op].name)


def _wait(place: WaitPlace) -> WaitRecord:
    file, line = _file_and_line(place.frame)
    return copy_fields(WaitRecord, place, file=file, line=line)


def _host_parts(run: Run, by: HostBy) -> tuple[HostPartRecord, ...] | None:
    """Return the split of the energy by samples; None for a run with operators, or without samples."""
    if run.ops or run.sampling is None:
        return None
    return tuple(
        copy_fields(HostPartRecord, each, file=file, line=line)
        for each in host_parts(run, by)
        for file, line in (_file_and_line(each.frame),)
    )


def _host(line: LineTime) -> HostRecord:
    file, number = _file_and_line(line.frame)
    function = None if line.frame is None else line.frame.function
    return copy_fields(HostRecord, line, file=file, line=number, function=function)
