"""Which calls of a trace belong to which compiled module.

`torch.compile` shows a region for each entry into compiled code; what a graph break leaves to run eagerly lies
inside it, with the regions that follow. The backward half of a region runs later, perhaps in another thread,
and bears the same sequence number of autograd's.
"""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.recorders.torch.traced import Call
from joulediff.runs import Op

_REGION = "Torch-Compiled Region"
_FORWARD, _BACKWARD = "CompiledFunction", "CompiledFunctionBackward"
_GRAPH = "## Call "


def find_regions(calls: Sequence[Call], modules: Sequence[str]) -> dict[int, str | None]:
    """Return the outermost compiled calls with the module of each; None where it is not known.

    `modules` are the compiled modules in the order in which the step entered them. Where the step entered more
    or fewer than it has regions, only what is common to their paths is known.
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
    for at in _outermost(calls, [at for at, call in enumerate(calls) if call.name == _BACKWARD]):
        if not any(region <= at < calls[region].end for region in forward):
            regions[at] = by_sequence.get(calls[at].sequence, known)
    return regions


def is_compiled(op: Op, ops: Sequence[Op]) -> bool:
    """Return whether the program runs this in compiled code, forward or backward."""
    return op.compiled or (op.forward is not None and ops[op.forward].compiled)


def find_work(calls: Sequence[Call], region: int) -> list[int]:
    """Return the calls in a region that compute: its graphs, and operators beside them."""
    found, at = [], region + 1
    while at < calls[region].end:
        works = calls[at].name.startswith(_GRAPH) or "::" in calls[at].name
        if works:
            found.append(at)
        at = calls[at].end if works else at + 1
    return found


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
    """Return those that are not below another one, for places in pre-order."""
    kept: list[int] = []
    for at in found:
        if not kept or at >= calls[kept[-1]].end:
            kept.append(at)
    return kept
