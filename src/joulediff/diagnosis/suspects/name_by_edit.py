"""Names a proven cause by the text of its chief edit: the argument, the call, the operator or the name that it changes.

This names every edit, so it is asked last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.suggest import suggest_change
from joulediff.diagnosis.suspects.effect import Effect
from joulediff.diagnosis.suspects.find_suspects import text_of
from joulediff.diagnosis.suspects.proven import Proven
from joulediff.diagnosis.suspects.source_names import (
    assigned_name,
    called_name,
    calls_in,
    class_name,
    last_word,
    operator_name,
    sets_code,
    sets_constant,
    to_value,
)
from joulediff.energy.host_energy import host_parts
from joulediff.frameworks.framework import outer_path, short_name
from joulediff.model.finding import CauseType, FindingKind
from joulediff.model.pair import pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting
from joulediff.pysource.edits.edit import Edit

_TYPES: dict[str, CauseType] = {
    "argument": "argument",
    "value": "code",
    "call": "call_path",
    "left_out": "redundancy",
    "moved": "repetition",
    "added": "code",
    "code": "code",
}


def name_by_edit(proven: Proven) -> Lead | None:
    """Return the lead of the chief edit, with the other edits that were changed with it."""
    edit = proven.edit
    if edit is None:
        return None
    lines = _lines_of(proven, edit)
    sampled = _find_sampled(proven, edit, lines)
    written = _Written(edit, proven.effect, lines, calls_framework(proven.run, edit), sampled)
    key, *texts = next(named for rule in _NAME_RULES if (named := rule(written)) is not None)
    kind = _kind_of(proven, written)
    type_: CauseType = "host" if kind == "host" else _TYPES[edit.kind]
    places = proven.places(edit)
    other = places.b if proven.side == "a" else places.a
    places = pair_from(proven.side, _place_of(proven, written, key), other)
    cause = make_cause(type_, key or None, pair_from(proven.side, *texts), places, (_evidence(proven.effect),))
    lead = Lead(kind, cause, (), suggest_change(cause, proven.side, edit))
    is_asked = _asks_for_less(edit, proven.effect) and not written.runs_operator
    if is_asked and any(each.kind == "redundant" for each in proven.leads):
        lead = replace(lead, kind="redundant")
    others = [text_of(each) for each in proven.edits if each is not edit]
    return lead.with_evidence(f"changed with it: {'; '.join(others)}") if others else lead


def _evidence(effect: Effect) -> str:
    if effect.is_nothing:
        return "with the change the step runs the same operators"
    return f"with the change {len(effect.removed)} different operators are gone, and {len(effect.added)} are new"


def _place_of(proven: Proven, written: _Written, key: str) -> Place | None:
    """Return the line of an edit; of several lines, the one with its name or else with the most energy."""
    edit = written.edit
    place = proven.place_at(edit, edit.line)
    if edit.kind == "moved" and proven.lines:
        place = proven.place_at(edit, proven.lines[0])
    if written.sampled is not None and edit.kind == "code":
        return proven.place_at(edit, written.sampled.line)
    costly = proven.place
    if costly is not None and costly.file == edit.path and edit.line < costly.line <= edit.end_line:
        place = costly
    named = _lines_with(written.lines, key) if edit.kind == "code" else []
    if named and (place is None or place.line not in named):
        place = proven.place_at(edit, named[0])
    return place


def _lines_of(proven: Proven, edit: Edit) -> dict[int, str]:
    """Return the lines of the expensive program that an edit replaces, by their numbers."""
    text = next((file.text for file in proven.differences.files if file.path == edit.path), "")
    lines = text.splitlines()[edit.line - 1 : edit.end_line]
    return dict(enumerate(lines, edit.line))


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The line of an edit in which the host spends most of its time, and the call there if only this side has it."""

    line: int
    call: str | None


def _find_sampled(proven: Proven, edit: Edit, lines: Mapping[int, str]) -> _Sampled | None:
    """Return where the host works in lines that an edit replaces; None if the edit changes operators."""
    if not proven.effect.is_nothing or edit.context:
        return None
    for part in host_parts(proven.run, "line"):  # the most energy first
        if part.frame is None or part.frame.file != edit.path or part.frame.line not in lines:
            continue
        text = lines[part.frame.line]
        calls = calls_in(text if edit.kind == "code" else edit.value_a or text)
        mine = [call for call in calls if call not in calls_in(edit.value_b or "")]
        call = next((each for each in mine if part.calls and last_word(each) == last_word(part.calls)), None)
        if call is None and edit.kind == "code":
            call = called_name(text) or assigned_name(text)
        return _Sampled(part.frame.line, call)
    return None


def _lines_with(lines: Mapping[int, str], key: str) -> list[int]:
    """Return the numbers of the lines with the last word of a key."""
    word = re.compile(rf"\b{re.escape(last_word(key))}\b")
    return [line for line, text in lines.items() if word.search(text)]


def calls_framework(run: Run, edit: Edit) -> bool:
    """Return whether the line of an edit calls an operator or function of a framework itself, and no other library."""
    paths = (outer_path(run, op.id) for op in run.ops)
    return any(path and path[-1].file == edit.path and edit.line <= path[-1].line <= edit.end_line for path in paths)


Named = tuple[str, Setting, Setting]
"""The key of an edit, and the value of the expensive and of the cheap side."""


