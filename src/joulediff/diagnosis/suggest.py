"""The sentences that suggest a fix for a finding; each kind of evidence chooses one for its lead."""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.frameworks.framework import operators_of, setting_read_by, switches_of
from joulediff.model.finding import Cause, Finding
from joulediff.model.pair import Pair, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.pysource.edits.edit import Edit

# Longer code and names of kernels are cut.
_CODE_CHARS = 100
_KERNEL_CHARS = 48


def suggest_search(
    cause: Cause,
    expensive: SideName,
    *,
    functions: Pair[Place | None] | None = None,
    kernels: Pair[str | None] | None = None,
    look: Sequence[str] = (),
) -> str:
    """Return where to search if no cause is known: the functions and kernels of both sides, and what to look at."""
    here = cause.locations.of(expensive)
    mine, other = (None, None) if functions is None else (functions.of(expensive), functions.of(other_side(expensive)))
    where = f"The costly call is {_at(here)}"
    if mine is not None and other is not None and mine != other:
        where += f". Compare {mine.function}{_line(mine)} with {other.function}{_line(other)}"
    elif mine is not None and not _is_same_line(mine, here):
        where += f", in {mine.function}{_line(mine)}"
    things = " and ".join((*look[:-1], look[-1])) if look else "the arguments, shapes and data types that reach it"
    return f"No cause was found. {where}{_kernel_text(kernels)}. Look at {things}."


def _kernel_text(kernels: Pair[str | None] | None) -> str:
    if kernels is None or kernels.a is None or kernels.b is None:
        return ""
    a, b = (_cut(name.removeprefix("void "), _KERNEL_CHARS) for name in (kernels.a, kernels.b))
    return f": both run the kernel {a}" if kernels.a == kernels.b else f": A runs the kernel {a}, B runs {b}"


def suggest_setting(cause: Cause, expensive: SideName) -> str:
    """Return that a setting, an argument or a variable gets the value of the cheap side."""
    return _set(str(cause.key), cause, expensive)


def suggest_argument(cause: Cause, expensive: SideName) -> str:
    """Return that an argument gets the value of the cheap side, or is left out if that side does not give it."""
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    where = _where(cause.locations.of(expensive))
    if other is None:
        return f"Leave out {cause.key}{where}: the other side does without it."
    if mine is None:
        return f"Pass {cause.key}={_say(other)}{where}: without it the call does more work."
    return _set(str(cause.key), cause, expensive)


def suggest_configuration(cause: Cause, expensive: SideName) -> str:
    """Return that an entry of a configuration, the environment or a mode gets the value of the cheap side."""
    key, where = str(cause.key), _where(cause.locations.of(expensive))
    switches = switches_of(key)
    advice = None if switches is None else switches.advice(key, where)
    if advice is not None:
        return advice
    # A configuration class takes `attn_implementation` and stores it as `_attn_implementation`.
    return _set(key.removeprefix("config.").lstrip("_"), cause, expensive)


def suggest_sleep(cause: Cause, expensive: SideName) -> str:
    """Return how a host sleeps while it waits for a device."""
    mine, here = cause.values.of(expensive), cause.locations.of(expensive)
    return (
        f"Let the host sleep while it waits (it is {_say(mine)}{_where(here)}): "
        "call cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) before the device is used."
    )


def suggest_no_copy(cause: Cause, expensive: SideName) -> str:
    """Return that a copy to another layout is left out."""
    other, here = cause.values.of(other_side(expensive)), cause.locations.of(expensive)
    return f"Leave out {_call(cause.key)}{_where(here)}: the other side reads the tensor without a copy, as {other}."


def suggest_no_cast(cause: Cause, expensive: SideName, *, inside: Place | None = None) -> str:
    """Return that a cast is left out, in the function of a library that makes it, if it is there."""
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    here = cause.locations.of(expensive)
    where = _where(here)
    if inside is not None and here is not None and (inside.file, inside.line) != (here.file, here.line):
        where = f" in {inside.function} ({_at(inside)}), which {_at(here)} calls"
    return f"Leave out the cast from {other} to {mine}{where}: the other side computes in {other}."


def suggest_leaving_out(cause: Cause, expensive: SideName) -> str:
    """Return that a call is left out."""
    return f"Leave out {_call(cause.key)}{_where(cause.locations.of(expensive))}: the other side does without it."


def suggest_detaching(cause: Cause, expensive: SideName, *, name: str) -> str:
    """Return that a result is detached, so that no gradients of it are computed."""
    where = _where(cause.locations.of(expensive))
    return f"Call {cause.key} on the result of {name}{where} where nothing reads its gradients, or turn them off there."


