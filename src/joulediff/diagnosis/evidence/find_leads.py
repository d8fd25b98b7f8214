"""Why a row costs more on one side: the evidence put in order, and the suspects worth a trial.

The strongest evidence is nearest to the operator: what it reads, then the settings it runs under, then the calls that
led to it. What was not found is said as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import ops_of, to_place
from joulediff.diagnosis.evidence.call_path import find_by_path, find_by_size
from joulediff.diagnosis.evidence.layout import find_differences, find_origin
from joulediff.diagnosis.evidence.redundancy import call_behind, calls_in
from joulediff.diagnosis.evidence.settings import differing_settings, set_place
from joulediff.diagnosis.lead import Lead, Subject
from joulediff.diagnosis.significance import joules
from joulediff.diagnosis.trials.trial import Suspect
from joulediff.frameworks.framework import group_switches, is_copy, is_copy_call, place_of, settings_at, short_name
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.finding import Cause, CauseType, FindingKind
from joulediff.model.pair import SIDES, SideName
from joulediff.model.run import Run, Setting

# As costly as the costliest, about.
_ABOUT = 0.8


def find_leads(subject: Subject, live: Mapping[SideName, LiveProgram]) -> list[Lead]:
    """Return the causes that the evidence points to, the strongest first; at least one, which may be unknown."""
    if not ops_of(subject.region, subject.cheap):
        return [*find_by_path(subject, live, only_configured=True), _redundant(subject)]
    leads = find_by_size(subject, live)
    if _is_same_work(subject):
        leads += _by_layout(subject)
        leads += _by_settings(subject)
        leads += _by_carriers(subject)
    else:
        leads += _by_settings(subject)
        leads += find_by_path(subject, live, only_configured=False)
    return leads or [_unknown(subject)]


def _by_carriers(subject: Subject) -> list[Lead]:
    """Return work that brings the expensive side's inputs, where the other side reads them as they are."""
    sides, side = subject.sides, subject.expensive
    costs = sides.costs[side]
    before = [op for op in sides.slice_of(subject.region, side) if op not in ops_of(subject.region, side)]
    theirs = sides.slice_of(subject.region, subject.cheap)
    names = Counter(sides.run(subject.cheap).ops[op].name for op in theirs)
    extra = [op for op in before if costs.kernels[op] and sides.run(side).ops[op].name not in names]
    most = max((joules(costs.of([op])) for op in extra), default=0.0)
    op = next((op for op in extra if joules(costs.of([op])) >= _ABOUT * most), None)
    if op is None:
        return []
    region = next(r for r in sides.regions if op in ops_of(r, side))
    ops = (op, subject.op_b) if side == "a" else (subject.op_a, op)
    return [_redundant(replace(subject, region=region, op_a=ops[0], op_b=ops[1]))]


def _is_same_work(subject: Subject) -> bool:
    """Return whether both sides call the same operators, whatever these read."""
    names = [_names(subject.sides.run(side), ops_of(subject.region, side)) for side in SIDES]
    return names[0] == names[1]


def _names(run: Run, ops: Sequence[int]) -> Counter[str]:
    return Counter(run.ops[op].name for op in ops if run.index.kernels[op])


def _by_layout(subject: Subject) -> list[Lead]:
    pair = _same_call(subject)
    if pair is None:
        return []
    op, like = pair
    sides, leads = subject.sides, []
    op_a, op_b = (op, like) if subject.expensive == "a" else (like, op)
    for found in find_differences(sides.a, op_a, sides.b, op_b):
        run = sides.run(subject.expensive)
        origin = find_origin(run, op, found)
        place = to_place(run, place_of(run, origin.op))
        kind: FindingKind = "misconfiguration" if origin.given is not None else "api_misuse"
        name = short_name(run.ops[op].name)
        began = (
            f"given to the step as {origin.given}" if origin.given is not None else f"made by {run.ops[origin.op].name}"
        )
        text_exp, text_cheap = (
            (found.text_a, found.text_b) if subject.expensive == "a" else (found.text_b, found.text_a)
        )
        evidence = (f"{name} reads {text_exp} where the other side has {text_cheap}; {began}",)
        other = subject.place(subject.cheap)
        locations = (place, other) if subject.expensive == "a" else (other, place)
        key = found.aspect if origin.given is not None else _copy_behind(run, origin.op) or found.aspect
        cause = Cause("layout", key, found.text_a, found.text_b, *locations, evidence)
        forms = Suspect(f"inputs with the {_words(found.aspect)} of the other side", layout=(found.aspect,))
        calls = Suspect("the calls of the other side", calls=True)
        leads.append(Lead(kind, cause, (forms, calls)))
    merged = list({lead.cause.key: lead for lead in reversed(leads)}.values())
    return list(reversed(merged))


