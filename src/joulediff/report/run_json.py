"""A run as JSON: everything the terminal report is made of, and complete where that folds.

What was not measured, traced or captured is null, never zero and never an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from joulediff.energy.activity import has_trace
from joulediff.records import Measurement
from joulediff.report.facts import has_capture, line_of, op_times
from joulediff.report.json import dump, energy_record, measure_record
from joulediff.report.ledger import Account, add_accounts, open_books
from joulediff.report.timeline import Activity, Gap, WaitPlace, group_waits, trace_activity
from joulediff.runs import Kernel, Op, Run

RUN_SCHEMA = "joulediff.run/1"

_STEP = ("energy", "net_energy", "step_s", "repeats", "steps", "domains", "idle_w")
_CONDITIONS = ("trustworthy", "warnings", "conditions", "devices", "sampling_share")


def run_to_json(run: Run) -> str:
    """Return a run as JSON text."""
    return dump(run_record(run))


def run_record(run: Run) -> dict[str, Any]:
    """Return the fields of `joulediff.run/1`."""
    traced, captured = has_trace(run), has_capture(run)
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
        "ledger": None if run.measurement is None else _ledger(open_books(run)),
        "regions": _regions(run) if captured else None,
        "ops": _ops(run) if captured else None,
        "kernels": _kernels(run.kernels) if traced else None,
        "idle": [_activity(run, each) for each in trace_activity(run)] if traced else None,
        "waits": [_wait(each) for each in group_waits(run)] if traced else None,
        "settings": dict(run.settings),
    }


def _part(found: Measurement | None, names: Sequence[str]) -> dict[str, Any]:
    if found is None:
        return dict.fromkeys(names)
    record = measure_record(found)
    return {name: record[name] for name in names}


def _ledger(accounts: Sequence[Account]) -> dict[str, Any]:
    total = add_accounts(accounts)
    return {
        "domains": {a.domain: {**_account(a), "in_total": a.counted} for a in accounts},
        "total": None if total is None else _account(total),
    }


def _account(account: Account) -> dict[str, Any]:
    return {
        "metered": energy_record(account.metered),
        "idle": energy_record(account.idle),
        "not_split": energy_record(account.rest),
    }


def _ops(run: Run) -> list[dict[str, Any]]:
    groups: dict[object, list[Op]] = {}
    for op in run.ops:
        frame = line_of(run, op.id)
        place = None if frame is None else (frame.file, frame.line)
        types = tuple((v.shape, v.dtype, v.strides, v.device) for v in (run.values[i] for i in op.inputs))
        groups.setdefault((op.name, op.overload, op.module, place, types, op.arguments), []).append(op)
    times = op_times(run)
    found = [_op(run, ops, _sum_times([times[op.id] for op in ops])) for ops in groups.values()]
    return sorted(found, key=lambda op: (-(op["kernel_s"] or 0.0), op["id"]))


def _op(run: Run, ops: Sequence[Op], kernel_s: float | None) -> dict[str, Any]:
    first, frame, own = ops[0], line_of(run, ops[0].id), run.place_of(ops[0].id)
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
        "kernel_s": kernel_s,
        "arguments": first.arguments,
        "inputs": [_value(run, i) for i in first.inputs],
        "outputs": [_value(run, i) for i in first.outputs],
    }


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


def _regions(run: Run) -> list[dict[str, Any]]:
    """Return each named region with the operators right in it, not those of regions within."""
    times, groups = op_times(run), dict[str, list[int]]()
    for op in run.ops:
        if op.region is not None:
            groups.setdefault(op.region, []).append(op.id)
    return [
        {"name": name, "calls": len(ids), "kernel_s": _sum_times([times[i] for i in ids])}
        for name, ids in groups.items()
    ]


def _kernels(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.kind, kernel.device), []).append(kernel)
    found = [
        {
            "name": name,
            "kind": kind,
            "device": device,
            "streams": sorted({k.stream for k in group}),
            "calls": len(group),
            "kernel_s": sum(k.duration_s for k in group),
            "size_bytes": sum(k.size_bytes for k in group if k.size_bytes is not None) if _sized(group) else None,
            "joined": sum(k.op is not None for k in group),
        }
        for (name, kind, device), group in groups.items()
    ]
    return sorted(found, key=lambda kernel: (-kernel["kernel_s"], kernel["name"]))


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