def suggest_order(cause: Cause, expensive: SideName, *, flops: Pair[int]) -> str:
    """Return that matrices are multiplied in the order of the cheap side."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    more = flops.of(expensive) / max(1, flops.of(other_side(expensive)))
    return (
        f"Multiply in the order of the other side in {_call(cause.key)}{_where(here)}{_as_other(here, there)}: "
        f"this one needs {more:.1f} times the operations."
    )


def suggest_size(cause: Cause, expensive: SideName, *, unit: int | None) -> str:
    """Return that a dimension gets the size of the cheap side; `unit` is the multiple that it should be of."""
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    where = _where(cause.locations.of(expensive))
    if unit is not None:
        return f"Make {cause.key} a multiple of {unit}: {_say(other)} instead of {_say(mine)}{where}."
    return f"Make {cause.key} {_say(other)} instead of {_say(mine)}{where}: the outputs do not need the rest."


def suggest_fewer_copies(cause: Cause, expensive: SideName, *, copies: str) -> str:
    """Return that work is done before a tensor is repeated."""
    where = _where(cause.locations.of(expensive))
    return f"Do the work once, before {_call(cause.key)} repeats the tensor{where}: now it is done on {copies}."


def suggest_keeping(cause: Cause, expensive: SideName) -> str:
    """Return that a call is made once and its result kept."""
    count = cause.values.of(expensive)
    return (
        f"Call {cause.key} once and keep its result{_where(cause.locations.of(expensive))}: "
        f"it computes the same values {count} times in a step."
    )


def suggest_smaller(cause: Cause, expensive: SideName, *, times: float) -> str:
    """Return that work is done on smaller tensors, as the cheap side does."""
    mine, other = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    return (
        f"Run {cause.key} on what is used alone, after it was picked{_where(mine)}: "
        f"it makes {times:.1f} times the elements of the other side{_line(other)}."
    )


def suggest_less_often(cause: Cause, expensive: SideName) -> str:
    """Return that a call is made less often."""
    where = _where(cause.locations.of(expensive))
    return f"Call {cause.key} less often{where}: the other side runs fewer of its operators."


def suggest_no_wait(cause: Cause, expensive: SideName) -> str:
    """Return that a line does not wait for the device."""
    here = cause.locations.of(expensive)
    return (
        f"Do not wait for the device there: {cause.key}{_where(here)} blocks the program until the device is done. "
        "Keep the numbers on the device and read them once, after the loop."
    )


def suggest_layout(cause: Cause, expensive: SideName, *, op: str = "") -> str:
    """Return which layout the inputs of an operator should have; `op` is the operator's name in full."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    if cause.key == "dtype":
        return f"Compute in {other} instead of {mine}: convert the tensor once, before the step{_where(here)}."
    if cause.key == "memory_format":
        convert = operators_of(op).convert_format
        code = "" if convert is None else f": `{convert(str(other))}`"
        return f"Convert the model and its inputs to {other} (they are {mine}){code}{_where(here)}."
    if cause.key == "alignment":
        return f"Give the operator a tensor that begins at a multiple of 16 bytes{_where(here)}."
    return f"Give the operator {other} instead of {mine}{_where(here)}{_as_other(here, there)}."


def suggest_call(
    cause: Cause, expensive: SideName, *, difference: str | None = None, inside: Place | None = None
) -> str:
    """Return which call to make instead, in the function of a library where the paths part, if it is there.

    `difference` says what differs where both sides make the same call.
    """
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    if mine != other and inside is not None:
        reached = "" if here is None else f", which {_at(here)} calls"
        return f"Call {other} instead of {mine} in {inside.function}{_line(inside)}{reached}{_as_other(here, there)}."
    if mine != other:
        return f"Call {other} instead of {mine}{_where(here)}{_as_other(here, there)}."
    if _is_same_line(here, there):
        differs = difference or "its arguments or inputs differ"
        return f"The call{_where(here)} is the same on both sides: {differs}."
    return f"Write the call{_where(here)} as the other side does{_where(there)}."


def suggest_functions(cause: Cause, expensive: SideName) -> str:
    """Return which function of the other program does the same work for less."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    return f"Compare {mine}{_line(here)} with {other}{_line(there)}, which does the same work with less energy."


def suggest_other_code(cause: Cause, expensive: SideName, *, inside: Place) -> str:
    """Return that a class, whose function is given, is replaced by other code."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    return f"Replace {cause.key} ({_at(inside)}){_line(here)}{_as_other(here, there)}."


def suggest_one_call(cause: Cause, expensive: SideName, *, count: int) -> str:
    """Return the one call that replaces `count` operators."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    other = cause.values.of(other_side(expensive))
    return f"Call {other} in place of {count} operators{_where(here)}{_as_other(here, there)}."


def suggest_replacing(cause: Cause, expensive: SideName) -> str:
    """Return the call that replaces the operators of a line, where no single call of the line has a name."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    other = cause.values.of(other_side(expensive))
    return f"Call {other} instead of the operators at {_at(here)}{_as_other(here, there)}."


