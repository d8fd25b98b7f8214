"""What the ways of two sides to an operator tell: where they part, the variable that decided, or the calls themselves.

A variable that a person sets is a stronger cause than a call: it is followed back in both programs as far as it goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import costliest, ops_of
from joulediff.diagnosis.evidence.deviation import Deviation, find_deviation, shared_frames
from joulediff.diagnosis.evidence.key_variable import KeyVariable, find_key_variable
from joulediff.diagnosis.evidence.redundancy import calls_in
from joulediff.diagnosis.evidence.settings import config_place, differing_config, set_place
from joulediff.diagnosis.lead import Lead, Subject
from joulediff.diagnosis.trials.trial import Suspect
from joulediff.diagnosis.widen_region import library_call
from joulediff.frameworks.framework import gradient_getter, setting_read_by, short_name
from joulediff.frameworks.jobs import LiveProgram
from joulediff.matching import name_ops
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Cause, FindingKind
from joulediff.model.pair import SIDES, SideName
from joulediff.model.run import Frame, Run, Setting
from joulediff.pysource.line_trace import Target

NOT_TRIED = "not tried: line by line, because a program of this diff cannot be run again"
_CONFIGURED = ("config", "environment", "call")
# Letters at which a call and an operator are taken for the same word.
_BEGINNING = 3
# How a tensor is described; that two differ in shape is what is to be explained.
_TENSOR = "tensor("


def find_by_path(subject: Subject, live: Mapping[SideName, LiveProgram], *, only_configured: bool) -> list[Lead]:
    """Return what the call paths tell; `only_configured` leaves out what is no choice of a configuration."""
    sides = subject.sides
    op_a, op_b = subject.op_a, subject.op_b
    if only_configured:
        op_a, op_b = _with_neighbour(subject)
    if op_a is None or op_b is None:
        return []
    deviation = find_deviation(sides.a.call_path(op_a), sides.b.call_path(op_b))
    suspects = (Suspect("the calls of the other side", calls=True),)
    evidence: tuple[str, ...] = () if deviation is None else (_tell_deviation(deviation),)
    key = _find_key(deviation, live)
    if isinstance(key, KeyVariable):
        lead = _configured(subject, key, (*evidence, *key.trail), suspects)
        is_own = deviation is not None and deviation.common_a.owner is None
        return [replace(lead, by_call=is_own and lead.kind == "api_misuse")]
    if key is not None:
        evidence = (*evidence, key)
    offline = _only_config(subject, deviation, evidence, suspects) or _only_gradients(subject, evidence, suspects)
    if offline is not None:
        return [offline]
    return [] if only_configured else [_calls(subject, evidence, suspects, deviation)]


def find_by_size(subject: Subject, live: Mapping[SideName, LiveProgram]) -> list[Lead]:
    """Return work that is done and thrown away: the same operator, which makes more than the other side's reads on."""
    sides, side = subject.sides, subject.expensive
    op, like = subject.op(side), subject.op(subject.cheap)
    if op is None or like is None or sides.run(side).ops[op].name != sides.run(subject.cheap).ops[like].name:
        return []
    made, needed = _count_made(sides.run(side), op), _count_made(sides.run(subject.cheap), like)
    if made <= needed or _is_read_whole(subject, op):
        return []
    name = short_name(sides.run(side).ops[op].name)
    evidence = (f"{name} makes {made:,} numbers where the other side makes {needed:,}; the rest is not read",)
    suspects = (Suspect("the calls of the other side", calls=True),)
    key = _find_argument(subject, live)
    if isinstance(key, KeyVariable):
        lead = _configured(subject, key, (*evidence, *key.trail), suspects)
    else:
        lead = _calls(subject, (*evidence, *([key] if key else [])), suspects)
    return [replace(lead, kind="redundant")]


def _count_made(run: Run, op: int) -> int:
    return sum(math.prod(run.values[value].shape) for value in run.ops[op].outputs)


