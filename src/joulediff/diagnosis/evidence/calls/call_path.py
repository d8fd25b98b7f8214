"""Evidence: the two sides reach an operator by different call paths.

Three things may be the cause: the variable that decided where the paths part, an entry of a configuration or a mode
that differs, or else the calls themselves. A variable that a person sets is a stronger cause than a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import costliest, ops_of, to_place
from joulediff.diagnosis.evidence.calls.deviation import Deviation, find_deviation, library_call, ops_of_call
from joulediff.diagnosis.evidence.calls.extra_call import as_called, find_extra_call
from joulediff.diagnosis.evidence.calls.key_variable import KeyVariable, find_key_variable
from joulediff.diagnosis.evidence.calls.source_calls import calls_in, find_written_call
from joulediff.diagnosis.evidence.recorded_settings import config_place, differing_config, set_place
from joulediff.diagnosis.evidence.state import Leaf, describe_leaf, differing_leaves
from joulediff.diagnosis.lead import CALLS_OF_OTHER_SIDE, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import (
    suggest_call,
    suggest_configuration,
    suggest_functions,
    suggest_implementation,
    suggest_less_often,
    suggest_one_call,
    suggest_replacing,
    suggest_setting,
)
from joulediff.frameworks.framework import gradient_getter, is_copy, library_packages, setting_read_by, short_name
from joulediff.matching.rows import name_ops
from joulediff.model.energy import joules_of
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import NOT_TRIED, Cause
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run, Setting, is_view
from joulediff.pysource.leaf_sites import words_of
from joulediff.pysource.line_trace import Target

NOT_TRACED = f"{NOT_TRIED}line by line, because a program of this diff cannot be run again"
# Origins of a value that a person sets.
_CONFIGURED = ("config", "environment", "call")
# This many operators in place of one call are that call written out.
_WRITTEN_OUT = 3
# An operator of the region with less than this share of the energy of the costliest one costs little.
_NOTABLE = 0.2
# A call with this many times the energy of a region does other work as well.
_WIDER = 2.0
# A call and an operator whose names share this many first letters of a word count as the same.
_PREFIX_CHARS = 3


@dataclass(frozen=True, slots=True)
class _CallName:
    """The name of the code that ran an operator: a function or one operator, or else a list of operators."""

    text: str | None
    is_function: bool


def find_call_path(subject: Subject) -> list[Lead]:
    """Return the lead of the call paths. A one-sided region has one only if a configuration decided."""
    if subject.relation == "same_operators":
        return []
    is_one_sided = subject.relation == "one_sided"
    if not is_one_sided:
        subject = _about_other_operators(subject)
    ops = _with_reader(subject) if is_one_sided else subject.ops
    if ops.a is None or ops.b is None:
        return []
    deviation = find_deviation(subject.comparison.a.call_path(ops.a), subject.comparison.b.call_path(ops.b))
    evidence = () if deviation is None else (_describe_deviation(deviation),)
    key = _find_key(subject, deviation)
    if isinstance(key, KeyVariable):
        lead = key_lead(subject, key, (*evidence, *key.trail))
        is_own = deviation is not None and deviation.common_a.owner is None
        return [_as_call(subject, lead) if is_own and lead.kind == "api_misuse" else lead]
    if key is not None:
        evidence = (*evidence, key)
    lead_of_entry = _only_config_entry(subject, deviation, evidence) or _only_gradients(subject, evidence)
    if lead_of_entry is not None:
        return [lead_of_entry]
    if is_one_sided:
        return []
    return [_functions_lead(subject, evidence) or call_lead(subject, evidence, deviation)]


def _about_other_operators(subject: Subject) -> Subject:
    """Return the subject with the costliest operator of the expensive side that the cheap side does without.

    A copy follows from another operator, if there is one. An operator that costs little says nothing.
    """
    side = subject.expensive
    theirs = set(_computing_names(subject, subject.cheap))
    run = subject.comparison.run(side)
    other = [op for op in ops_of(subject.region, side) if run.ops[op].name not in theirs and not is_view(run, op)]
    computing = [op for op in other if not is_copy(run.ops[op].name)]
    chief, most = costliest(subject.comparison, side, computing or other), subject.op(side)
    costs = subject.comparison.costs[side]
    if chief is None or most is None or joules_of(costs.of([chief])) < _NOTABLE * joules_of(costs.of([most])):
        return subject
    ops = pair_from(side, chief, subject.op(subject.cheap))
    return replace(subject, op_a=ops.a, op_b=ops.b)


def trace_both(subject: Subject, frames: tuple[Frame, Frame]) -> KeyVariable | str | None:
    """Return the variable that two runs of a function read differently, or why none is known."""
    if len(subject.live) < 2:
        return NOT_TRACED
    try:
        a, b = (
            subject.live[side].trace_lines(Target(frame.file, frame.function, frame.line))
            for side, frame in zip(SIDES, frames, strict=True)
        )
    except JoulediffError as error:
        return f"not found, line by line: {error.what}"
    if a is None or b is None:
        return f"not found: {frames[0].function} did not run again"
    return find_key_variable(a, b)


def key_lead(subject: Subject, key: KeyVariable, evidence: tuple[str, ...]) -> Lead:
    """Return the lead of a variable that decided: a misconfiguration if a person sets it."""
    leaf = _leaf_of(subject, key) if key.kind not in _CONFIGURED else None
    if leaf is not None:
        return _leaf_lead(subject, leaf, evidence)
    locations = Pair(*(_key_place(subject, key, side) for side in SIDES))
    values: Pair[Setting] = Pair(key.value_a, key.value_b)
    cause = make_cause("call_path", key.key, values, locations, evidence)
    if key.kind in _CONFIGURED:
        suggestion = suggest_configuration(cause, subject.expensive)
        return Lead("misconfiguration", cause, (CALLS_OF_OTHER_SIDE,), suggestion)
    suggestion = suggest_setting(cause, subject.expensive)
    if _is_function_itself(key.key, values.of(subject.expensive)):
        suggestion = suggest_call(cause, subject.expensive, difference=_describe_inputs(subject))
    return Lead("api_misuse", cause, (CALLS_OF_OTHER_SIDE,), suggestion)


def _leaf_of(subject: Subject, key: KeyVariable) -> Leaf | None:
    """Return the value of the state that a variable of a library holds: it has its name and both its values."""
    words = words_of(key.key)
    return next(
        (
            leaf
            for leaf in differing_leaves(subject.comparison)
            if words and leaf.name == words[-1] and leaf.values == Pair(key.value_a, key.value_b)
        ),
        None,
    )


def _leaf_lead(subject: Subject, leaf: Leaf, evidence: tuple[str, ...]) -> Lead:
    """Return the lead of a value of the state, at the user's line that sets it."""
    locations = Pair(*(leaf.places.of(side) or subject.place(side) for side in SIDES))
    cause = make_cause("state", leaf.name, leaf.values, locations, (*evidence, describe_leaf(leaf)))
    suggestion = suggest_setting(cause, subject.expensive)
    return Lead("misconfiguration", cause, (CALLS_OF_OTHER_SIDE,), suggestion)


