"""Evidence: a plain value that both steps can reach differs, such as an attribute, an option or a closure variable.

The values of both runs are paired by path, or by the end of the path where the two programs have other names for the
same object. One difference is one `Leaf`, also where several objects hold a copy of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.recorded_settings import parse_place
from joulediff.diagnosis.evidence.settings import is_same_setup
from joulediff.diagnosis.lead import Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_argument, suggest_setting
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting
from joulediff.pysource.leaf_sites import words_of

# The same object is searched below this many outer names.
_MAX_PREFIX = 3
# With this many equal ends, two begins of paths name the same object; fewer count if a begin has no more leaves.
_LEAST_SHARED = 3
_PART = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_RELATIVE = 1e-9
_MAX_LEADS = 2
# Shorter names stand in too many lines for other things.
_LEAST_CHARS = 4
# The options of an optimizer.
_GROUPS = "param_groups"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One difference of state, at all paths that hold it."""

    name: str
    """The attribute's, key's or variable's own name: `use_cache`."""
    paths: tuple[str, ...]
    """Its paths in A."""
    paths_b: tuple[str, ...]
    """Its paths in B, in the same order."""
    value_a: Setting
    value_b: Setting
    place_a: Place | None
    """The line of A that sets it, or else the line that makes the object which holds it."""
    place_b: Place | None
    is_written: bool = False
    """The line of a side names it."""
    is_read: bool = False
    """A recorded line on the way to an operator names it."""

    @property
    def values(self) -> Pair[Setting]:
        """The value of each side."""
        return Pair(self.value_a, self.value_b)

    @property
    def places(self) -> Pair[Place | None]:
        """The place of each side."""
        return Pair(self.place_a, self.place_b)

    def paths_of(self, side: SideName) -> tuple[str, ...]:
        """Return its paths on one side."""
        return Pair(self.paths, self.paths_b).of(side)


def differing_leaves(comparison: Comparison) -> tuple[Leaf, ...]:
    """Return the differences of state, the likeliest cause of other work first.

    Values that a line of the user's sets come first, then those that a line on the way to an operator reads; switches
    before numbers, and numbers that follow from another one last.
    """
    return comparison.leaves


def compare_state(comparison: Comparison) -> tuple[Leaf, ...]:
    """Compute what `differing_leaves` returns."""
    a, b = comparison.a, comparison.b
    apart = [pair for pair in pair_paths(a.state, b.state) if not _is_equal(a.state[pair.a], b.state[pair.b])]
    leaves = [_leaf(a, b, pairs) for pairs in _group(a, b, apart)]
    read = {side: _words_read(comparison.run(side)) for side in SIDES}
    seen = [replace(leaf, is_read=any(_plain(leaf.name) in read[side] for side in SIDES)) for leaf in leaves]
    ratios = Counter(ratio for leaf in seen if (ratio := _ratio(leaf)) is not None)
    return tuple(_with_own_names(sorted(seen, key=lambda leaf: _rank(leaf, ratios))))