def suggest_implementation(cause: Cause, expensive: SideName, *, difference: str | None = None) -> str:
    """Return that the other program's code is used, where no single call has a name."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    if _is_same_line(here, there):
        differs = difference or "its arguments, its inputs or the code that it runs differ"
        return f"The call{_where(here)} is the same on both sides: {differs}."
    if there is None:
        return f"Use the other program's implementation instead of {_at(here)}."
    return f"Use the implementation at {_at(there)} of the other program instead of {_at(here)}."


def suggest_without_line(cause: Cause, expensive: SideName) -> str:
    """Return that a line of the host is left out, or moved out of the step."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    if there is not None:
        return f"Do less in {_at(here)}: the other side spends less time{_where(there)}."
    return f"Leave out {cause.key}{_where(here)}, or move it out of the step: the other side does without it."


def suggest_less_work(cause: Cause, expensive: SideName) -> str:
    """Return that a line of the host, whose result is used, does its work in less time."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    other = "" if there is None else _as_other(here, there)
    return f"Do the work of {cause.key}{_where(here)} in less time{other}, or outside of the step, and keep its result."


def suggest_change(cause: Cause, expensive: SideName, edit: Edit) -> str:
    """Return the change of the source that was tried."""
    here, there = cause.locations.of(expensive), cause.locations.of(other_side(expensive))
    mine, other = _one_line(edit.value_a), _one_line(edit.value_b)
    if edit.kind == "argument" and edit.value_b is not None and _is_positional(edit, here):
        return f"Write `{other}` instead of `{mine}`{_line(here)}."
    if edit.kind == "argument" and edit.value_b is None:
        return f"Leave out {edit.key}={mine}{_where(here)}: the other side does without it."
    if edit.kind == "argument":
        return f"Pass {edit.key}={other}{_where(here)}{_as_other(here, there)}."
    if edit.kind == "left_out":
        return suggest_leaving_out(cause, expensive)
    if edit.kind == "moved":
        return f"Compute {cause.key} once, outside of the step or the loop{_where(here)}{_as_other(here, there)}."
    if edit.kind == "added":
        return f"Add `{other}` at {_at(here)}{_as_other(here, there)}."
    if edit.value_a and edit.value_b and edit.line == edit.end_line:
        return f"Write `{other}` instead of `{mine}`{_line(here)}."
    return suggest_implementation(cause, expensive)


def _is_positional(edit: Edit, here: Place | None) -> bool:
    """Return whether an argument has no name of its own: it is called by the function that it is passed to."""
    return edit.value_a is not None and here is not None and f"{edit.key}(" in (here.text or "")


def _one_line(text: str | None) -> str:
    return _cut(" ".join((text or "").split()), _CODE_CHARS)


def find_fix(finding: Finding) -> dict[str, Setting] | None:
    """Return the settings that fix a finding; None if it takes a change of code."""
    cause = finding.cause
    if finding.kind != "misconfiguration" or len(cause.keys) != 1:
        return None
    value = cause.values.of(other_side(finding.expensive))
    key = setting_read_by(cause.keys[0]) or cause.keys[0]
    switches = switches_of(key)
    if cause.type == "setting" or key.startswith("config.") or (switches is not None and key == switches.gradients):
        return {key: value}
    return {f"env.{key}": value} if cause.type == "call_path" and key.isupper() else None


def _set(name: str, cause: Cause, expensive: SideName) -> str:
    mine, other = cause.values.of(expensive), cause.values.of(other_side(expensive))
    return f"Set {name} to {_say(other)}; it is {_say(mine)}{_where(cause.locations.of(expensive))}."


def _is_same_line(here: Place | None, there: Place | None) -> bool:
    if here is None or there is None:
        return False
    # The same code in two files is no other way to write it.
    is_same_text = here.text is not None and there.text is not None and here.text.strip() == there.text.strip()
    return is_same_text or (here.file, here.line) == (there.file, there.line)


def _as_other(here: Place | None, there: Place | None) -> str:
    return "" if _is_same_line(here, there) else f", as the other side does{_where(there)}"


def _say(value: Setting) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _where(place: Place | None) -> str:
    return "" if place is None else f" ({_at(place)})"


def _line(place: Place | None) -> str:
    return "" if place is None else f" ({place.file}:{place.line})"


def _at(place: Place | None) -> str:
    if place is None:
        return "not known"
    return f"{place.file}:{place.line}" + (f": `{_cut(place.text, _CODE_CHARS)}`" if place.text else "")


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def _call(key: str | None) -> str:
    """Return a call as it is written: `contiguous()`."""
    return f"{key}()" if key is not None and key.replace(".", "").isidentifier() else str(key)