def _is_function_itself(key: str, value: Setting) -> bool:
    """Return whether a variable is the function that is called, not a value that chose it."""
    return key in (str(value), str(value).rpartition(".")[2])


def _as_call(subject: Subject, lead: Lead) -> Lead:
    """Return the lead of a variable in the user's own code, which is changed by another call."""
    count = _count_written_out(subject, str(lead.cause.key))
    suggestion = suggest_one_call(lead.cause, subject.expensive, count=count) if count else lead.suggestion
    return replace(lead, suggestion=suggestion, is_by_call=True)


def call_lead(subject: Subject, evidence: tuple[str, ...], deviation: Deviation | None = None) -> Lead:
    """Return the calls themselves as the cause: two ways to write the same computation."""
    a, b = (_name_call(subject, side) for side in SIDES)
    if deviation is not None and not _has_public_names(deviation):
        deviation = None
    if deviation is not None and deviation.common_a.owner is not None:  # the paths part inside a library
        a = a if deviation.first_a is None else _CallName(_function_name(deviation.first_a), is_function=True)
        b = b if deviation.first_b is None else _CallName(_function_name(deviation.first_b), is_function=True)
    names = Pair(a, b)
    extra = find_extra_call(subject)
    if extra is not None:
        theirs = subject.functions.of(subject.cheap)
        other = names.of(subject.cheap) if theirs is None else _CallName(as_called(theirs.function), is_function=True)
        names = pair_from(subject.expensive, _CallName(extra.name, is_function=True), other)
    key = names.of(subject.expensive).text
    if extra is None and a.text == b.text and a.text is not None:  # functions of one name in two modules of a library
        names = Pair(*(_name_call(subject, side, in_full=True) for side in SIDES))
    values: Pair[Setting] = Pair(names.a.text, names.b.text)
    places = subject.places
    if extra is not None:
        places = pair_from(subject.expensive, extra.place, subject.places.of(subject.cheap))
    if extra is not None and extra.is_done_less:
        cause = make_cause("call_path", extra.name, pair_from(subject.expensive, extra.name, None), places, evidence)
        return Lead("redundant", cause, (CALLS_OF_OTHER_SIDE,), suggest_less_often(cause, subject.expensive))
    cause = make_cause("call_path", str(key), values, places, evidence)
    suggestion = _suggest(subject, cause, names, _where_they_part(subject, deviation))
    return Lead("api_misuse", cause, (CALLS_OF_OTHER_SIDE,), suggestion, is_by_call=True)


