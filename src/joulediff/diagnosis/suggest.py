"""What to do about a finding, in words a developer can act on: the line to change, and to what."""

from __future__ import annotations

from typing import TypeVar

from joulediff.diagnosis.redundancy import COPIES
from joulediff.diagnosis.settings import TOLD_BY
from joulediff.findings import Cause, Finding, FindingKind, Place, SideName
from joulediff.runs import Setting

T = TypeVar("T")


def suggest(kind: FindingKind, cause: Cause, expensive: SideName, *, written_out: int = 0) -> str:
    """Return one or two sentences; of what is unknown, where to look.

    `written_out` is how many operators the expensive side has for one of the other, where the key is one of them.
    """
    here, there = _sides(cause.location_a, cause.location_b, expensive)
    mine, other = _sides(cause.value_a, cause.value_b, expensive)
    if kind == "unknown" or cause.key is None:
        return f"No cause was found. The costly call is {_at(here)}; compare the kernels of the two sides."
    if cause.type == "setting" and cause.key.endswith(".schedule"):
        return (
            f"Let the host sleep while it waits (it is {_say(mine)}{_where(here)}): "
            "call cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) before the device is used."
        )
    if cause.type == "setting":
        return f"Set {cause.key} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if cause.type == "layout" and cause.key in COPIES:
        return f"Leave out {cause.key}{_where(here)}: the other side reads the tensor as it lies, with {other}."
    if cause.type == "layout":
        return _layout(cause.key, mine, other, here, there)
    if cause.type == "redundancy":
        return f"Leave out {cause.key}{_where(here)}: the other side does without it."
    if cause.type == "host":
        return (
            f"Do not wait for the device there: {cause.key}{_where(here)} stops the program until it is done. "
            "Keep the numbers on the device and read them once, after the loop."
        )
    if written_out:
        return f"Call {other} in place of {written_out} operators{_where(here)}, as the other side does{_where(there)}."
    return _path(cause, kind, mine, other, here, there)


def find_fix(finding: Finding) -> dict[str, Setting] | None:
    """Return the settings that would mend a finding; None where it takes a change of code."""
    cause = finding.cause
    value = cause.value_b if finding.expensive == "a" else cause.value_a
    key = TOLD_BY.get(cause.key or "", cause.key or "")
    if finding.kind != "misconfiguration" or " and " in key:
        return None
    if cause.type == "setting" or key.startswith("config.") or key == "torch.grad_enabled":
        return {key: value}
    return {f"env.{key}": value} if cause.type == "call_path" and key.isupper() else None


def _layout(key: str, mine: Setting, other: Setting, here: Place | None, there: Place | None) -> str:
    if key == "dtype":
        return f"Compute in {other} instead of {mine}: convert the tensor once, before the step{_where(here)}."
    if key == "memory_format":
        return (
            f"Put the model and its inputs into {other} (they are {mine}): "
            f"`.to(memory_format=torch.{_format(other)})`{_where(here)}."
        )
    if key == "alignment":
        return f"Give the operator a tensor that begins at a multiple of 16 bytes{_where(here)}."
    return f"Give the operator {other} instead of {mine}{_where(here)}, as the other side does{_where(there)}."


def _path(
    cause: Cause, kind: FindingKind, mine: Setting, other: Setting, here: Place | None, there: Place | None
) -> str:
    if cause.key == "torch.is_grad_enabled":
        return f"Run the step under torch.no_grad() or torch.inference_mode(){_where(here)}: nobody asks for gradients."
    if kind == "misconfiguration" and cause.key is not None:
        name = cause.key.removeprefix("config.").lstrip("_")  # _attn_implementation is given without
        return f"Set {name} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if cause.key != str(mine).rpartition(".")[2] and cause.key != str(
        mine
    ):  # a variable of the code decided, not what it calls
        return f"Set {cause.key} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if mine == other:
        return f"Write the call{_where(here)} as the other side does{_where(there)}."
    return f"Call {other} instead of {mine}{_where(here)}, as the other side does{_where(there)}."


def _sides(a: T, b: T, expensive: SideName) -> tuple[T, T]:
    return (a, b) if expensive == "a" else (b, a)


def _say(value: Setting) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _format(name: Setting) -> str:
    return "contiguous_format" if name == "contiguous" else str(name)


def _where(place: Place | None) -> str:
    return "" if place is None else f" ({_at(place)})"


def _at(place: Place | None) -> str:
    if place is None:
        return "not known"
    return f"{place.file}:{place.line}" + (f": `{place.text}`" if place.text else "")
