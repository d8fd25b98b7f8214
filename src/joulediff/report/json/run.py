"""A run as JSON: everything the terminal report is made of, and complete where that folds.

What was not measured, traced or captured is null, never zero and never an empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from joulediff.energy.device_time import has_trace
from joulediff.energy.ledger import Account, Books, open_books
from joulediff.frameworks.framework import place_of
from joulediff.model.energy import Energy, to_energy
from joulediff.model.measurement import Measurement
from joulediff.model.run import Kernel, Op, Run, work_of
from joulediff.report.json import dump, energy_record, measure_record
from joulediff.report.views.facts import busy_times, has_capture, line_of, op_times, power_of
from joulediff.report.views.ledger import PARTS, add_accounts
from joulediff.report.views.timeline import Activity, Gap, WaitPlace, group_waits, trace_activity

RUN_SCHEMA = "joulediff.run/1"

_STEP = (
    "energy",
    "net_energy",
    "step_s",
    "repeats",
    "steps",
    "domains",
    "idle_w",
    "clocks_mhz",
    "cpu_s",
    "profiles",
)
_CONDITIONS = ("trustworthy", "warnings", "conditions", "devices", "sampling_share")


def run_to_json(run: Run) -> str:
    """Return a run as JSON text."""
    return dump(run_record(run))


def run_record(run: Run) -> dict[str, Any]:
    """Return the fields of `joulediff.run/1`."""
    traced, captured, books = has_trace(run), has_capture(run), open_books(run)
    return {
        "schema": RUN_SCHEMA,
        "label": run.label,
        "program": run.program,
        "created": run.created,
        "tool": run.tool,
        "passes": [asdict(each) for each in run.passes],
        "notes": list(run.notes),
        "step": _part(run.measurement, _STEP),
        "conditions": _part(run.measurement, _CONDITIONS),
        "traced_s": run.traced_s,
        "ledger": None if run.measurement is None else _ledger(books),
        "regions": _regions(run, books) if captured else None,
        "ops": _ops(run, books) if captured else None,
        "replays": _replays(run) if _has_replays(run) else None,
        "kernels": _kernels(run.kernels, books) if traced else None,
        "idle": [_activity(run, each) for each in trace_activity(run)] if traced else None,
        "waits": [_wait(each) for each in group_waits(run)] if traced else None,
        "settings": dict(run.settings),
    }


def _part(found: Measurement | None, names: Sequence[str]) -> dict[str, Any]:
    if found is None:
        return dict.fromkeys(names)
    record = measure_record(found)
    return {name: record[name] for name in names}


def _ledger(books: Books) -> dict[str, Any]:
    total = add_accounts(books.accounts)
    return {
        "domains": {a.domain: {**_account(a), "in_total": a.counted} for a in books.accounts},
        "total": None if total is None else _account(total),
        "split": books.split,
        "unexplained_share": books.unexplained_share,
        "closed": books.is_closed,
    }


def _account(account: Account) -> dict[str, Any]:
    parts = {part: energy_record(getattr(account, part)) for part in PARTS}
    return {"metered": energy_record(account.metered), **parts, "not_split": energy_record(_not_idle(account))}


def _not_idle(account: Account) -> Energy | None:
    """Return what was metered besides the idle part: all that recordings told before operators were replayed."""
    whole, part = account.metered, account.idle
    if part is None:
        return None
    return to_energy(whole.joules - part.joules, whole.low - part.high, whole.high - part.low, part.source)


def _ops(run: Run, books: Books) -> list[dict[str, Any]]:
    groups: dict[object, list[Op]] = {}
    for op in run.ops:
        frame = line_of(run, op.id)
        place = None if frame is None else (frame.file, frame.line)
        work = work_of(run, op.id, alignment=False, kernels=False)
        groups.setdefault((op.module, place, work), []).append(op)
    times, kernels, busy_s = op_times(run), run.index.kernels, busy_times(run, books)
    found = []
    for ops in groups.values():
        indices = [i for op in ops for i in kernels[op.id]]
        energy = books.total(indices)
        cost = {
            "kernel_s": _sum_times([times[op.id] for op in ops]),
            "energy": energy_record(energy),
            "power_w": power_of(energy, sum(busy_s[i] for i in indices)),
        }
        found.append(_op(run, ops, cost))
    return sorted(found, key=lambda op: (-_joules(op), -(op["kernel_s"] or 0.0), op["id"]))


def _joules(entry: Mapping[str, Any]) -> float:
    return 0.0 if entry["energy"] is None else float(entry["energy"]["joules"])


def _op(run: Run, ops: Sequence[Op], cost: Mapping[str, Any]) -> dict[str, Any]:
    first, frame, own = ops[0], line_of(run, ops[0].id), place_of(run, ops[0].id)
    return {
        "id": first.id,
        "name": first.name,
        "overload": first.overload,
        "module": first.module,
        "file": None if frame is None else frame.file,
        "line": None if frame is None else frame.line,
        "user_file": None if own is None else own.file,
        "user_line": None if own is None else own.line,
        "phase": first.phase,
        "compiled": first.compiled,
        "calls": len(ops),
        **cost,
        "replay": first.replay,
        "arguments": first.arguments,
        "inputs": [_value(run, i) for i in first.inputs],
        "outputs": [_value(run, i) for i in first.outputs],
    }


def _has_replays(run: Run) -> bool:
    return bool(run.replays) or any(p.name == "replayed" and p.status in ("done", "partial") for p in run.passes)


def _replays(run: Run) -> list[dict[str, Any]]:
    """Return each replay with how many operators are calls of its kind."""
    kinds = Counter(run.replays[op.replay].op for op in run.ops if op.replay is not None)
    return [{**asdict(replay), "ops": kinds[replay.op]} for replay in run.replays]


def _value(run: Run, index: int) -> dict[str, Any]:
    value = run.values[index]
    return {
        "shape": list(value.shape),
        "dtype": value.dtype,
        "strides": list(value.strides),
        "device": value.device,
    }


def _sum_times(times: Sequence[float | None]) -> float | None:
    known = [time_s for time_s in times if time_s is not None]
    return sum(known) if known else None


def _regions(run: Run, books: Books) -> list[dict[str, Any]]:
    """Return each named region with the operators right in it, not those of regions within."""
    times, kernels, groups = op_times(run), run.index.kernels, dict[str, list[int]]()
    for op in run.ops:
        if op.region is not None:
            groups.setdefault(op.region, []).append(op.id)
    return [
        {
            "name": name,
            "calls": len(ids),
            "kernel_s": _sum_times([times[i] for i in ids]),
            "energy": energy_record(books.total(i for op in ids for i in kernels[op])),
        }
        for name, ids in groups.items()
    ]


def _kernels(kernels: Sequence[Kernel], books: Books) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, kernel in enumerate(kernels):
        groups.setdefault((kernel.name, kernel.kind, kernel.device), []).append(i)
    found = [_kernel([kernels[i] for i in indices], books.total(indices)) for indices in groups.values()]
    return sorted(found, key=lambda kernel: (-_joules(kernel), -kernel["kernel_s"], kernel["name"]))


def _kernel(group: Sequence[Kernel], energy: Energy | None) -> dict[str, Any]:
    return {
        "name": group[0].name,
        "kind": group[0].kind,
        "device": group[0].device,
        "streams": sorted({k.stream for k in group}),
        "calls": len(group),
        "kernel_s": sum(k.duration_s for k in group),
        "energy": energy_record(energy),
        "size_bytes": sum(k.size_bytes for k in group if k.size_bytes is not None) if _sized(group) else None,
        "joined": sum(k.op is not None for k in group),
    }


def _sized(kernels: Sequence[Kernel]) -> bool:
    return all(kernel.size_bytes is not None for kernel in kernels)


def _activity(run: Run, found: Activity) -> dict[str, Any]:
    gap = None if found.largest_gap is None else _gap(run, found.largest_gap)
    parts = {"span_s": found.span_s, "busy_s": found.busy_s, "idle_s": found.idle_s}
    return {"device": found.device, **parts, "largest_gap": gap}


def _gap(run: Run, gap: Gap) -> dict[str, Any]:
    ends: Mapping[str, Kernel | None] = {"after": gap.after, "before": gap.before}
    return {
        "start_s": gap.start_s,
        "duration_s": gap.duration_s,
        **{name: None if kernel is None else _end(run, kernel) for name, kernel in ends.items()},
    }


def _end(run: Run, kernel: Kernel) -> dict[str, Any]:
    return {"kernel": kernel.name, "op": kernel.op, "name": None if kernel.op is None else run.ops[kernel.op].name}


def _wait(place: WaitPlace) -> dict[str, Any]:
    frame = place.frame
    return {
        "name": place.name,
        "file": None if frame is None else frame.file,
        "line": None if frame is None else frame.line,
        "calls": place.calls,
        "wait_s": place.wait_s,
    }