def _is_read_whole(subject: Subject, op: int) -> bool:
    """Return whether a region hands on as many numbers as one of its operators makes."""
    run, outputs = subject.sides.run(subject.expensive), subject.region.outputs
    mine = [pair[0] if subject.expensive == "a" else pair[1] for pair in outputs]
    return any(math.prod(run.values[value].shape) >= _count_made(run, op) for value in mine)


def _find_argument(subject: Subject, live: Mapping[SideName, LiveProgram]) -> KeyVariable | str | None:
    """Return the argument that differs in the innermost function that both sides run alike, or why none is known."""
    assert subject.op_a is not None and subject.op_b is not None
    if len(live) < 2:
        return NOT_TRIED
    paths = subject.sides.a.call_path(subject.op_a), subject.sides.b.call_path(subject.op_b)
    for common in shared_frames(*paths):
        key = _walk_both(common, live)
        if isinstance(key, KeyVariable) and not any(
            str(each).startswith(_TENSOR) for each in (key.value_a, key.value_b)
        ):
            return key
    return None


def _find_key(deviation: Deviation | None, live: Mapping[SideName, LiveProgram]) -> KeyVariable | str | None:
    """Return the key variable of a deviation within a function that both sides run, or why there is none."""
    if deviation is None or _is_users_choice(deviation):
        return None
    return _walk_both((deviation.common_a, deviation.common_b), live)


def _walk_both(frames: tuple[Frame, Frame], live: Mapping[SideName, LiveProgram]) -> KeyVariable | str | None:
    """Return the variable that two runs of a function read differently, or why none is known."""
    if len(live) < 2:
        return NOT_TRIED
    try:
        walks = [
            live[side].trace_lines(Target(frame.file, frame.function, frame.line))
            for side, frame in zip(SIDES, frames, strict=True)
        ]
    except JoulediffError as error:
        return f"not found, line by line: {error.what}"
    if walks[0] is None or walks[1] is None:
        return f"not found: {frames[0].function} did not run again"
    return find_key_variable(walks[0], walks[1])


def _is_users_choice(deviation: Deviation) -> bool:
    """Return whether the user's own code goes on in other functions of its own: it was written so."""
    first = (deviation.first_a, deviation.first_b)
    return (
        not deviation.is_branch
        and deviation.common_a.owner is None
        and all(f is None or f.owner is None for f in first)
    )


def _tell_deviation(deviation: Deviation) -> str:
    common = f"{deviation.common_a.file}:{deviation.common_a.line}"
    if deviation.is_branch:
        common += f" in A, line {deviation.common_b.line} in B"
    ways = [
        f"{each.function}" if each is not None else "an operator" for each in (deviation.first_a, deviation.first_b)
    ]
    return f"both run {deviation.common_a.function} ({common}); from there A goes to {ways[0]}, B to {ways[1]}"


def _configured(subject: Subject, key: KeyVariable, evidence: tuple[str, ...], suspects: tuple[Suspect, ...]) -> Lead:
    name = key.key.removeprefix("config.") if key.kind == "config" else None
    places = []
    values = (key.value_a, key.value_b)
    for side, found, value in zip(SIDES, (key.place_a, key.place_b), values, strict=True):
        run = subject.sides.run(side)
        mode = setting_read_by(key.key)
        if mode is not None:  # gradients are on unless a program says otherwise
            places.append((set_place(run, mode) if value is False else None) or subject.place(side))
            continue
        own = config_place(run, name) if name is not None else set_place(run, key.key)
        places.append(own or found or subject.place(side))
    kind: FindingKind = "misconfiguration" if key.kind in _CONFIGURED else "api_misuse"
    cause = Cause("call_path", key.key, key.value_a, key.value_b, places[0], places[1], evidence)
    return Lead(kind, cause, suspects)


def _only_config(
    subject: Subject, deviation: Deviation | None, evidence: tuple[str, ...], suspects: tuple[Suspect, ...]
) -> Lead | None:
    """Return the entry of the model's configuration that differs, where there is one and the ways part in a library."""
    differing = differing_config(subject.sides.a, subject.sides.b)
    if deviation is None or deviation.common_a.owner is None or len(differing) != 1:
        return None
    ((name, (value_a, value_b)),) = differing.items()
    places = [config_place(subject.sides.run(side), name) or subject.place(side) for side in SIDES]
    told = (*evidence, f"the only entry of the models' configurations that differs is {name}")
    return Lead(
        "misconfiguration", Cause("call_path", f"config.{name}", value_a, value_b, places[0], places[1], told), suspects
    )


