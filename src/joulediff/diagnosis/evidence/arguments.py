"""Evidence: both sides make the same call with other arguments.

The recorded arguments of the same operator are compared by name, and a difference is traced to the keyword in the
user's line, or in the line that constructs the object. Where the operators do not tell, the same call in the user's
lines of both sides is compared as text.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from joulediff.diagnosis.comparison import ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import call_behind, calls_at, name_of
from joulediff.diagnosis.evidence.calls.written_arguments import (
    Written,
    differing_texts,
    is_class,
    keywords_at,
    keywords_named,
    reads_as,
    same_calls,
    to_literal,
)
from joulediff.diagnosis.evidence.settings import is_same_setup
from joulediff.diagnosis.lead import CALLS_OF_OTHER_SIDE, Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_argument
from joulediff.frameworks.framework import place_of, schema_of, short_name
from joulediff.model.finding import FindingKind
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import MAX_SETTING_CHARS, Frame, Op, Run, Setting

TENSOR = "a tensor"
# Arguments that do not choose how an operator works.
_PASSIVE = ("generator", "out")
# Arguments that count dimensions, from the first one or back from the last one.
_DIMENSIONS = ("dim", "dims", "dim0", "dim1", "axis", "start_dim", "end_dim")
# Numbers that differ by rounding alone.
_ROUNDING = 1e-6
# More leads than this are all tried with the same change.
_MAX_LEADS = 3
_POSITION = "argument "


@dataclass(frozen=True, slots=True)
class ArgumentDifference:
    """One argument of the same operator that differs."""

    name: str
    values: Pair[Setting]
    is_named: bool
    """The name is the schema's; without a schema it is the position in words."""


def find_arguments(subject: Subject) -> list[Lead]:
    """Return a lead for each argument of the same operator that differs, if the settings are the same.

    A setting that differs as well is tried before: it can be changed alone. An argument that asks for the data type of
    the operator's inputs, such as `softmax(x, dtype=...)`, is one as well: a cast before the operator follows from it.
    """
    ops = same_operator(subject)
    if ops is None or not is_same_setup(subject):
        return []
    return _recorded_leads(subject, ops) or [lead for lead in _written_leads(subject) if _is_cast(subject, ops, lead)]


def find_other_arguments(subject: Subject) -> list[Lead]:
    """Return leads for arguments that differ beside settings, or in the text of the user's lines alone."""
    ops = same_operator(subject)
    recorded = _recorded_leads(subject, ops) if ops is not None else []
    if find_arguments(subject):
        return []
    return recorded or _written_leads(subject)


def _is_cast(subject: Subject, ops: Pair[int], lead: Lead) -> bool:
    """Return whether an argument names the data type that an input of the expensive side's operator has alone."""
    types = Pair(*({subject.comparison.run(x).values[v].dtype for v in _inputs(subject, ops, x)} for x in SIDES))
    mine = types.of(subject.expensive) - types.of(subject.cheap)
    return any(reads_as(str(lead.cause.values.of(subject.expensive)), each) for each in mine)


def _inputs(subject: Subject, ops: Pair[int], side: SideName) -> tuple[int, ...]:
    return subject.comparison.run(side).ops[ops.of(side)].inputs


def same_operator(subject: Subject) -> Pair[int] | None:
    """Return the costliest operator of the expensive side and the same one of the cheap side; None without one.

    With several of its name, the cheap side's at the same place among them is taken.
    """
    op, comparison = subject.op(subject.expensive), subject.comparison
    if op is None:
        return None
    name = comparison.run(subject.expensive).ops[op].name
    mine, others = (
        [each for each in ops_of(subject.region, side) if comparison.run(side).ops[each].name == name]
        for side in (subject.expensive, subject.cheap)
    )
    if not others:
        return None
    return pair_from(subject.expensive, op, others[min(mine.index(op), len(others) - 1)])


