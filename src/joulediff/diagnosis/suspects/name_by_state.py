"""Names a proven cause by the setting, or the value of the program's state, that was changed or that an edit sets."""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.diagnosis.evidence.recorded_settings import set_place
from joulediff.diagnosis.evidence.state import Leaf, describe_leaf, differing_leaves, is_set_at
from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.suggest import suggest_setting
from joulediff.diagnosis.suspects.proven import Proven
from joulediff.diagnosis.suspects.source_names import to_value
from joulediff.frameworks.framework import group_switches, known_name
from joulediff.model.finding import TOGETHER, CauseType
from joulediff.model.pair import Pair, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.pysource.edits.edit import Edit

# Edits that only set something: another call is named by the calls.
_SETTING_KINDS = ("value", "left_out", "added")


def name_setting(proven: Proven) -> Lead | None:
    """Return the lead of the setting that the only suspect sets; None if the recordings show none that differs."""
    if len(proven.suspects) != 1:
        return None
    run, other = proven.run, proven.other_run
    differing = [name for name in proven.settings if run.settings.get(name) != other.settings.get(name)]
    groups = group_switches(differing)
    if not groups:
        return None
    known = {**other.set_places, **run.set_places}
    keys = [next((name for name in group if name in known), group[0]) for group in groups]
    values = Pair(*(_joined([each.settings.get(name) for name in keys]) for each in (run, other)))
    places = _set_places(proven, keys[0])
    if proven.edit is not None:
        places = _with_set_place(proven, proven.edit, places)
    key = TOGETHER.join(map(known_name, keys))
    evidence = (f"changed alone: {proven.suspects[0].text}",)
    return _value_lead(proven, "setting", key, pair_from(proven.side, *values), places, evidence)


def name_changed_value(proven: Proven) -> Lead | None:
    """Return the lead of a setting, or of values of the state, that were set in the program; None for an edit."""
    if proven.edit is not None:
        return None
    first = proven.suspects[0]
    if first.settings:
        key = first.name
        values = pair_from(proven.side, proven.run.settings.get(key), proven.other_run.settings.get(key))
        places = _set_places(proven, key)
        text = f"{key} is {values.a} in A and {values.b} in B"
        return _value_lead(proven, "setting", known_name(key), values, places, (text,))
    leaves = {leaf.name: leaf for leaf in differing_leaves(proven.comparison)}
    chosen = [leaves[each.name] for each in proven.suspects]
    key = TOGETHER.join(leaf.name for leaf in chosen)
    values = Pair(_joined([leaf.value_a for leaf in chosen]), _joined([leaf.value_b for leaf in chosen]))
    evidence = tuple(describe_leaf(leaf) for leaf in chosen)
    return _value_lead(proven, "state", key, values, chosen[0].places, evidence)


def name_value_of_line(proven: Proven) -> Lead | None:
    """Return the lead of the value of the state that the line of the only edit sets; None if none differs there."""
    edit = proven.edit
    if edit is None or len(proven.edits) != 1 or edit.kind not in _SETTING_KINDS or edit.context:
        return None
    leaf = _leaf_set_by(proven, edit)
    if leaf is None:
        return None
    evidence = (describe_leaf(leaf), "the line was changed alone, as in the other program")
    places = _with_set_place(proven, edit, leaf.places)
    return _value_lead(proven, "state", leaf.name, leaf.values, places, evidence)


def _leaf_set_by(proven: Proven, edit: Edit) -> Leaf | None:
    """Return the differing value of the state that the line of an edit sets.

    Of several, it is the one with the name or the values of the edit.
    """
    side = proven.side
    here, there = range(edit.line, edit.end_line + 1), range(edit.line_b or 0, (edit.line_b or -1) + 1)
    found = [
        leaf
        for leaf in differing_leaves(proven.comparison)
        if is_set_at(leaf, side, edit.path, here) or is_set_at(leaf, other_side(side), edit.path_b, there)
    ]
    values = pair_from(side, to_value(edit.value_a), to_value(edit.value_b))
    fitting = [leaf for leaf in found if leaf.name == edit.key] or [leaf for leaf in found if leaf.values == values]
    if fitting:
        return fitting[0]
    is_unknown = edit.kind == "value" and len(found) > 1
    return None if is_unknown else next(iter(found), None)


def name_passed_text(proven: Proven) -> Lead | None:
    """Return the lead of the only value of the state with the texts that the argument of the only edit passes on.

    A configuration has the name that its library documents; that of the argument is the program's own. Numbers and
    flags are too common to tell that a value was passed on.
    """
    edit = proven.edit
    if edit is None or len(proven.edits) != 1 or edit.kind != "argument":
        return None
    texts = (edit.value_a or "", edit.value_b or "")
    passed = (to_value(edit.value_a), to_value(edit.value_b))
    if not all(isinstance(value, str) and _is_text(text) for value, text in zip(passed, texts, strict=True)):
        return None
    values = pair_from(proven.side, *passed)
    found = {leaf.name: leaf for leaf in differing_leaves(proven.comparison) if Pair(*leaf.values) == values}
    if len(found) != 1:
        return None
    (leaf,) = found.values()
    evidence = (describe_leaf(leaf), f"{edit.key} was changed alone, as in the other program")
    return _value_lead(proven, "state", leaf.name, leaf.values, proven.places(edit), evidence)


def _is_text(text: str) -> bool:
    return text.strip()[:1] in ("'", '"')


def _set_places(proven: Proven, name: str) -> Pair[Place | None]:
    return Pair(set_place(proven.comparison.a, name), set_place(proven.comparison.b, name))


def _with_set_place(proven: Proven, edit: Edit, set_at: Pair[Place | None]) -> Pair[Place | None]:
    """Return the lines of an edit, with the other side's line that sets the value where it is known."""
    side, places = proven.side, proven.places(edit)
    return pair_from(side, places.of(side), set_at.of(other_side(side)) or places.of(other_side(side)))


def _joined(values: Sequence[Setting]) -> Setting:
    if len(values) == 1:
        return values[0]
    return TOGETHER.join("not set" if value is None else str(value) for value in values)


def _value_lead(
    proven: Proven,
    type_: CauseType,
    key: str,
    values: Pair[Setting],
    places: Pair[Place | None],
    evidence: tuple[str, ...],
) -> Lead:
    cause = make_cause(type_, key, values, places, evidence)
    return Lead("misconfiguration", cause, (), suggest_setting(cause, proven.side))
