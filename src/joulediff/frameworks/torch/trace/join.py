"""Joins the kernels and waits of the traced step to the operators of the captured step.

The two steps ran separately, so the join is by order: operators are found in the profiler's tree of calls, and a
kernel belongs to the operator whose call launched it, and one of compiled code to the operators that it computes. No
kernel is dropped: a kernel without an operator belongs to its compiled module, or to none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from joulediff.frameworks.torch.capture.threads import Key
from joulediff.frameworks.torch.trace.align import Matched, is_quiet, match_ops, plain_name
from joulediff.frameworks.torch.trace.compiled import BACKWARD, CompiledWork, find_work, join_compiled
from joulediff.frameworks.torch.trace.generated_code import Graph
from joulediff.frameworks.torch.trace.replayed_graphs import GraphWork, join_graphs
from joulediff.frameworks.torch.trace.traced import Call, GraphReplay, Traced
from joulediff.model.run import Kernel, Op, Wait

_TRITON = "triton::"
# Before version 3 Triton appended how the arguments were specialised: `add_kernel_0d1d2de`.
_TRITON_SUFFIX = re.compile(r"_\d[\dcde]*$")
_NAME_CHARS = 60

Regions = Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class Joined:
    """Kernels and waits by operator. `agreed`: both steps ran the same operators in the same order."""

    kernels: tuple[Kernel, ...]
    waits: tuple[Wait, ...]
    notes: tuple[str, ...]
    agreed: bool


def join(
    traced: Traced,
    ops: Sequence[Op],
    *,
    compiled_modules: Sequence[str] = (),
    graphs: Sequence[Graph] = (),
    views: Collection[int] = (),
    replays: Sequence[GraphReplay] = (),
    tasks: Sequence[Key] = (),
) -> Joined:
    """Return the kernels and waits of a traced step with the operators of the captured one.

    `compiled_modules` are the paths of compiled modules in the order in which the captured step entered them, `graphs`
    the code that the compiler generated, `views` the operators that only return views, and `replays` those of replayed
    CUDA graphs. `tasks` has the task that each thread of the captured step stands for.
    """
    modules = compiled_modules or [*dict.fromkeys(op.module for op in ops if op.compiled and op.module is not None)]
    regions = find_regions(traced.calls, modules)
    replayed = {op for replay in replays for op in replay.ops}
    own = [op for op in ops if op.id not in replayed and not (regions and is_compiled(op, ops))]
    fused = [op for op in ops if regions and op.id not in replayed and is_compiled(op, ops)]
    compiled = join_compiled(traced, regions, fused, graphs=graphs, views=views)
    in_regions = {at for at, each in enumerate(traced.launches) if _above(traced.calls, each.call, regions) is not None}
    graph_work = join_graphs(traced, replays, outside=in_regions)
    outside = {*regions, *graph_work.calls}
    shown = [op for op in own if not op.name.startswith(_TRITON)]
    matched = match_ops(traced.calls, shown, outside=outside, tasks=_pair_tasks(traced, tasks))
    unreached = _find_unreached(traced, matched, outside)
    differences = find_differences(traced.calls, shown, matched, outside=outside, unreached=unreached)
    kernels, triton_notes = _join_triton(
        _join_launches(traced, matched, regions, compiled, graph_work),
        [op for op in own if op.name.startswith(_TRITON)],
    )
    numbers = _number_threads(traced, matched)
    host = [
        *_host_work(traced, ops, matched, numbers),
        *_host_work_of_regions(traced, regions, compiled, numbers),
    ]
    loose = [traced.calls[at] for at in find_loose(traced.calls, matched, outside=outside)]
    # If both steps agree, the remaining calls of a thread that was captured are composites without work.
    is_whole = not kernels and bool(differences.notes or not ops)
    host += [_to_kernel(call, numbers) for call in loose if is_whole or call.thread in unreached]
    unseen = [call for call in loose if call.thread in unreached]
    notes = (*differences.notes, *triton_notes, *compiled.notes, *graph_work.notes, *_note_unreached(unseen))
    return Joined(
        kernels=tuple(sorted([*kernels, *host], key=lambda kernel: kernel.start_s)),
        waits=tuple(_join_waits(traced, matched, numbers)),
        notes=(*notes, *_note_alone(kernels)),
        agreed=not (differences.notes or triton_notes or unseen),
    )


def _find_unreached(traced: Traced, matched: Matched, outside: Collection[int]) -> set[int]:
    """Return the threads of which no operator was captured, and that launched nothing: its kernels are work enough.

    A thread with calls in `outside` runs compiled code or CUDA graphs, whose operators were captured.
    """
    launching = {traced.calls[launch.call].thread for launch in traced.launches if launch.call is not None}
    known = {traced.calls[at].thread for at in outside}
    return {call.thread for call in traced.calls} - matched.threads.keys() - launching - known - {0}


def _note_unreached(calls: Sequence[Call]) -> Iterator[str]:
    if calls:
        threads = len({call.thread for call in calls})
        where = "a thread" if threads == 1 else f"{threads} threads"
        yield f"{_count(calls)} ran in {where} that the recording does not reach, first {calls[0].name[:_NAME_CHARS]}"


def _pair_tasks(traced: Traced, tasks: Sequence[Key]) -> dict[int, int]:
    """Return the captured step's number for each traced thread that stands for one of its tasks."""
    captured = {key: number for number, key in enumerate(tasks)}
    return {thread: captured[key] for thread, key in traced.tasks.items() if key in captured}


