"""Names a proven cause: its kind, its key with both values, and the user's line.

An edit names its line and what differs there. Where the edit replaces code, evidence on the rows may know a better
name for the same lines: an argument, a layout, a call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.recorded_settings import set_place
from joulediff.diagnosis.evidence.state import Leaf, describe_leaf, differing_leaves, is_set_at
from joulediff.diagnosis.lead import Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_change, suggest_other_code, suggest_setting
from joulediff.diagnosis.suspects.effect import Effect
from joulediff.diagnosis.suspects.find_suspects import is_in_frames, text_of
from joulediff.diagnosis.suspects.source_names import (
    assigned_name,
    called_name,
    calls_in,
    class_name,
    function_at,
    is_function,
    operator_name,
    sets_code,
    to_value,
)
from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.diagnosis.suspects.try_suspects import Tried
from joulediff.frameworks.framework import group_switches, known_name, outer_path, short_name
from joulediff.matching.rows import is_view
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import TOGETHER, CauseType, FindingKind
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting
from joulediff.pysource.edits.edit import Edit
from joulediff.pysource.line_trace import Target
from joulediff.pysource.source_files import SourceFile

_CHANGED_ALONE = "the lines were changed alone, as in the other program"
# Functions that run when a program is built.
_BUILDERS = ("__init__", "__new__", "__post_init__")
# Edits that only set something: another call is named by the calls.
_SETTING_KINDS = ("value", "left_out", "added")
# Evidence that names more than the call that differs.
_PRECISE: tuple[CauseType, ...] = ("argument", "layout", "repetition", "shape")
_CHIEF = ("left_out", "moved", "call", "code", "value", "argument", "added", "support")
_TYPES: dict[str, CauseType] = {
    "argument": "argument",
    "value": "code",
    "call": "call_path",
    "left_out": "redundancy",
    "moved": "repetition",
    "added": "code",
    "code": "code",
}


def name_cause(
    work: Investigation,
    side: SideName,
    differences: Differences,
    tried: Tried,
    effect: Effect,
    subject: Subject | None,
) -> Lead:
    """Return the lead of a cause; `subject` is the row with the most energy."""
    leads = [] if subject is None else find_leads(subject)
    suspects = [differences.suspects[at] for at in tried.chosen]
    if tried.cost.settings and len(suspects) == 1:
        found = _setting_lead(work.comparison, side, tried.cost.settings, suspects[0], differences)
        if found is not None:
            return found
    if suspects[0].edit is None:
        return _value_lead(work.comparison, side, suspects)
    edits = differences.edits_of(tried.chosen)
    inside = {at: _lines_in_step(work, side, differences, edit) for at, edit in enumerate(edits)}
    chief = min(range(len(edits)), key=lambda at: (not inside[at], _rank(edits[at])))
    main, lines = edits[chief], inside[chief]
    found = None
    if len(edits) == 1:
        found = _named_by_state(work.comparison, side, differences, main)
        found = found or _named_by_evidence(work.comparison.run(side), main, side, leads, effect)
    found = found or _layout_lead(differences, edits, side, leads)
    functions = {frame.function.rpartition(".")[2] for frame in work.comparison.run(other_side(side)).frames}
    if found is None and not lines and subject is not None and _sets_code(main, functions):
        found = _replaced_code(subject, differences, main, leads)
    if found is not None:
        return found
    place = None if subject is None else subject.place(side)
    lead = _edit_lead(work.comparison.run(side), side, differences, main, lines, effect, place, functions)
    run = work.comparison.run(side)
    is_asked = _asks_for_less(main, effect) and not calls_framework(run, main)
    if is_asked and any(each.kind == "redundant" for each in leads):
        lead = replace(lead, kind="redundant")
    others = [text_of(edit) for at, edit in enumerate(edits) if at != chief]
    return lead.with_evidence(f"changed with it: {'; '.join(others)}") if others else lead


def _rank(edit: Edit) -> tuple[bool, int]:
    """Return the order in which edits that were changed together name their cause: lost calls come first."""
    return (called_name(edit.value_a) is None, _CHIEF.index(edit.kind))


def _setting_lead(
    comparison: Comparison, side: SideName, names: Sequence[str], suspect: Suspect, differences: Differences
) -> Lead | None:
    """Return the lead of a setting that an edit sets; None if it sets none that the recordings show to differ."""
    run, other = comparison.run(side), comparison.run(other_side(side))
    differing = [name for name in names if run.settings.get(name) != other.settings.get(name)]
    groups = group_switches(differing)
    if not groups:
        return None
    known = {**other.set_places, **run.set_places}
    keys = [next((name for name in group if name in known), group[0]) for group in groups]
    key = TOGETHER.join(map(known_name, keys))
    mine, others = (_joined([each.settings.get(name) for name in keys]) for each in (run, other))
    places = Pair(set_place(comparison.a, keys[0]), set_place(comparison.b, keys[0]))
    if suspect.edit is not None:
        here, there = edit_places(differences, differences.edits[suspect.edit])
        places = pair_from(side, here, places.of(other_side(side)) or there)
    cause = make_cause("setting", key, pair_from(side, mine, others), places, (f"changed alone: {suspect.text}",))
    return Lead("misconfiguration", cause, (), suggest_setting(cause, side))


def _value_lead(comparison: Comparison, side: SideName, suspects: Sequence[Suspect]) -> Lead:
    """Return the lead of a value of the state, or of a setting, that was set in the program."""
    first = suspects[0]
    if first.settings:
        run, other = comparison.run(side), comparison.run(other_side(side))
        key = first.name
        values = pair_from(side, run.settings.get(key), other.settings.get(key))
        places = Pair(set_place(comparison.a, key), set_place(comparison.b, key))
        cause = make_cause(
            "setting", known_name(key), values, places, (f"{key} is {values.a} in A and {values.b} in B",)
        )
        return Lead("misconfiguration", cause, (), suggest_setting(cause, side))
    leaves = {leaf.name: leaf for leaf in differing_leaves(comparison)}
    chosen = [leaves[each.name] for each in suspects]
    key = TOGETHER.join(leaf.name for leaf in chosen)
    values = Pair(_joined([x.value_a for x in chosen]), _joined([x.value_b for x in chosen]))
    places = Pair(chosen[0].place_a, chosen[0].place_b)
    cause = make_cause("state", key, values, places, tuple(describe_leaf(leaf) for leaf in chosen))
    return Lead("misconfiguration", cause, (), suggest_setting(cause, side))


def _joined(values: Sequence[Setting]) -> Setting:
    if len(values) == 1:
        return values[0]
    return TOGETHER.join("not set" if value is None else str(value) for value in values)


def _named_by_state(comparison: Comparison, side: SideName, differences: Differences, edit: Edit) -> Lead | None:
    """Return the lead of the value of the state that the line of an edit sets; None if none differs there."""
    if edit.kind == "argument":
        return _named_by_passed_text(comparison, side, differences, edit)
    if edit.kind not in _SETTING_KINDS or edit.context:
        return None
    leaf = _leaf_set_by(comparison, side, edit)
    if leaf is None:
        return None
    mine, its = edit_places(differences, edit)
    places = pair_from(side, mine, leaf.places.of(other_side(side)) or its)
    text = "the line was changed alone, as in the other program"
    cause = make_cause("state", leaf.name, leaf.values, places, (describe_leaf(leaf), text))
    return Lead("misconfiguration", cause, (), suggest_setting(cause, side))


def _leaf_set_by(comparison: Comparison, side: SideName, edit: Edit) -> Leaf | None:
    """Return the differing value of the state that the line of an edit sets.

    Of several, it is the one with the name or the values of the edit.
    """
    here, there = range(edit.line, edit.end_line + 1), range(edit.line_b or 0, (edit.line_b or -1) + 1)
    found = [
        leaf
        for leaf in differing_leaves(comparison)
        if is_set_at(leaf, side, edit.path, here) or is_set_at(leaf, other_side(side), edit.path_b, there)
    ]
    values = pair_from(side, to_value(edit.value_a), to_value(edit.value_b))
    fitting = [leaf for leaf in found if leaf.name == edit.key] or [leaf for leaf in found if leaf.values == values]
    if fitting:
        return fitting[0]
    is_unknown = edit.kind == "value" and len(found) > 1
    return None if is_unknown else next(iter(found), None)


def _named_by_passed_text(comparison: Comparison, side: SideName, differences: Differences, edit: Edit) -> Lead | None:
    """Return the lead of the only value of the state with the texts that an argument passes on.

    A configuration has the name that its library documents; that of the argument is the program's own. Numbers and
    flags are too common to tell that a value was passed on.
    """
    passed = (to_value(edit.value_a), to_value(edit.value_b))
    if not all(isinstance(each, str) and _is_text(text) for each, text in zip(passed, _texts(edit), strict=True)):
        return None
    values = pair_from(side, *passed)
    found = {leaf.name: leaf for leaf in differing_leaves(comparison) if Pair(*leaf.values) == values}
    if len(found) != 1:
        return None
    (leaf,) = found.values()
    evidence = (describe_leaf(leaf), f"{edit.key} was changed alone, as in the other program")
    places = pair_from(side, *edit_places(differences, edit))
    cause = make_cause("state", leaf.name, leaf.values, places, evidence)
    return Lead("misconfiguration", cause, (), suggest_setting(cause, side))


def _texts(edit: Edit) -> tuple[str, str]:
    return (edit.value_a or "", edit.value_b or "")


def _is_text(text: str) -> bool:
    return text.strip()[:1] in ("'", '"')


def _asks_for_less(edit: Edit, effect: Effect) -> bool:
    """Return whether a change only passes one more argument, and the same operators do less.

    For an argument of the framework's own function this is a misuse of its API, and no redundant work.
    """
    return edit.kind == "argument" and edit.value_a is None and effect.only_removes


def calls_framework(run: Run, edit: Edit) -> bool:
    """Return whether the line of an edit calls an operator or function of a framework itself, and no other library."""
    paths = (outer_path(run, op.id) for op in run.ops)
    return any(path and path[-1].file == edit.path and edit.line <= path[-1].line <= edit.end_line for path in paths)


def _named_by_evidence(run: Run, edit: Edit, side: SideName, leads: Sequence[Lead], effect: Effect) -> Lead | None:
    """Return a lead on the lines of an edit that replaces more than a plain value; the edit was its trial."""
    passes_code = is_function(edit.value_a)
    if edit.kind in ("argument", "left_out", "moved") and not edit.context and not passes_code:
        return None
    for lead in leads:
        cause = lead.cause
        place = cause.locations.of(side)
        is_here = place is not None and place.file == edit.path and edit.line <= place.line <= edit.end_line
        is_context = bool(edit.context) and cause.type == "setting"
        is_better = cause.type in _PRECISE or ((edit.kind == "code" or passes_code) and cause.type != "kernel")
        is_laid_out = cause.type == "layout" and _leaves_out_view(run, edit)
        is_named = cause.key is not None and (passes_code or is_laid_out or _is_written(cause.key, edit))
        if cause.key is not None and (is_context or (is_here and is_better and is_named)):
            is_replaced = passes_code and lead.kind == "redundant" and bool(effect.added)
            lead = replace(lead, kind="api_misuse") if is_replaced else lead
            return lead.with_evidence(_CHANGED_ALONE)
    return None


def _leaves_out_view(run: Run, edit: Edit) -> bool:
    """Return whether the expensive side's text of an edit makes a view, such as a permuted one, and the other's not."""
    views = {short_name(op.name) for op in run.ops if is_view(run, op.id)}
    mine, other = (set(re.findall(r"\w+", text)) for text in _texts(edit))
    return bool(views & (mine - other))


def _is_written(key: str, edit: Edit) -> bool:
    """Return whether the lines of an edit hold the last word of a key: what is named was changed."""
    word = _last_word(key)
    return bool(word) and re.search(rf"\b{re.escape(word)}\b", f"{edit.value_a} {edit.value_b}") is not None


def _layout_lead(differences: Differences, edits: Sequence[Edit], side: SideName, leads: Sequence[Lead]) -> Lead | None:
    """Return the lead of a layout or data type that all edits write down, at the line of the first one."""
    for lead in leads:
        key = lead.cause.key
        is_written = key is not None and all(key in f"{edit.value_a} {edit.value_b}" for edit in edits)
        if lead.cause.type == "layout" and is_written:
            places = pair_from(side, *edit_places(differences, edits[0]))
            cause = replace(lead.cause, location_a=places.a, location_b=places.b)
            return replace(lead, cause=cause)
    return None


def _replaced_code(subject: Subject, differences: Differences, edit: Edit, leads: Sequence[Lead]) -> Lead | None:
    """Return the lead of code that an edit puts other code in place of, at the line of the edit.

    A data type that the evidence names says most; else the edit writes the function, or its class, that the expensive
    side runs.
    """
    side = subject.expensive
    places = pair_from(side, *edit_places(differences, edit))
    cast = next((lead for lead in leads if lead.cause.type == "layout" and lead.cause.key == "dtype"), None)
    if cast is not None:
        cause = replace(cast.cause, location_a=places.a, location_b=places.b)
        return replace(cast, cause=cause).with_evidence(_CHANGED_ALONE)
    mine = subject.functions.of(side)
    names = [] if mine is None else [mine.function, mine.function.rpartition(".")[0]]
    name = next((each for each in names if "." in names[0] and _is_new(each, edit)), None)
    if mine is None or name is None:
        return None
    evidence = f"{mine.function} ({mine.file}:{mine.line}) does the work on this side"
    values: Pair[Setting] = pair_from(side, mine.function, to_value(edit.value_b))
    cause = make_cause("call_path", name, values, places, (evidence, _CHANGED_ALONE))
    return Lead("api_misuse", cause, (), suggest_other_code(cause, side, inside=mine))


def _is_new(name: str, edit: Edit) -> bool:
    """Return whether only the cheap side of an edit has a name."""
    mine, other = (re.search(rf"\b{re.escape(name)}\b", text) is not None for text in _texts(edit))
    return other and not mine


def _edit_lead(
    run: Run,
    side: SideName,
    differences: Differences,
    first: Edit,
    inside: Sequence[int],
    effect: Effect,
    place: Place | None,
    functions: Collection[str],
) -> Lead:
    lines = _lines_of(differences.files, first)
    text = "\n".join(lines.values())
    key, *texts = _name(first, effect, text, runs_operator=calls_framework(run, first))
    values = pair_from(side, *texts)
    kind = _kind_of(first, effect, functions, is_in_step=bool(inside))
    type_: CauseType = "host" if kind == "host" else _TYPES[first.kind]
    mine, other = edit_places(differences, first)
    if first.kind == "moved" and inside:
        mine = _place(differences.files, first.path, inside[0], first.function)
    if place is not None and place.file == first.path and first.line < place.line <= first.end_line:
        mine = place  # of several lines, the one with the most energy
    named = _lines_with(lines, str(key)) if first.kind == "code" else []
    if named and (mine is None or mine.line not in named):
        mine = _place(differences.files, first.path, named[0], first.function)
    places = pair_from(side, mine, other)
    cause = make_cause(type_, key or None, values, places, (_evidence(effect),))
    return Lead(kind, cause, (), suggest_change(cause, side, first))


def _lines_of(files: Sequence[SourceFile], edit: Edit) -> dict[int, str]:
    """Return the lines of the expensive program that an edit replaces, by their numbers."""
    text = next((file.text for file in files if file.path == edit.path), "")
    lines = text.splitlines()[edit.line - 1 : edit.end_line]
    return dict(enumerate(lines, edit.line))


def _lines_with(lines: Mapping[int, str], key: str) -> list[int]:
    """Return the numbers of the lines with the last word of a key."""
    word = re.compile(rf"\b{re.escape(_last_word(key))}\b")
    return [line for line, text in lines.items() if word.search(text)]


def _last_word(key: str) -> str:
    return re.split(r"\W+", key.removesuffix("()"))[-1]


def _name(edit: Edit, effect: Effect, text: str, *, runs_operator: bool) -> tuple[str, Setting, Setting]:
    """Return the key of an edit, and both values: another call is named by the functions that are called.

    `text` has the replaced lines: of several statements, the call of an operator that is gone names them. A sum of
    tensors is the operator; a sum of numbers has the name of the variable that it sets, or of the function.
    """
    if edit.kind == "argument":
        name = class_name(edit.value_a) if class_name(edit.value_b) is not None else None
        return name or edit.key, to_value(edit.value_a), to_value(edit.value_b)
    lost = _lost_call(effect, text) if edit.kind == "code" and edit.end_line > edit.line else None
    if lost is not None:
        return lost, to_value(edit.value_a), to_value(edit.value_b)
    called, other = called_name(edit.value_a), called_name(edit.value_b)
    if runs_operator:
        called, other = called or operator_name(edit.value_a), other or operator_name(edit.value_b)
    if edit.kind in ("left_out", "moved") and called is not None:
        return called, to_value(edit.value_a), to_value(edit.value_b)
    if edit.kind in ("value", "code") and called is not None:
        is_other = other is not None and called != other
        return (called, called, other) if is_other else (called, to_value(edit.value_a), to_value(edit.value_b))
    if edit.kind == "added" and other is not None:
        return other, None, to_value(edit.value_b)
    key = edit.key
    if not runs_operator and not any(char.isalnum() for char in key):
        key = assigned_name(text) or edit.function.rpartition(".")[2] or key
    return key, to_value(edit.value_a), to_value(edit.value_b)


def _lost_call(effect: Effect, text: str) -> str | None:
    """Return the first call in statements whose operator is gone with the change."""
    removed, added = ({short_name(str(key[0])) for key in keys} for keys in (effect.removed, effect.added))
    return next((name for name in calls_in(text) if name.rpartition(".")[2] in removed - added), None)


def _evidence(effect: Effect) -> str:
    if effect.is_nothing:
        return "with the change the step runs the same operators"
    return f"with the change {len(effect.removed)} different operators are gone, and {len(effect.added)} are new"


def _kind_of(edit: Edit, effect: Effect, functions: Collection[str], *, is_in_step: bool) -> FindingKind:
    """Return the kind of an edit; `functions` are the names of those that the cheap side runs."""
    if edit.context:
        return "misconfiguration"
    if not is_in_step:
        # Another function or class, whose code the step runs.
        is_other_class = edit.kind == "argument" and None not in (class_name(edit.value_a), class_name(edit.value_b))
        is_other_call = edit.kind == "call" and not _is_chained(edit)
        is_other_code = is_other_call or is_other_class or _sets_code(edit, functions)
        return "api_misuse" if is_other_code and not effect.is_nothing else "misconfiguration"
    if effect.is_nothing:
        return "host"
    if edit.kind in ("left_out", "moved") or (edit.kind == "call" and _is_extra(edit) and effect.only_removes):
        return "redundant"
    # A call in whose place the other side reads a value that it has already.
    is_kept = edit.kind == "call" and called_name(edit.value_b) is None
    return "redundant" if not effect.added and (is_kept or edit.kind == "code") else "api_misuse"


def _sets_code(edit: Edit, functions: Collection[str]) -> bool:
    """Return whether an edit puts code in place of other code; `functions` are the names of those that ran."""
    return any(sets_code(patch.text, functions) for patch in edit.patches)


def _is_extra(edit: Edit) -> bool:
    """Return whether the expensive side only calls a method more: `x.t().contiguous()` and `x.t()`."""
    return _is_chained(edit) and len(edit.value_a or "") > len(edit.value_b or "")


def _is_chained(edit: Edit) -> bool:
    """Return whether one side only calls a method on what the other side has: `Net()` and `Net().eval()`."""
    mine, other = ("".join((text or "").split()) for text in (edit.value_a, edit.value_b))
    return mine.startswith(other) or other.startswith(mine)


def changed_lines(files: Sequence[SourceFile], edit: Edit) -> list[int]:
    """Return the lines of the expensive program that an edit changes, its own line first: a move has several."""
    texts = {file.path: file.text for file in files}
    found = [edit.line]
    for patch in edit.patches:
        text = texts.get(patch.path)
        if text is not None and patch.path == edit.path and patch.start < patch.end:
            skipped = len(text[patch.start : patch.end]) - len(text[patch.start : patch.end].lstrip())
            found.append(1 + text.count("\n", 0, patch.start + skipped))
    return list(dict.fromkeys(found))


def _lines_in_step(work: Investigation, side: SideName, differences: Differences, edit: Edit) -> list[int]:
    """Return the changed lines that the step runs."""
    lines = changed_lines(differences.files, edit)
    return [line for line in lines if _is_in_step(work, side, differences, edit, line)]


def _is_in_step(work: Investigation, side: SideName, differences: Differences, edit: Edit, line: int) -> bool:
    """Return whether the step runs the code at a line, and not only the code that builds the program."""
    text = next((file.text for file in differences.files if file.path == edit.path), "")
    function = function_at(text, line)
    at = replace(edit, line=line, end_line=max(line, edit.end_line), function=function)
    if is_in_frames(work.comparison.run(side), at):
        return True
    if not function or function.rpartition(".")[2] in _BUILDERS:
        return False
    try:
        return work.live[side].trace_lines(Target(edit.path, function, line)) is not None
    except (JoulediffError, NotImplementedError):
        return False


def edit_places(differences: Differences, edit: Edit) -> tuple[Place | None, Place | None]:
    """Return the line of an edit in the expensive program, and that of its counterpart."""
    mine = _place(differences.files, edit.path, edit.line, edit.function)
    other = None if edit.line_b is None else _place(differences.other_files, edit.path_b, edit.line_b, edit.function)
    return mine, other


def _place(files: Sequence[SourceFile], path: str, line: int, function: str) -> Place | None:
    text = next((file.text for file in files if file.path == path), None)
    if text is None:
        return None
    lines = text.splitlines()
    return Place(path, line, function, lines[line - 1].strip() if 0 < line <= len(lines) else None)