def _functions_lead(subject: Subject, evidence: tuple[str, ...]) -> Lead | None:
    """Return the functions that do the work as the cause, if the programs call two different libraries for it.

    The calls in the user's code are then whole systems, and no name of what differs.
    """
    assert subject.op_a is not None and subject.op_b is not None
    comparison = subject.comparison
    called = library_call(comparison.a, subject.op_a), library_call(comparison.b, subject.op_b)
    if None in called or len({frame.owner for each in called if each is not None for frame in each[1:]}) == 1:
        return None
    places = subject.functions
    if places.a is None or places.b is None or places.a == subject.place("a") or places.b == subject.place("b"):
        return None
    key = Pair(places.a, places.b).of(subject.expensive).function
    values: Pair[Setting] = Pair(places.a.function, places.b.function)
    if values.a == values.b:  # functions of one name in two libraries
        values = Pair(*(f"{_module_name(place.file)}.{place.function}" for place in (places.a, places.b)))
    cause = make_cause("call_path", key, values, Pair(places.a, places.b), evidence)
    return Lead(
        "api_misuse", cause, (CALLS_OF_OTHER_SIDE,), suggest_functions(cause, subject.expensive), is_by_call=True
    )


def _has_public_names(deviation: Deviation) -> bool:
    """Return whether a person knows the functions to which two paths part: not private ones of a framework."""
    parted = [each for each in (deviation.first_a, deviation.first_b) if each is not None]
    inner = [each for each in parted if each.owner in library_packages()]
    return not any(as_called(each.function).rpartition(".")[2].startswith("_") for each in inner)


def _where_they_part(subject: Subject, deviation: Deviation | None) -> Place | None:
    """Return the last line in common of the expensive side, if the call paths part inside a library."""
    if deviation is None or deviation.common_a.owner is None or None in (deviation.first_a, deviation.first_b):
        return None
    frame = Pair(deviation.common_a, deviation.common_b).of(subject.expensive)
    return to_place(subject.comparison.run(subject.expensive), frame)


def _suggest(subject: Subject, cause: Cause, names: Pair[_CallName], inside: Place | None) -> str:
    count = _count_written_out(subject, str(cause.key))
    if count:
        return suggest_one_call(cause, subject.expensive, count=count)
    difference = _describe_inputs(subject)
    if not names.of(subject.cheap).is_function:
        return suggest_implementation(cause, subject.expensive, difference=difference)
    if not names.of(subject.expensive).is_function:
        return suggest_replacing(cause, subject.expensive)
    return suggest_call(cause, subject.expensive, difference=difference, inside=inside)