def _join_launches(
    traced: Traced, matched: Matched, regions: Regions, compiled: CompiledWork, graphs: GraphWork
) -> Iterator[Kernel]:
    """Yield the kernels in the order of their launches."""
    for at, launch in enumerate(traced.launches):
        owner = graphs.launches.get(at) or compiled.launches.get(at)
        call = _above(traced.calls, launch.call, matched.ops)
        region = _above(traced.calls, launch.call, regions)
        module = None if region is None else regions[region]
        if owner is not None:
            yield replace(launch.kernel, op=owner.op, members=owner.members, join=owner.join)
        elif call is not None:
            yield replace(launch.kernel, op=matched.ops[call], join="op")
        elif module is not None:
            yield replace(launch.kernel, module=module, join="module")
        else:
            yield launch.kernel


def _join_triton(kernels: Iterator[Kernel], ops: Sequence[Op]) -> tuple[list[Kernel], list[str]]:
    """Give kernels that no call launched to the Triton functions of their name, in order."""
    waiting: dict[str, list[int]] = {}
    for op in reversed(ops):
        waiting.setdefault(op.name.removeprefix(_TRITON), []).append(op.id)
    captured = {name: len(left) for name, left in waiting.items()}
    traced: Counter[str] = Counter()
    joined = []
    for kernel in kernels:
        name = kernel.name if kernel.name in waiting else _TRITON_SUFFIX.sub("", kernel.name)
        is_triton = kernel.join == "none" and name in waiting
        traced[name] += is_triton
        has_op = is_triton and waiting[name]
        joined.append(replace(kernel, op=waiting[name].pop(), join="op") if has_op else kernel)
    notes = [
        f"the captured step launched the Triton kernel {name} {count} times, the traced one {traced[name]} times"
        for name, count in captured.items()
        if traced[name] != count
    ]
    return joined, notes


def _host_work(traced: Traced, ops: Sequence[Op], matched: Matched, numbers: Mapping[int, int]) -> Iterator[Kernel]:
    """Yield a kernel for each operator on the processor, unless it launched something on a device."""
    launching = {_above(traced.calls, launch.call, matched.ops) for launch in traced.launches}
    for at, op in matched.ops.items():
        if ops[op].device == "cpu" and at not in launching:
            yield replace(_to_kernel(traced.calls[at], numbers), op=op, join="op")