def _only_gradients(subject: Subject, evidence: tuple[str, ...], suspects: tuple[Suspect, ...]) -> Lead | None:
    """Return gradients as the cause, where one side runs with them and the other without: libraries look at that."""
    if subject.op_a is None or subject.op_b is None:
        return None
    a, b = subject.sides.a.ops[subject.op_a].grad, subject.sides.b.ops[subject.op_b].grad
    getter = gradient_getter(subject.sides.a)
    if getter is None or a == b or not (a if subject.expensive == "a" else b):
        return None
    told = (*evidence, "one side runs with gradients, the other without")
    key = KeyVariable(getter, "call", a, b, None, None, None, None)
    return _configured(subject, key, told, suspects)


def _with_neighbour(subject: Subject) -> tuple[int | None, int | None]:
    """Return operators to compare for work that one side lacks: there, the one that reads what it would have made."""
    reader = next(iter(subject.sides.readers_of(ops_of(subject.region, subject.expensive), subject.expensive)), None)
    if reader is None:
        return None, None
    cheap = costliest(subject.sides, subject.cheap, ops_of(reader, subject.cheap))
    mine = subject.op(subject.expensive)
    return (mine, cheap) if subject.expensive == "a" else (cheap, mine)


def _calls(
    subject: Subject, evidence: tuple[str, ...], suspects: tuple[Suspect, ...], deviation: Deviation | None = None
) -> Lead:
    """Return the calls themselves as the cause: two ways to write the same."""
    texts: list[Setting] = [_name_call(subject, side) for side in SIDES]
    if deviation is not None and deviation.common_a.owner is not None:  # functions of a library that part inside it
        firsts = [deviation.first_a, deviation.first_b]
        texts = [text if first is None else _plain(first) for text, first in zip(texts, firsts, strict=True)]
    key = texts[0] if subject.expensive == "a" else texts[1]
    if texts[0] == texts[1] and texts[0] is not None:  # functions of one name in two modules of a library
        texts = [_name_call(subject, side, in_full=True) for side in SIDES]
    places = (subject.place("a"), subject.place("b"))
    cause = Cause("call_path", str(key), texts[0], texts[1], *places, evidence)
    return Lead("api_misuse", cause, suspects, by_call=True)


def _name_call(subject: Subject, side: SideName, *, in_full: bool = False) -> str | None:
    """Return what the user's line calls: the operator itself, or the library's function that comes to it."""
    run, frame, op = subject.sides.run(side), subject.frame(side), subject.op(side)
    if op is None:
        return None
    name = short_name(run.ops[op].name)
    alike = None if frame is None else _choose_call(calls_in(run.line_text(frame.file, frame.line) or ""), name)
    if alike is not None:
        return alike
    called = library_call(run, op)
    if called is not None:
        module = called[1].file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"{module}.{_plain(called[1])}" if in_full else _plain(called[1])
    return name_ops(run, ops_of(subject.region, side)) or None


def _plain(frame: Frame) -> str:
    """Return the name of a function as its callers write it: a module or an object is called by its class."""
    return frame.function.removesuffix(".__call__").removesuffix(".forward")


def _choose_call(calls: Sequence[str], op: str | None) -> str | None:
    """Return the call in a line that is like an operator's name, or None."""
    plain = (op or "").strip("_")
    alike = [call for call in calls if plain and (call.strip("_") in plain or plain in call)]
    if not alike and len(calls) == 1:  # eigvalsh comes to _linalg_eigh
        begins = (word[:_BEGINNING] for word in plain.split("_") if len(word) >= _BEGINNING)
        alike = [call for call in calls if call.startswith(tuple(begins))]
    return max(alike, key=len, default=None)