def differing_arguments(a: Run, op_a: int, b: Run, op_b: int) -> list[ArgumentDifference]:
    """Return the arguments in which two calls of one operator differ, in the order of its declaration.

    Sizes that follow the shapes of the inputs are no arguments of their own.
    """
    left, right = _counted_arguments(a, op_a), _counted_arguments(b, op_b)
    has_schema = schema_of(a.ops[op_a].name, a.ops[op_a].overload) is not None
    has_same_shapes = _shapes(a, op_a) == _shapes(b, op_b)
    found = []
    for name in dict.fromkeys((*left, *right)):
        x, y = left.get(name), right.get(name)
        if name in _PASSIVE or _is_equal(x, y) or (not has_same_shapes and _is_size(x) and _is_size(y)):
            continue
        is_named = has_schema or not name.startswith(_POSITION)
        found.append(ArgumentDifference(name, Pair(_to_setting(x), _to_setting(y)), is_named))
    return found


def arguments_of(op: Op) -> dict[str, Any]:
    """Return the arguments of an operator by name, with the declared defaults; by position where no name is known."""
    try:
        plain = json.loads(op.arguments)
        args, kwargs = list(plain["args"]), dict(plain["kwargs"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    schema = schema_of(op.name, op.overload) or ()
    names = [each.name for each in schema] + [f"{_POSITION}{at + 1}" for at in range(len(schema), len(args))]
    found: dict[str, Any] = {each.name: each.default for each in schema}
    found |= dict(zip(names, args, strict=False))
    return found | kwargs


def _counted_arguments(run: Run, op: int) -> dict[str, Any]:
    """Return the arguments of an operator, with dimensions counted from the first one: -1 of a matrix is 1."""
    found = run.ops[op]
    rank = len(run.values[found.inputs[0]].shape) if found.inputs else 0
    return {
        name: _counted(value, rank) if name in _DIMENSIONS else value for name, value in arguments_of(found).items()
    }


def _counted(value: Any, rank: int) -> Any:
    if isinstance(value, list):
        return [_counted(each, rank) for each in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value + rank if is_number and -rank <= value < 0 else value


def _shapes(run: Run, op: int) -> list[tuple[int, ...]]:
    return [run.values[value].shape for value in run.ops[op].inputs]


def _is_equal(x: Any, y: Any) -> bool:
    if (
        isinstance(x, float | int)
        and isinstance(y, float | int)
        and not isinstance(x, bool)
        and not isinstance(y, bool)
    ):
        return math.isclose(x, y, rel_tol=_ROUNDING)
    return _to_setting(x) == _to_setting(y)


def _is_size(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_size(each) for each in value)
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _to_setting(value: Any) -> Setting:
    """Return a recorded argument as it is compared and shown; tensors are inputs, and compared as such."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        return TENSOR if kind == "tensor" else str(content)
    if isinstance(value, list):
        parts = [_to_setting(each) for each in value]
        text = TENSOR if TENSOR in parts else f"[{', '.join(map(str, parts))}]"
        return text[:MAX_SETTING_CHARS]
    return value if isinstance(value, bool | int | float | str) else None


def _recorded_leads(subject: Subject, ops: Pair[int]) -> list[Lead]:
    """Return a lead for each recorded argument that differs, those that are written in the source first."""
    comparison, side = subject.comparison, subject.expensive
    found = differing_arguments(comparison.a, ops.a, comparison.b, ops.b)
    if not found:
        return []
    name = short_name(comparison.run(side).ops[ops.of(side)].name)
    texts = [f"{each.name} of {name} is {_say(each.values.a)} in A and {_say(each.values.b)} in B" for each in found]
    written = [Pair(*(_find_written(subject, ops, each, x) for x in SIDES)) for each in found]
    # An argument that only the source names, such as `dtype` for `half_to_float`, decides those of the operator.
    if not any(each.a or each.b for each in written) and (leads := _written_leads(subject)):
        return [lead.with_evidence(*texts) for lead in leads]
    leads = [
        _recorded_lead(subject, ops, each, place, text) for each, place, text in zip(found, written, texts, strict=True)
    ]
    is_written = {id(lead): bool(place.a or place.b) for lead, place in zip(leads, written, strict=True)}
    if subject.relation == "other_operators":  # another formula has other arguments that nobody chose
        leads = [lead for lead in leads if is_written[id(lead)]]
    return sorted(leads, key=lambda lead: not is_written[id(lead)])[:_MAX_LEADS]


def _recorded_lead(
    subject: Subject, ops: Pair[int], found: ArgumentDifference, written: Pair[Written | None], evidence: str
) -> Lead:
    side = subject.expensive
    mine = written.of(side) or written.of(subject.cheap)
    key = found.name if mine is None else mine.keyword
    kind: FindingKind = "misconfiguration" if mine is not None and mine.is_constructor else "api_misuse"
    locations = Pair(*(_place_of(subject, written, ops.of(x), x) for x in SIDES))
    cause = make_cause("argument", key, found.values, locations, (evidence,))
    change = CALLS_OF_OTHER_SIDE
    if _differ_in_arguments_alone(subject, ops):
        change = Change(f"{key} = {_say(found.values.of(subject.cheap))}", calls=True, is_cause=True)
    return Lead(kind, cause, (change,), suggest_argument(cause, side))


def _differ_in_arguments_alone(subject: Subject, ops: Pair[int]) -> bool:
    """Return whether one differing argument is all that the other side's calls would change."""
    comparison = subject.comparison
    working = Pair(*([op for op in ops_of(subject.region, x) if _runs(comparison.run(x), op)] for x in SIDES))
    forms = Pair(*([comparison.run(x).values[v].form for v in comparison.run(x).ops[ops.of(x)].inputs] for x in SIDES))
    is_one = len(differing_arguments(comparison.a, ops.a, comparison.b, ops.b)) == 1
    return is_one and working == Pair([ops.a], [ops.b]) and forms.a == forms.b and is_same_setup(subject)


def _runs(run: Run, op: int) -> bool:
    return bool(run.index.kernels[op])


def _place_of(subject: Subject, written: Pair[Written | None], op: int, side: SideName) -> Place | None:
    """Return the line of an argument; if only the other side writes it, this side's line of the same call."""
    mine, other = written.of(side), written.of(other_side(side))
    if mine is not None:
        return mine.place
    run = subject.comparison.run(side)
    for frame in _own_frames(run, op) if other is not None else ():
        if other is not None and other.function in map(name_of, calls_at(run, frame.file, frame.line)):
            return to_place(run, frame)
    return subject.place(side)


def _find_written(subject: Subject, ops: Pair[int], found: ArgumentDifference, side: SideName) -> Written | None:
    """Return the argument in a line on the way to the operator, or in a line of the user's that constructs an object.

    A line that only passes on a variable is left for the caller's line that sets it.
    """
    run, value = subject.comparison.run(side), found.values.of(side)
    passed_on = None
    for frame in _own_frames(run, ops.of(side)):
        own = list(keywords_at(run, frame.file, frame.line, frame.function))
        named = [each for each in own if each.keyword == found.name]
        by_value = [each for each in own if value not in (None, TENSOR) and reads_as(each.text, value)]
        if named and not named[0].is_passed_on:
            return named[0]
        if not named and len(by_value) == 1:
            return by_value[0]
        passed_on = passed_on or (named[0] if named else None)
    constructed = _find_constructed(subject, found, side) if found.is_named else None
    return constructed or passed_on


def _own_frames(run: Run, op: int) -> list[Frame]:
    """Return the lines of the user's own code on the way to an operator, the innermost first."""
    inner = place_of(run, op)
    forward = run.ops[op].forward
    path = run.call_path(op if forward is None else forward)
    own = [frame for frame in path if frame.owner is None]
    return list(reversed(own)) if inner in own else [inner] if inner is not None and inner.owner is None else []


def _find_constructed(subject: Subject, found: ArgumentDifference, side: SideName) -> Written | None:
    """Return the only keyword of that name elsewhere in the user's code that gives an object its value on this side."""
    run, other = subject.comparison.run(side), subject.comparison.run(other_side(side))
    mine = [each for each in keywords_named(run, found.name) if not each.is_passed_on]
    others = {each.text for each in keywords_named(other, found.name)}
    by_value = [each for each in mine if each.is_constructor and reads_as(each.text, found.values.of(side))]
    fitting = by_value or [each for each in mine if each.text not in others]
    is_only = len({(each.place.file, each.place.line) for each in fitting}) == 1
    return replace(fitting[0], is_constructor=True) if is_only else None


def _written_leads(subject: Subject) -> list[Lead]:
    """Return a lead for each argument that differs in the text of one call in the user's lines of both sides.

    The innermost lines that differ count: lines outside of them only lead there.
    """
    for lines in _lines_of(subject):
        calls = Pair(*(calls_at(subject.comparison.run(x), lines.of(x).file, lines.of(x).line) for x in SIDES))
        if [*map(ast.unparse, calls.a)] != [*map(ast.unparse, calls.b)]:
            return _differing_leads(subject, lines, calls)
    return []


def _differing_leads(subject: Subject, lines: Pair[Frame], calls: Pair[tuple[ast.Call, ...]]) -> list[Lead]:
    leads, known = [], _equal_arguments(subject)
    for mine, other in same_calls(calls.of(subject.expensive), calls.of(subject.cheap)):
        if _is_run_by_another(subject, lines, calls.of(subject.expensive), mine):
            continue
        for key, values in differing_texts(mine, other).items():
            if key not in known:
                leads.append(_written_lead(subject, lines, name_of(mine), key, values))
    return leads[:_MAX_LEADS]


def _equal_arguments(subject: Subject) -> set[str]:
    """Return the arguments that the recorded operators of both sides have alike, however they are written."""
    ops = same_operator(subject)
    if ops is None:
        return set()
    a, b = subject.comparison.a, subject.comparison.b
    differing = {each.name for each in differing_arguments(a, ops.a, b, ops.b)}
    return (arguments_of(a.ops[ops.a]).keys() & arguments_of(b.ops[ops.b]).keys()) - differing


def _written_lead(
    subject: Subject, lines: Pair[Frame], function: str, key: str, texts: tuple[str | None, str | None]
) -> Lead:
    values: Pair[Setting] = pair_from(
        subject.expensive, *(None if each is None else to_literal(each) for each in texts)
    )
    shown = pair_from(subject.expensive, *("not given" if each is None else each for each in texts))
    locations = Pair(*(to_place(subject.comparison.run(side), lines.of(side)) for side in SIDES))
    evidence = f"{key} of {function} is {shown.a} in A and {shown.b} in B"
    cause = make_cause("argument", key, values, locations, (evidence,))
    kind: FindingKind = "misconfiguration" if is_class(function) else "api_misuse"
    return Lead(kind, cause, (CALLS_OF_OTHER_SIDE,), suggest_argument(cause, subject.expensive))


def _lines_of(subject: Subject) -> list[Pair[Frame]]:
    """Return the user's lines of both sides, the innermost first.

    For work that one side lacks, it is the cheap side's line of the same call.
    """
    op, like = subject.op(subject.expensive), subject.op(subject.cheap)
    mine = [] if op is None else _own_frames(subject.comparison.run(subject.expensive), op)
    if like is not None:
        others = _own_frames(subject.comparison.run(subject.cheap), like)
        return [pair_from(subject.expensive, x, y) for x, y in zip(mine, others, strict=False)]
    same = _line_of_same_call(subject, mine[0]) if mine and subject.region.basis != "call" else None
    return [] if same is None else [pair_from(subject.expensive, mine[0], same)]


def _line_of_same_call(subject: Subject, frame: Frame) -> Frame | None:
    """Return the only line of the cheap side's own code with one of the calls of a line, on the same values."""
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    wanted = {_without_keywords(call) for call in calls_at(run, frame.file, frame.line)}
    lines = {(each.file, each.line): each for each in other.frames if each.owner is None}
    found = [
        each
        for (file, line), each in lines.items()
        if wanted.intersection(_without_keywords(call) for call in calls_at(other, file, line))
    ]
    return found[0] if len(found) == 1 else None


def _without_keywords(call: ast.Call) -> str:
    return ast.unparse(ast.Call(call.func, call.args, []))


def _is_run_by_another(subject: Subject, lines: Pair[Frame], calls: Iterable[ast.Call], call: ast.Call) -> bool:
    """Return whether another call of the line has the operator's name, and runs inside or beside this one."""
    run, op = subject.comparison.run(subject.expensive), subject.op(subject.expensive)
    assert op is not None
    behind = call_behind(run, op, lines.of(subject.expensive))
    return name_of(call) != behind and behind in [name_of(each) for each in calls]


def _say(value: Setting) -> str:
    return repr(value) if isinstance(value, str) and value != TENSOR else str(value)