@dataclass(frozen=True, slots=True)
class _Written:
    """An edit, what it did, and the lines that it replaces; whether they run an operator of the framework."""

    edit: Edit
    effect: Effect
    lines: Mapping[int, str]
    runs_operator: bool
    sampled: _Sampled | None = None

    @property
    def text(self) -> str:
        return "\n".join(self.lines.values())

    @property
    def called(self) -> str | None:
        """The function that the expensive side calls, or the operator that it applies."""
        return self._called(self.edit.value_a)

    @property
    def other_called(self) -> str | None:
        return self._called(self.edit.value_b)

    def _called(self, text: str | None) -> str | None:
        return called_name(text) or (operator_name(text) if self.runs_operator else None)

    def named(self, key: str) -> Named:
        """Return a key with the texts of both sides as values."""
        return key, to_value(self.edit.value_a), to_value(self.edit.value_b)


def _by_sampled_call(written: _Written) -> Named | None:
    """Of an edit that changes no operator, the call that takes the host's time there."""
    call = None if written.sampled is None else written.sampled.call
    return None if call is None else written.named(call)


def _by_argument(written: _Written) -> Named | None:
    """An argument; of two classes that are passed, the class of the expensive side."""
    edit = written.edit
    if edit.kind != "argument":
        return None
    name = class_name(edit.value_a) if class_name(edit.value_b) is not None else None
    return written.named(name or edit.key)


def _by_lost_call(written: _Written) -> Named | None:
    """Of several calls, the first one whose operator is gone with the change; the outer call of an expression first."""
    edit, effect = written.edit, written.effect
    is_nested = edit.kind == "call" and edit.value_b is not None
    if not is_nested and (edit.kind != "code" or edit.end_line == edit.line):
        return None
    removed, added = ({short_name(str(key[0])) for key in keys} for keys in (effect.removed, effect.added))
    calls = calls_in((edit.value_a or "") if is_nested else written.text)
    lost = [name for name in calls if name.rpartition(".")[2] in removed - added]
    if not lost or (is_nested and written.called in lost):
        return None
    return written.named(lost[0])


def _by_call_left_out(written: _Written) -> Named | None:
    called = written.called if written.edit.kind in ("left_out", "moved") else None
    return None if called is None else written.named(called)


def _by_other_call(written: _Written) -> Named | None:
    """The call of the expensive side, with the other side's call in its place as the value."""
    called, other = written.called, written.other_called
    if written.edit.kind not in ("value", "code") or called is None:
        return None
    return written.named(called) if other in (None, called) else (called, called, other)


def _by_added_call(written: _Written) -> Named | None:
    other = written.other_called if written.edit.kind == "added" else None
    return None if other is None else (other, None, to_value(written.edit.value_b))


def _by_variable(written: _Written) -> Named | None:
    """The variable that a sum of numbers sets, or else its function: a sum of tensors is named by its operator."""
    edit = written.edit
    if written.runs_operator or any(char.isalnum() for char in edit.key):
        return None
    name = assigned_name(written.text) or edit.function.rpartition(".")[2]
    return written.named(name) if name else None


def _by_key(written: _Written) -> Named | None:
    return written.named(written.edit.key)


_NAME_RULES: tuple[Callable[[_Written], Named | None], ...] = (
    _by_sampled_call,
    _by_argument,
    _by_lost_call,
    _by_call_left_out,
    _by_other_call,
    _by_added_call,
    _by_variable,
    _by_key,
)


def _kind_of(proven: Proven, written: _Written) -> FindingKind:
    """Return the kind of an edit."""
    edit, effect = written.edit, written.effect
    if edit.context:
        spares_work = edit.context == "with" and bool(effect.removed) and effect.only_removes and not proven.settings
        return "redundant" if spares_work else "misconfiguration"
    if not proven.lines:
        return "api_misuse" if _is_other_code(proven, edit) and not effect.is_nothing else "misconfiguration"
    if effect.is_nothing:
        return "misconfiguration" if sets_constant(written.text) else "host"
    if edit.kind in ("left_out", "moved") or (edit.kind == "call" and _is_extra(edit) and effect.only_removes):
        return "redundant"
    # A call in whose place the other side reads a value that it has already.
    is_kept = edit.kind == "call" and called_name(edit.value_b) is None
    return "redundant" if not effect.added and (is_kept or edit.kind == "code") else "api_misuse"


def _is_other_code(proven: Proven, edit: Edit) -> bool:
    """Return whether an edit takes another function or class, whose code the step runs."""
    if edit.kind == "argument":
        return None not in (class_name(edit.value_a), class_name(edit.value_b)) or _sets_code(proven, edit)
    return (edit.kind == "call" and not _is_chained(edit)) or _sets_code(proven, edit)


def _sets_code(proven: Proven, edit: Edit) -> bool:
    return any(sets_code(patch.text, proven.functions) for patch in edit.patches)


def _asks_for_less(edit: Edit, effect: Effect) -> bool:
    """Return whether a change only passes one more argument, and the same operators do less.

    For an argument of the framework's own function this is a misuse of its API, and no redundant work.
    """
    return edit.kind == "argument" and edit.value_a is None and effect.only_removes


def _is_extra(edit: Edit) -> bool:
    """Return whether the expensive side only calls a method more: `x.t().contiguous()` and `x.t()`."""
    return _is_chained(edit) and len(edit.value_a or "") > len(edit.value_b or "")


def _is_chained(edit: Edit) -> bool:
    """Return whether one side only calls a method on what the other side has: `Net()` and `Net().eval()`."""
    mine, other = ("".join((text or "").split()) for text in (edit.value_a, edit.value_b))
    return mine.startswith(other) or other.startswith(mine)
