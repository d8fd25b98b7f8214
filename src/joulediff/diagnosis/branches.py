"""The key variable: what two walks through one function read differently where they part, or where they lead on.

Statements are compared by their text, so that the two sides may have other versions of a library. From the place
that decided, values that differ are followed back on both sides together, to the farthest ones that still differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from joulediff.diagnosis.trails import Trail, follow, pair_atoms, rank, sentences
from joulediff.findings import Place
from joulediff.recorders.walks import Line, OriginKind, Step, Walk
from joulediff.runs import Setting

# A decision made by a decision before it, and so on: `why_not_fast = "..."` under an `if`.
MAX_PARTINGS = 8
# The branch that decided is near what it decided; aligning all of two long loops takes long.
MAX_ALIGNED = 500


@dataclass(frozen=True, slots=True)
class KeyVariable:
    """What decided, with both values. A value is None also where the other side alone reads the variable."""

    key: str
    kind: OriginKind
    value_a: Setting
    value_b: Setting
    place_a: Place | None
    """Where it is set."""
    place_b: Place | None
    at_a: Place | None
    """The branch or call that it decided."""
    at_b: Place | None
    trail: tuple[str, ...] = ()
    """A sentence for each step from there back to where it is set."""


def find_key_variable(a: Walk, b: Walk) -> KeyVariable | None:
    """Return the variable that sent two walks through one function different ways; None where none is seen to differ.

    What the statement that leads on calls comes first, then the branch that parted the walks before it, then what
    that statement is given. Where no statement leads on, the first branch that parts the walks.
    """
    if a.led is None or b.led is None:
        return _explain_whole(a, b)
    if a.lines[a.led].text != b.lines[b.led].text:
        return _explain_ends(a, b, a.led, b.led, MAX_PARTINGS) or _explain_first_parting(a, b)
    called = _explain_line(a, b, a.led, b.led, callees=True)
    return called or _explain_first_parting(_until_led(a), _until_led(b)) or _explain_line(a, b, a.led, b.led)


def _until_led(walk: Walk) -> Walk:
    return replace(walk, lines=walk.lines[: (walk.led or 0) + 1])


def _explain_whole(a: Walk, b: Walk) -> KeyVariable | None:
    found = _explain_first_parting(a, b)
    if found is not None or _texts(a) != _texts(b):
        return found
    called = _first(_explain_line(a, b, at, at, callees=True) for at in range(len(a.lines)))
    return called or _first(_explain_line(a, b, at, at) for at in range(len(a.lines)))


def _texts(walk: Walk) -> list[str]:
    return [line.text for line in walk.lines]


def _first(found: Iterable[KeyVariable | None]) -> KeyVariable | None:
    return next((each for each in found if each is not None), None)


def _explain_first_parting(a: Walk, b: Walk) -> KeyVariable | None:
    pairs = zip(a.lines, b.lines, strict=False)
    alike = next((at for at, (x, y) in enumerate(pairs) if x.text != y.text), min(len(a.lines), len(b.lines)))
    if alike == len(a.lines) == len(b.lines):
        return None
    branch = _branch_before(a, b, alike, alike)
    return _explain_line(a, b, *branch) if branch else None


def _explain_ends(a: Walk, b: Walk, end_a: int, end_b: int, left: int) -> KeyVariable | None:
    """Return the variable of the last branch that both walks ran before each came to a statement of its own."""
    from_a, from_b = max(0, end_a + 1 - MAX_ALIGNED), max(0, end_b + 1 - MAX_ALIGNED)
    texts_a, texts_b = _texts(a)[from_a : end_a + 1], _texts(b)[from_b : end_b + 1]
    blocks = SequenceMatcher(None, texts_a, texts_b, autojunk=False).get_matching_blocks()
    for block in reversed(blocks[:-1]):  # the last one is empty
        branch = _branch_before(a, b, from_a + block.a + block.size, from_b + block.b + block.size)
        if branch is not None:
            return _explain_line(a, b, *branch, left=left)
    return None


def _branch_before(a: Walk, b: Walk, at_a: int, at_b: int) -> tuple[int, int] | None:
    """Return the last branch among the equal statements before two places."""
    while at_a > 0 and at_b > 0 and a.lines[at_a - 1].text == b.lines[at_b - 1].text:
        at_a, at_b = at_a - 1, at_b - 1
        if a.lines[at_a].branch:
            return at_a, at_b
    return None


def _explain_line(
    a: Walk, b: Walk, at_a: int, at_b: int, *, callees: bool = False, left: int = MAX_PARTINGS
) -> KeyVariable | None:
    """Return the variable behind what one statement reads differently; with `callees`, behind what it calls."""
    pairs = pair_atoms(_atoms(a, at_a, callees=callees), _atoms(b, at_b, callees=callees))
    trails = [follow(a, b, pair) for pair in pairs if pair.differs]
    if not trails:
        return None
    trail = max(trails, key=rank)  # of equals the first: what is called comes before what it is given
    earlier = _explain_two_settings(a, b, at_a, at_b, trail, left) if left else None
    return earlier or _key_variable(trail, _place(a, a.lines[at_a]), _place(b, b.lines[at_b]))


def _atoms(walk: Walk, at: int, *, callees: bool) -> list[Step]:
    line = walk.lines[at]
    return [walk.steps[step] for step in (line.atoms[: line.callees] if callees else line.atoms)]


def _explain_two_settings(a: Walk, b: Walk, at_a: int, at_b: int, trail: Trail, left: int) -> KeyVariable | None:
    """Return what decided that a statement which one walk alone ran set a variable."""
    if trail[-1].by_hand:
        return None
    for pair in reversed(trail):
        set_a, set_b = _own_setting(a, pair.a, at_a, b), _own_setting(b, pair.b, at_b, a)
        if set_a is not None or set_b is not None:
            ends = at_a - 1 if set_a is None else set_a, at_b - 1 if set_b is None else set_b
            return _explain_ends(a, b, *ends, left - 1)
    return None


def _own_setting(walk: Walk, step: Step | None, before: int, other: Walk) -> int | None:
    """Return the place in a walk of the statement that gave a name its value, where the other walk has no such one."""
    at = _setting(walk, step, before)
    return None if at is None or walk.lines[at].text in _texts(other) else at


def _setting(walk: Walk, step: Step | None, before: int) -> int | None:
    if step is None or step.kind != "assignment" or step.place is None or step.place.function != walk.function:
        return None
    at = range(before - 1, -1, -1)
    return next((i for i in at if walk.lines[i].line == step.place.line and step.name in walk.lines[i].binds), None)


def _key_variable(trail: Trail, at_a: Place | None, at_b: Place | None) -> KeyVariable:
    """Return the end of a trail under the last name that both sides have for it."""
    end = trail[-1]
    named = next((pair for pair in reversed(trail) if pair.is_named), trail[0])
    places = end.place_a, end.place_b
    return KeyVariable(
        named.step.key, named.step.kind, end.value_a, end.value_b, *places, at_a, at_b, sentences(trail, at_a, at_b)
    )


def _place(walk: Walk, line: Line) -> Place:
    at = line.line - walk.first
    text = walk.source[at].strip() if 0 <= at < len(walk.source) else line.text
    return Place(walk.file, line.line, walk.function, text)