def _copy_behind(run: Run, op: int) -> str | None:
    """Return the call that copied a tensor to another layout, if one was written."""
    if not is_copy(run.ops[op].name):
        return None
    frame = place_of(run, op)
    text = None if frame is None else run.line_text(frame.file, frame.line)
    return next((name for name in calls_in(text or "") if is_copy_call(name)), None)


def _same_call(subject: Subject) -> tuple[int, int] | None:
    """Return the expensive side's costliest operator and the same call of the cheap side: the n-th of that name."""
    op, sides = subject.op(subject.expensive), subject.sides
    if op is None:
        return None
    name = sides.run(subject.expensive).ops[op].name
    mine, others = (
        [each for each in ops_of(subject.region, side) if sides.run(side).ops[each].name == name]
        for side in (subject.expensive, subject.cheap)
    )
    return (op, others[mine.index(op)]) if len(mine) == len(others) else None


def _words(aspect: str) -> str:
    return aspect.replace("_", " ")


def _by_settings(subject: Subject) -> list[Lead]:
    sides = subject.sides
    at = [
        sides.run(side).settings if (op := subject.op(side)) is None else settings_at(sides.run(side), op)
        for side in SIDES
    ]
    differing = differing_settings(at[0], at[1])
    own = sides.run(subject.expensive).set_places
    leads = []
    for names in group_switches(differing):
        # Of one switch with several names, that which the program uses.
        key = next((name for name in names if name in own), names[0])
        values = {name: differing[name][1 if subject.expensive == "a" else 0] for name in names}
        places = [set_place(sides.run(side), key) or subject.place(side) for side in SIDES]
        value_a, value_b = differing[key]
        evidence = (f"{key} is {value_a} in A and {value_b} in B",)
        suspect = Suspect(f"{key} = {values[key]}", settings={key: values[key]})
        cause = Cause("setting", key, value_a, value_b, places[0], places[1], evidence)
        leads.append(Lead("misconfiguration", cause, (suspect,)))
    return [*leads, *_by_environment(subject, differing)]


def _by_environment(subject: Subject, differing: Mapping[str, tuple[Setting, Setting]]) -> list[Lead]:
    """Return variables of the environment that differ: suspects that only a new process could change."""
    leads = []
    for name, (value_a, value_b) in differing.items():
        if not name.startswith("env."):
            continue
        places = [set_place(subject.sides.run(side), name) or subject.place(side) for side in SIDES]
        evidence = (
            f"{name.removeprefix('env.')} is {value_a} in A and {value_b} in B",
            "not tried: the environment cannot be changed at run time",
        )
        cause = Cause("setting", name, value_a, value_b, places[0], places[1], evidence)
        leads.append(Lead("misconfiguration", cause, ()))
    return leads


def _redundant(subject: Subject) -> Lead:
    run, op = subject.sides.run(subject.expensive), subject.op(subject.expensive)
    assert op is not None
    frame = place_of(run, op)
    key = call_behind(run, op, frame)
    place = to_place(run, frame)
    what = {
        "movement": "moves data that the other side reads where it lies",
        "repeated": "computes again what is there already",
        "constant": "makes a constant that the other side does without",
        "unused": "computes what nothing reads",
    }.get(subject.region.kind, "has no counterpart")
    evidence = (f"{run.ops[op].name} {what}",)
    here, there = (place, None) if subject.expensive == "a" else (None, place)
    values: tuple[Setting, Setting] = (key, None) if subject.expensive == "a" else (None, key)
    type_: CauseType = "redundancy"
    calls = Suspect(f"{key} left out", calls=True)
    return Lead("redundant", Cause(type_, key, *values, here, there, evidence), (calls,))


def _unknown(subject: Subject) -> Lead:
    names = []
    for side in SIDES:
        op, costs = subject.op(side), subject.sides.costs[side]
        names.append(None if op is None else next(iter(costs.names([op])), None))
    evidence = (
        "the same call with the same inputs and settings ran other kernels, or the same ones at another cost",
        *_differing_versions(subject),
    )
    cause = Cause("kernel", None, names[0], names[1], subject.place("a"), subject.place("b"), evidence)
    return Lead("unknown", cause, (Suspect("the calls of the other side", calls=True),))


def _differing_versions(subject: Subject) -> list[str]:
    """Return what was installed in other versions: nothing that a program sets, but a reason for other kernels."""
    a, b = subject.sides.a.settings, subject.sides.b.settings
    names = sorted(name for name in {*a, *b} if name.startswith("package.") and name in a and name in b)
    return [
        f"{name.removeprefix('package.')} is {a[name]} in A and {b[name]} in B" for name in names if a[name] != b[name]
    ]