def _with_own_names(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """Yield leaves whose names differ: a second one of a name has that of its object too, or its whole path."""
    taken: set[str] = set()
    for leaf in leaves:
        names = (leaf.name, ".".join(words_of(leaf.paths[0])[-2:]), leaf.paths[0])
        name = next(each for each in names if each not in taken or each == leaf.paths[0])
        taken.add(name)
        yield replace(leaf, name=name)


def find_state(subject: Subject) -> list[Lead]:
    """Return a lead for each leaf that differs and acts on the region as far as the recordings tell.

    A leaf acts on operators if a line on their call path names it, if it belongs to their module or optimizer, or if
    nothing else differs: the user's line is the same in both programs, and so are the settings.
    """
    leaves = differing_leaves(subject.comparison)
    if not leaves:
        return []
    found = [leaf for leaf in leaves if _acts(leaf, subject)]
    if not found and _is_same_line(subject) and is_same_setup(subject):
        found = [leaf for leaf in leaves if leaf.is_written and not _is_number(leaf)]
    return [_lead(leaf, subject) for leaf in found[:_MAX_LEADS]]


def _acts(leaf: Leaf, subject: Subject) -> bool:
    return any(
        _is_read_at(leaf, subject, side) or _is_option_of(leaf, subject, side)
        for side in SIDES
        if subject.op(side) is not None
    )


def _is_read_at(leaf: Leaf, subject: Subject, side: SideName) -> bool:
    """Return whether a line on the way to the costliest operator of a side names a leaf."""
    run, op = subject.comparison.run(side), subject.op(side)
    assert op is not None
    if len(leaf.name) < _LEAST_CHARS and not leaf.is_written:
        return False
    texts = (run.line_text(frame.file, frame.line) or "" for frame in run.call_path(op))
    return any(_plain(leaf.name) in map(_plain, words_of(text)) for text in texts)


def _is_option_of(leaf: Leaf, subject: Subject, side: SideName) -> bool:
    """Return whether a leaf is a switch of the module or the optimizer that runs the costliest operator."""
    number = subject.op(side)
    assert number is not None
    op = subject.comparison.run(side).ops[number]
    if _is_number(leaf):
        return False
    if op.phase == "optimizer":
        return any(_GROUPS in path for path in leaf.paths_of(side))
    holders = [_to_module(path) for path in leaf.paths_of(side)]
    return bool(op.module) and any(holder and f"{op.module}.".startswith(f"{holder}.") for holder in holders)


def _to_module(path: str) -> str:
    """Return the object that holds a leaf as modules are named: without the variable of the model."""
    return ".".join(words_of(path)[1:-1])


def _is_same_line(subject: Subject) -> bool:
    """Return whether the user's line that ran the expensive operator is in the other program as well."""
    place = subject.place(subject.expensive)
    other = subject.comparison.run(subject.cheap)
    return place is not None and place.text is not None and place.text in other.index.lines.values()


def _lead(leaf: Leaf, subject: Subject) -> Lead:
    places = Pair(*(leaf.places.of(side) or subject.place(side) for side in SIDES))
    cause = make_cause("state", leaf.name, leaf.values, places, (describe_leaf(leaf),))
    suggest = suggest_argument if None in leaf.values else suggest_setting
    return Lead("misconfiguration", cause, (), suggest(cause, subject.expensive))


def describe_leaf(leaf: Leaf) -> str:
    """Return a sentence on both values of a leaf, with its path."""
    a, b = leaf.paths[0], leaf.paths_b[0]
    path = a if a == b else f"{a} ↔ {b}"
    more = f" (and at {len(leaf.paths) - 1} more paths)" if len(leaf.paths) > 1 else ""
    return f"{path} is {_say(leaf.value_a)} in A and {_say(leaf.value_b)} in B{more}"


def is_set_at(leaf: Leaf, side: SideName, file: str, lines: range) -> bool:
    """Return whether one of these lines of a side sets a leaf: it names the leaf."""
    place = leaf.places.of(side)
    is_there = place is not None and place.file == file and place.line in lines
    return is_there and place is not None and _plain(leaf.name) in (place.text or "")


def pair_paths(a: Mapping[str, Setting], b: Mapping[str, Setting]) -> list[Pair[str]]:
    """Return the paths of two programs that name the same leaf, in the order of A; each path is in at most one pair."""
    same = [path for path in a if path in b]
    left, right = ([path for path in each if path not in other] for each, other in ((a, b), (b, a)))
    taken: dict[str, str] = {}
    for begins in _paired_begins(left, right):
        for path in left:
            end = _end(path, begins.a)
            other = None if end is None else begins.b + end
            if path not in taken and other in b and other not in a and other not in taken.values():
                taken[path] = str(other)
    order = {path: at for at, path in enumerate(a)}
    pairs = [*(Pair(path, path) for path in same), *(Pair(x, y) for x, y in taken.items())]
    return sorted(pairs, key=lambda pair: order[pair.a])


def _paired_begins(left: Sequence[str], right: Sequence[str]) -> list[Pair[str]]:
    """Return begins of paths that hold the same ends in both programs, those with the most ends first."""
    by_end: dict[str, list[str]] = {}
    for path in right:
        for begin, end in _splits(path):
            by_end.setdefault(end, []).append(begin)
    shared: Counter[tuple[str, str]] = Counter()
    sizes: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for path in right:
        sizes[1].update(begin for begin, _ in _splits(path))
    for path in left:
        for begin, end in _splits(path):
            sizes[0][begin] += 1
            shared.update((begin, other) for other in by_end.get(end, ()))
    kept = [
        (count, x, y)
        for (x, y), count in shared.items()
        if count >= min(_LEAST_SHARED, sizes[0][x], sizes[1][y]) and (_depth(x) == 1 or _depth(y) == 1)
    ]
    return [Pair(x, y) for _, x, y in sorted(kept, key=lambda each: (-each[0], len(each[1]) + len(each[2]), each))]


def _splits(path: str) -> Iterator[tuple[str, str]]:
    """Yield the begin and the end of a path after each of its outer names."""
    for part in list(_PART.finditer(path))[:_MAX_PREFIX]:
        if part.end() < len(path):
            yield path[: part.end()], path[part.end() :]


def _depth(path: str) -> int:
    return len(_PART.findall(path))


def _end(path: str, begin: str) -> str | None:
    end = path.removeprefix(begin)
    return end if end != path and end[:1] in (".", "[") else None


def _is_equal(x: Setting, y: Setting) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return x == y or abs(x - y) <= _RELATIVE * max(abs(x), abs(y))
    return x == y and type(x) is type(y)


def _group(a: Run, b: Run, apart: Iterable[Pair[str]]) -> list[list[Pair[str]]]:
    """Return the pairs of paths in groups of one difference each.

    Copies have the same name, or another one and the same two texts or numbers. Two switches of different names are
    not taken for copies: many have the values True and False.
    """
    by_name: dict[object, list[Pair[str]]] = {}
    for pair in apart:
        key = (_plain(_name(pair.a)), str(a.state[pair.a]), str(b.state[pair.b]))
        by_name.setdefault(key, []).append(pair)
    by_value: dict[object, list[Pair[str]]] = {}
    for name, pairs in by_name.items():
        values = a.state[pairs[0].a], b.state[pairs[0].b]
        is_copied = not any(each is None or isinstance(each, bool) for each in values)
        by_value.setdefault(tuple(map(str, values)) if is_copied else name, []).extend(pairs)
    return list(by_value.values())


def _leaf(a: Run, b: Run, pairs: Sequence[Pair[str]]) -> Leaf:
    """Return the leaf of one difference, under the name that a user's line has for it."""
    ordered = sorted(pairs, key=lambda pair: (not _is_written(a, b, pair), len(pair.a)))
    first = ordered[0]
    places = _place(a, first.a), _place(b, first.b)
    return Leaf(
        name=_written_name(_name(first.a), places),
        paths=tuple(pair.a for pair in ordered),
        paths_b=tuple(pair.b for pair in ordered),
        value_a=a.state[first.a],
        value_b=b.state[first.b],
        place_a=places[0],
        place_b=places[1],
        is_written=_is_written(a, b, first),
    )


def _written_name(name: str, places: Iterable[Place | None]) -> str:
    """Return the name as the user's line has it: `attn_implementation` sets `_attn_implementation`."""
    words = {word for place in places if place is not None for word in words_of(place.text or "")}
    return _plain(name) if name not in words and _plain(name) in words else name


def _is_written(a: Run, b: Run, pair: Pair[str]) -> bool:
    return pair.a in a.state_places or pair.b in b.state_places


def _place(run: Run, path: str) -> Place | None:
    """Return the line that sets a leaf, or else the line that makes the innermost object on its path."""
    begins = [path[: part.end()] for part in _PART.finditer(path)]
    found = next((run.state_places[begin] for begin in reversed(begins) if begin in run.state_places), None)
    return None if found is None else parse_place(run, found)


def _name(path: str) -> str:
    """Return the last name of a path; that of an entry without its quotes."""
    return str(_PART.findall(path)[-1]).strip("[]'\"")


def _plain(name: str) -> str:
    """Return a name without the underscore of an attribute that a property of the plain name holds its value in."""
    return name.lstrip("_")


def _words_read(run: Run) -> frozenset[str]:
    """Return the names in the recorded lines of code: those around the call paths of operators."""
    return frozenset(_plain(word) for source in run.sources for word in words_of(source.text))


def _say(value: Setting) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _is_number(leaf: Leaf) -> bool:
    return any(isinstance(each, int | float) and not isinstance(each, bool) for each in leaf.values)


def _ratio(leaf: Leaf) -> float | None:
    """Return the ratio of two numbers, which copies in other units share."""
    a, b = leaf.value_a, leaf.value_b
    if isinstance(a, bool | str) or isinstance(b, bool | str) or not a or not b:
        return None
    return round(a / b, 6)


def _rank(leaf: Leaf, ratios: Mapping[float, int]) -> tuple[object, ...]:
    ratio = _ratio(leaf)
    is_derived = ratio is not None and ratios[ratio] > 1 and not leaf.is_written
    return (not leaf.is_written, not leaf.is_read, _is_number(leaf), is_derived, len(leaf.paths), len(leaf.paths[0]))
