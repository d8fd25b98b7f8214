"""Why a row costs more on one side: the evidence put in order, and the suspects worth a trial.

The strongest evidence is nearest to the operator: what it reads, then the settings it runs under, then the calls that
led to it. What was not found is said as unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.branches import KeyVariable, find_key_variable
from joulediff.diagnosis.callpath import Deviation, find_deviation, shared_frames
from joulediff.diagnosis.detect import joules
from joulediff.diagnosis.layout import find_differences, find_origin
from joulediff.diagnosis.redundancy import call_behind, calls_in
from joulediff.diagnosis.settings import TOLD_BY, config_place, differing_config, differing_settings, set_place
from joulediff.diagnosis.sides import SIDES, Sides, costliest, ops_of, other_side, to_place
from joulediff.diagnosis.trials import Lab, Suspect
from joulediff.diagnosis.wholes import library_call
from joulediff.errors import JoulediffError
from joulediff.findings import Cause, CauseType, FindingKind, Place, Region, SideName
from joulediff.matching import name_ops
from joulediff.recorders.torch.aliases import group_aliases
from joulediff.recorders.walks import Target
from joulediff.runs import Frame, Run, Setting

NOT_TRIED = "not tried: line by line, because a program of this diff cannot be run again"
_CONFIGURED = ("config", "environment", "call")
# As costly as the costliest, about.
_ABOUT = 0.8
# Settings that may be changed while a program runs; the one who tries will say.
_SWITCHES = "torch."
# A layout that a program asked for: leaving the call out is what mends it.
_CLONE, _COPIES = "aten::clone", ("contiguous", "clone")
# How a tensor is described; that two differ in shape is what is to be explained.
_TENSOR = "tensor("


@dataclass(frozen=True, slots=True)
class Lead:
    """A cause that the evidence points to, and how to try it."""

    kind: FindingKind
    cause: Cause
    suspects: tuple[Suspect, ...]
    by_call: bool = False
    """The calls themselves are the cause: two ways to write the same."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: a row of regions, by the costliest operator of one of them on each side."""

    sides: Sides
    region: Region
    expensive: SideName
    op_a: int | None
    op_b: int | None

    @property
    def cheap(self) -> SideName:
        """The side that costs less."""
        return other_side(self.expensive)

    def op(self, side: SideName) -> int | None:
        """Return the costliest operator of a side."""
        return self.op_a if side == "a" else self.op_b

    def frame(self, side: SideName) -> Frame | None:
        """Return the line of the user's own code, or of any, that led to that operator."""
        op = self.op(side)
        return None if op is None else self.sides.run(side).place_of(op)

    def place(self, side: SideName) -> Place | None:
        """Return that line as a place."""
        return to_place(self.sides.run(side), self.frame(side))


def make_subject(sides: Sides, region: Region, expensive: SideName) -> Subject:
    """Return what to ask about a region."""
    return Subject(sides, region, expensive, costliest(sides, "a", region.a), costliest(sides, "b", region.b))


def find_leads(subject: Subject, labs: Mapping[SideName, Lab]) -> list[Lead]:
    """Return the causes that the evidence points to, the strongest first; at least one, which may be unknown."""
    if not ops_of(subject.region, subject.cheap):
        return [*_by_path(subject, labs, only_configured=True), _redundant(subject)]
    leads = _by_size(subject, labs)
    if _is_same_work(subject):
        leads += _by_layout(subject)
        leads += _by_settings(subject)
        leads += _by_carriers(subject)
    else:
        leads += _by_settings(subject)
        leads += _by_path(subject, labs, only_configured=False)
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


def _by_size(subject: Subject, labs: Mapping[SideName, Lab]) -> list[Lead]:
    """Return work that is done and thrown away: the same operator, which makes more than the other side's reads on."""
    sides, side = subject.sides, subject.expensive
    op, like = subject.op(side), subject.op(subject.cheap)
    if op is None or like is None or sides.run(side).ops[op].name != sides.run(subject.cheap).ops[like].name:
        return []
    made, needed = _count_made(sides.run(side), op), _count_made(sides.run(subject.cheap), like)
    if made <= needed or _is_read_whole(subject, op):
        return []
    name = sides.run(side).ops[op].name.removeprefix("aten::")
    evidence = (f"{name} makes {made:,} numbers where the other side makes {needed:,}; the rest is not read",)
    suspects = (Suspect("the calls of the other side", calls=True),)
    key = _find_argument(subject, labs)
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