def _host_work_of_regions(
    traced: Traced, regions: Regions, compiled: CompiledWork, numbers: Mapping[int, int]
) -> Iterator[Kernel]:
    """Yield the work of compiled regions on the host, unless a region launched something on a device.

    A region whose operators are not known has a kernel for each graph.
    """
    for work in compiled.host:
        call = Call(work.name, work.thread, work.start_s, work.duration_s, parent=None, end=0)
        kernel = _to_kernel(call, numbers)
        yield replace(kernel, op=work.owner.op, members=work.owner.members, join=work.owner.join)
    launching = {_above(traced.calls, launch.call, regions) for launch in traced.launches}
    for region, module in regions.items():
        is_unknown = region not in launching and region not in compiled.regions
        for at in find_work(traced.calls, region) if is_unknown else ():
            kernel = _to_kernel(traced.calls[at], numbers)
            yield kernel if module is None else replace(kernel, module=module, join="module")


def _to_kernel(call: Call, numbers: Mapping[int, int]) -> Kernel:
    return Kernel(
        name=call.name,
        kind="cpu",
        device="cpu",
        stream=numbers[call.thread],
        start_s=call.start_s,
        duration_s=call.duration_s,
        op=None,
        module=None,
        join="none",
    )


def _join_waits(traced: Traced, matched: Matched, numbers: Mapping[int, int]) -> Iterator[Wait]:
    for pause in traced.pauses:
        call = _above(traced.calls, pause.call, matched.ops)
        op = None if call is None else matched.ops[call]
        yield replace(pause.wait, op=op, thread=numbers[pause.wait.thread])


def _number_threads(traced: Traced, matched: Matched) -> dict[int, int]:
    """Return the captured step's number for each traced thread; those it did not have follow after its own."""
    threads = {call.thread for call in traced.calls} | {pause.wait.thread for pause in traced.pauses}
    alone = sorted(threads - matched.threads.keys() - {0})
    first = max(matched.threads.values(), default=0) + 1
    return {0: 0, **matched.threads, **{thread: first + at for at, thread in enumerate(alone)}}


def _note_alone(kernels: Sequence[Kernel]) -> Iterator[str]:
    alone = [kernel for kernel in kernels if kernel.join == "none"]
    if alone:
        count = "1 kernel" if len(alone) == 1 else f"{len(alone)} kernels"
        yield f"{count} ran outside of any captured operator, first {alone[0].name[:_NAME_CHARS]}"


def _above(calls: Sequence[Call], at: int | None, marked: Container[int]) -> int | None:
    """Return the nearest marked call, from `at` upwards."""
    while at is not None and at not in marked:
        at = calls[at].parent
    return at


_REGION = "Torch-Compiled Region"
_FORWARD = "CompiledFunction"


def find_regions(calls: Sequence[Call], modules: Sequence[str]) -> dict[int, str | None]:
    """Return the outermost compiled calls with the module of each; None where it is not known.

    `modules` are the compiled modules in the order in which the step entered them. Where the step entered more
    or fewer than it has regions, only the common part of their paths is known.
    """
    forward = _outermost(calls, [at for at, call in enumerate(calls) if call.name.startswith(_REGION)])
    forward.sort(key=lambda at: calls[at].start_s)
    known = common_path(modules)
    regions: dict[int, str | None] = dict.fromkeys(forward, known)
    if len(forward) == len(modules):
        regions = dict(zip(forward, modules, strict=True))
    by_sequence: dict[int | None, str | None] = {
        call.sequence: module
        for region, module in regions.items()
        for call in calls[region : calls[region].end]
        if call.name == _FORWARD
    }
    for at in _outermost(calls, [at for at, call in enumerate(calls) if call.name == BACKWARD]):
        if not any(region <= at < calls[region].end for region in forward):
            regions[at] = by_sequence.get(calls[at].sequence, known)
    return regions


def is_compiled(op: Op, ops: Sequence[Op]) -> bool:
    """Return whether the program runs this in compiled code, forward or backward."""
    return op.compiled or (op.forward is not None and ops[op.forward].compiled)