def _count_written_out(subject: Subject, key: str) -> int:
    """Return the number of operators in place of one of the cheap side, if the key names one of them; else 0."""
    mine, theirs = (_computing_names(subject, side) for side in (subject.expensive, subject.cheap))
    is_one_of_them = any(key.strip("_") in name for name in mine)
    return len(mine) if is_one_of_them and len(mine) >= _WRITTEN_OUT and len(theirs) == 1 else 0


def _computing_names(subject: Subject, side: SideName) -> list[str]:
    run = subject.comparison.run(side)
    return [run.ops[op].name for op in ops_of(subject.region, side) if not is_view(run, op)]


def _describe_inputs(subject: Subject) -> str | None:
    """Return the first input of the costliest operators whose shape or type differs, or how the operators differ."""
    if subject.op_a is None or subject.op_b is None:
        return None
    a, b = subject.comparison.a, subject.comparison.b
    op_a, op_b = a.ops[subject.op_a], b.ops[subject.op_b]
    if op_a.name != op_b.name:
        return f"it runs {short_name(op_a.name)} in A and {short_name(op_b.name)} in B"
    for x, y in zip(op_a.inputs, op_b.inputs, strict=False):
        left, right = (f"{'x'.join(map(str, v.shape))} {v.dtype}" for v in (a.values[x], b.values[y]))
        if left != right:
            return f"{short_name(op_a.name)} reads {left} in A and {right} in B"
    return None


def _find_key(subject: Subject, deviation: Deviation | None) -> KeyVariable | str | None:
    """Return the key variable of a deviation within a function that both sides run, or why there is none."""
    if deviation is None or _is_users_choice(deviation):
        return None
    return trace_both(subject, (deviation.common_a, deviation.common_b))


def _is_users_choice(deviation: Deviation) -> bool:
    """Return whether both programs differ in the user's own code, outside a branch: no variable selects the call."""
    return (
        not deviation.is_branch
        and deviation.common_a.owner is None
        and all(frame is None or frame.owner is None for frame in (deviation.first_a, deviation.first_b))
    )


def _describe_deviation(deviation: Deviation) -> str:
    common = f"{deviation.common_a.file}:{deviation.common_a.line}"
    if deviation.is_branch:
        common += f" in A, line {deviation.common_b.line} in B"
    a, b = ("an operator" if frame is None else frame.function for frame in (deviation.first_a, deviation.first_b))
    return f"both run {deviation.common_a.function} ({common}); from there A goes to {a}, B to {b}"


def _key_place(subject: Subject, key: KeyVariable, side: SideName) -> Place | None:
    """Return the user's line that sets a variable, else the line that gave it its value, else the operator's."""
    run = subject.comparison.run(side)
    if (setting := setting_read_by(key.key)) is not None:  # gradients are on unless a program turns them off
        is_set = Pair(key.value_a, key.value_b).of(side) is False
        return (set_place(run, setting) if is_set else None) or subject.place(side)
    own = config_place(run, key.key.removeprefix("config.")) if key.kind == "config" else set_place(run, key.key)
    found = Pair(key.place_a, key.place_b).of(side)
    if found is not None and not _is_own(run, found):  # a person changes the call, not the library
        found = None
    return own or found or subject.place(side) or Pair(key.place_a, key.place_b).of(side)


def _is_own(run: Run, place: Place) -> bool:
    """Return whether a line is of the user's own code."""
    return any(frame.file == place.file and frame.owner is None for frame in run.frames)


def _only_config_entry(subject: Subject, deviation: Deviation | None, evidence: tuple[str, ...]) -> Lead | None:
    """Return the only entry of the models' configurations that differs, if the paths part inside a library."""
    differing = differing_config(subject.comparison.a, subject.comparison.b)
    if deviation is None or deviation.common_a.owner is None or len(differing) != 1:
        return None
    ((name, values),) = differing.items()
    key = KeyVariable(f"config.{name}", "config", *values, None, None, None, None)
    return key_lead(subject, key, (*evidence, f"the only entry of the models' configurations that differs is {name}"))