def _find_argument(subject: Subject, labs: Mapping[SideName, Lab]) -> KeyVariable | str | None:
    """Return the argument that differs in the innermost function that both sides run alike, or why none is known."""
    assert subject.op_a is not None and subject.op_b is not None
    if len(labs) < 2:
        return NOT_TRIED
    paths = subject.sides.a.call_path(subject.op_a), subject.sides.b.call_path(subject.op_b)
    for common in shared_frames(*paths):
        key = _walk_both(common, labs)
        if isinstance(key, KeyVariable) and not any(
            str(each).startswith(_TENSOR) for each in (key.value_a, key.value_b)
        ):
            return key
    return None


def _is_same_work(subject: Subject) -> bool:
    """Return whether both sides call the same operators, whatever these read."""
    names = [_names(subject.sides.run(side), ops_of(subject.region, side)) for side in SIDES]
    return names[0] == names[1]


def _names(run: Run, ops: Sequence[int]) -> Counter[str]:
    kernels = {kernel.op for kernel in run.kernels}
    return Counter(run.ops[op].name for op in ops if op in kernels)


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
        place = to_place(run, run.place_of(origin.op))
        kind: FindingKind = "misconfiguration" if origin.given is not None else "api_misuse"
        name = run.ops[op].name.removeprefix("aten::")
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
    frame = run.place_of(op)
    text = None if frame is None else run.line_text(frame.file, frame.line)
    return (
        next((name for name in calls_in(text or "") if name in _COPIES), None) if run.ops[op].name == _CLONE else None
    )


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
        sides.run(side).settings if (op := subject.op(side)) is None else sides.run(side).settings_at(op)
        for side in SIDES
    ]
    differing = differing_settings(at[0], at[1])
    own = sides.run(subject.expensive).set_places
    leads = []
    for names in group_aliases(name for name in differing if name.startswith(_SWITCHES)):
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


def _by_path(subject: Subject, labs: Mapping[SideName, Lab], *, only_configured: bool) -> list[Lead]:
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
    key = _find_key(deviation, labs)
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


def _find_key(deviation: Deviation | None, labs: Mapping[SideName, Lab]) -> KeyVariable | str | None:
    """Return the key variable of a deviation within a function that both sides run, or why there is none."""
    if deviation is None or _is_users_choice(deviation):
        return None
    return _walk_both((deviation.common_a, deviation.common_b), labs)


def _walk_both(frames: tuple[Frame, Frame], labs: Mapping[SideName, Lab]) -> KeyVariable | str | None:
    """Return the variable that two runs of a function read differently, or why none is known."""
    if len(labs) < 2:
        return NOT_TRIED
    try:
        walks = [
            labs[side].walk(Target(frame.file, frame.function, frame.line))
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
        if key.key in TOLD_BY:  # gradients are on unless a program says otherwise
            places.append((set_place(run, TOLD_BY[key.key]) if value is False else None) or subject.place(side))
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
    if a == b or not (a if subject.expensive == "a" else b):
        return None
    told = (*evidence, "one side runs with gradients, the other without")
    key = KeyVariable("torch.is_grad_enabled", "call", a, b, None, None, None, None)
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
    name = run.ops[op].name.removeprefix("aten::")
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
    return max(alike, key=len, default=None)


def _redundant(subject: Subject) -> Lead:
    run, op = subject.sides.run(subject.expensive), subject.op(subject.expensive)
    assert op is not None
    frame = run.place_of(op)
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


def add_evidence(cause: Cause, *more: str) -> Cause:
    """Return a cause with more that was seen."""
    return replace(cause, evidence=(*cause.evidence, *more))