def common_path(paths: Sequence[str]) -> str | None:
    """Return the path of the innermost module that holds all of these."""
    if not paths:
        return None
    parts = [path.split(".") for path in paths]
    shared = 0
    while all(len(each) > shared and each[shared] == parts[0][shared] for each in parts):
        shared += 1
    return ".".join(parts[0][:shared])


def _outermost(calls: Sequence[Call], found: Sequence[int]) -> list[int]:
    """Return the places that are not below another one; `found` is in pre-order."""
    kept: list[int] = []
    for at in found:
        if not kept or at >= calls[kept[-1]].end:
            kept.append(at)
    return kept


@dataclass(frozen=True, slots=True)
class Differences:
    """Calls that are not a captured operator, and operators without a call."""

    traced: tuple[int, ...]
    captured: tuple[int, ...]
    notes: tuple[str, ...]


def find_differences(
    calls: Sequence[Call],
    ops: Sequence[Op],
    matched: Matched,
    *,
    outside: Container[int] = (),
    unreached: Container[int] = (),
) -> Differences:
    """Return notes on operators that only one of the two steps ran, apart from those of threads in `unreached`."""
    unmatched = _find_unmatched(calls, _names_of(ops), matched, outside)
    traced = tuple(at for at in unmatched if calls[at].thread not in unreached)
    found = {*matched.ops.values()}
    captured = tuple(op.id for op in ops if op.id not in found and not is_quiet(op.name))
    names = {op.id: op.name for op in ops}
    notes = []
    if traced:
        before = _op_before(calls, traced[0], matched.ops)
        place = "at the begin" if before is None else f"after {names[before]} (op {before})"
        what = f"{_count(traced)} that the captured one did not"
        notes.append(f"the traced step ran {what}, first {calls[traced[0]].name} {place}")
    if captured:
        what = f"{_count(captured)} that the traced one did not"
        notes.append(f"the captured step ran {what}, first {names[captured[0]]} (op {captured[0]})")
    return Differences(traced, captured, tuple(notes))


def find_loose(calls: Sequence[Call], matched: Matched, *, outside: Container[int] = ()) -> Iterator[int]:
    """Yield every outermost operator among the calls that has none of the captured ones in or above it."""
    opened = _ancestors(calls, matched.ops)
    at = 0
    while at < len(calls):
        call = calls[at]
        is_operator = "::" in call.name
        if at not in matched.ops and at not in outside and at not in opened and is_operator and not is_quiet(call.name):
            yield at
        at = at + 1 if at in opened or not (is_operator or at in outside) else call.end


def _names_of(ops: Sequence[Op]) -> set[str]:
    """Return the names that are never shown for a mere composite of operators.

    In inference mode composite operators arrive whole, so their names say nothing about the rest of the step.
    """
    plain = {plain_name(op.name) for op in ops if not op.inference} or {plain_name(op.name) for op in ops}
    return {name for name in plain if not is_quiet(name)}


def _find_unmatched(
    calls: Sequence[Call], names: Container[str], matched: Matched, outside: Container[int]
) -> Iterator[int]:
    opened = _ancestors(calls, matched.ops)
    at = 0
    while at < len(calls):
        call = calls[at]
        if at in matched.ops or at in outside:
            at = call.end
        elif at not in opened and plain_name(call.name) in names:
            yield at
            at = call.end
        else:
            at += 1


def _ancestors(calls: Sequence[Call], below: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    for at in below:
        parent = calls[at].parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = calls[parent].parent
    return found


def _op_before(calls: Sequence[Call], at: int, ops: Mapping[int, int]) -> int | None:
    before = [call for call in ops if call < at and calls[call].thread == calls[at].thread]
    return ops[max(before)] if before else None


def _count(found: Sequence[object]) -> str:
    return "1 operator" if len(found) == 1 else f"{len(found)} operators"