def _only_gradients(subject: Subject, evidence: tuple[str, ...]) -> Lead | None:
    """Return gradients as the cause, if only the expensive side runs with them: libraries choose code by that."""
    if subject.op_a is None or subject.op_b is None:
        return None
    comparison = subject.comparison
    grad = Pair(comparison.a.ops[subject.op_a].grad, comparison.b.ops[subject.op_b].grad)
    getter = gradient_getter(comparison.a)
    if getter is None or grad.a == grad.b or not grad.of(subject.expensive):
        return None
    key = KeyVariable(getter, "call", grad.a, grad.b, None, None, None, None)
    return key_lead(subject, key, (*evidence, "one side runs with gradients, the other without"))


def _with_reader(subject: Subject) -> Pair[int | None]:
    """Return operators to compare for one-sided work: on the cheap side, the operator that would read its output."""
    ops = ops_of(subject.region, subject.expensive)
    reader = next(iter(subject.comparison.readers_of(ops, subject.expensive)), None)
    if reader is None:
        return Pair(None, None)
    cheap = costliest(subject.comparison, subject.cheap, ops_of(reader, subject.cheap))
    return pair_from(subject.expensive, subject.op(subject.expensive), cheap)


def _name_call(subject: Subject, side: SideName, *, in_full: bool = False) -> _CallName:
    """Return the call in the user's line that ran the costliest operator, or the library's function below it."""
    run, frame, op = subject.comparison.run(side), subject.frame(side), subject.op(side)
    if op is None:
        return _CallName(None, is_function=False)
    forward = run.ops[op].forward
    if forward is not None and _is_part(subject, side, forward):
        op = forward
    line = "" if frame is None else run.line_text(frame.file, frame.line) or ""
    similar = None if frame is None else _choose_call(calls_in(line), short_name(run.ops[op].name))
    if similar is not None:
        return _CallName(similar, is_function=True)
    called = library_call(run, op)
    if called is None and (behind := find_written_call(run, op, frame)) is not None:
        return _CallName(behind, is_function=True)
    if called is None:
        ops = name_ops(run, ops_of(subject.region, side)) or None
        return _CallName(ops, is_function=len(_computing_names(subject, side)) == 1)
    narrow = subject.functions.of(side)
    is_inside = narrow is not None and (narrow.file, narrow.function) != (called[0].file, called[0].function)
    if narrow is not None and is_inside and _does_more(subject, side, called):
        written = find_written_call(run, op, frame)
        return _CallName(written or as_called(narrow.function), is_function=True)
    name = _function_name(called[1])
    return _CallName(f"{_module_name(called[1].file)}.{name}" if in_full else name, is_function=True)


def _is_part(subject: Subject, side: SideName, forward: int) -> bool:
    """Return whether the forward operator of a backward one differs too: it is of the region, or of this side only."""
    if forward in ops_of(subject.region, side):
        return True
    regions = (region for region in subject.comparison.regions if forward in ops_of(region, side))
    return not any(ops_of(region, other_side(side)) for region in regions)


def _does_more(subject: Subject, side: SideName, called: tuple[Frame, Frame]) -> bool:
    """Return whether most energy of a call in the user's line is spent on other work than the region and those alike.

    Such a call is a whole model, and no name of what differs.
    """
    comparison, run = subject.comparison, subject.comparison.run(side)
    alike = next((group.regions for group in comparison.groups if subject.region.id in group.regions), ())
    own = {op for number in alike for op in ops_of(comparison.by_id[number], side)}
    below = ops_of_call(run, called)
    inside = joules_of(comparison.costs[side].of(op for op in below if op in own))
    return joules_of(comparison.costs[side].of(below)) > _WIDER * inside


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _function_name(frame: Frame) -> str:
    return as_called(frame.function)


def _choose_call(calls: Sequence[str], op: str) -> str | None:
    """Return the call in a line whose name is similar to an operator's name, or None."""
    plain = op.strip("_")
    words = set(plain.split("_"))
    similar = [
        call
        for call in calls
        if plain and (call.strip("_") in plain or plain in call or words.issuperset(call.strip("_").split("_")))
    ]
    if not similar and len(calls) == 1:  # eigvalsh runs _linalg_eigh
        begins = (word[:_PREFIX_CHARS] for word in plain.split("_") if len(word) >= _PREFIX_CHARS)
        similar = [call for call in calls if call.startswith(tuple(begins))]
    return max(similar, key=len, default=None)
