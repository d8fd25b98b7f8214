"""Align the statements of two versions of a block: equal ones first, then similar ones, then blocks around others.

Every statement of both sides is in exactly one of the steps.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from joulediff.pysource.edits.syntax import (
    Shapes,
    body_of,
    dotted,
    labels_of,
    likeness,
    names_bound_by,
    read_names,
    targets_of,
)

# Two statements with half of their words in common are versions of one.
_LIKE = 0.5
# An assignment to the same variable is a version of the other one, if at least something agrees.
_SAME_TARGET = 0.4
# The body of a loop does other work than the same statements outside of it, unless they are nearly equal.
_LIKE_IN_LOOP = 0.8
# Pairing compares each statement of a gap with each of the other side.
_MOST_PAIRS = 4_000
# Runs are compared with a block's body in gaps of at most this many statements.
_MOST_RUN = 20
_AROUND = (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While, ast.If)


@dataclass(frozen=True)
class Step:
    """What becomes of statements: a pair, statements without the block around them, or other statements."""

    kind: Literal["pair", "unwrap", "wrap", "replace"]
    left: tuple[ast.stmt, ...]
    right: tuple[ast.stmt, ...]


# The spans of both sides that a step is about.
_Around: TypeAlias = tuple[tuple[int, int], tuple[int, int], Step]


class Aligner:
    """Aligns statements of two files. `modules` are names that mean an imported module, which no statement changes."""

    def __init__(self, shapes: Shapes, modules: set[str]) -> None:
        self._shapes = shapes
        self._modules = modules
        self._labels: dict[ast.AST, Counter[str]] = {}

    def align(self, left: list[ast.stmt], right: list[ast.stmt]) -> list[Step]:
        """Return the steps from the left to the right statements, in order."""
        found: list[Step] = []
        matcher = SequenceMatcher(None, self._shapes.of_all(left), self._shapes.of_all(right), autojunk=False)
        for tag, i, i2, j, j2 in matcher.get_opcodes():
            if tag == "equal":
                found += [Step("pair", (x,), (y,)) for x, y in zip(left[i:i2], right[j:j2], strict=True)]
            else:
                found += self._align_gap(left[i:i2], right[j:j2])
        return found

    def labels(self, node: ast.AST) -> Counter[str]:
        """Return the words of a node."""
        if node not in self._labels:
            self._labels[node] = labels_of(node)
        return self._labels[node]

    def _align_gap(self, left: list[ast.stmt], right: list[ast.stmt]) -> Iterator[Step]:
        if not left or not right:
            yield from self._components(left, right)
            return
        around = self._find_around(left, right)
        if around is not None:
            (i, i2), (j, j2), step = around
            yield from self._align_gap(left[:i], right[:j])
            yield step
            yield from self._align_gap(left[i2:], right[j2:])
            return
        last_i = last_j = 0
        for i, j in self._similar_pairs(left, right):
            yield from self._rest(left[last_i:i], right[last_j:j])
            yield Step("pair", (left[i],), (right[j],))
            last_i, last_j = i + 1, j + 1
        yield from self._rest(left[last_i:], right[last_j:])

    def _find_around(self, left: list[ast.stmt], right: list[ast.stmt]) -> _Around | None:
        """Return the first block of one side whose statements stand without it on the other side."""
        shapes_left, shapes_right = self._shapes.of_all(left), self._shapes.of_all(right)
        for i, each in enumerate(left):
            at = _find_list(self._shapes.of_all(body_of(each)), shapes_right) if _can_unwrap(each) else None
            if at is not None:
                end = at + len(body_of(each))
                return (i, i + 1), (at, end), Step("unwrap", (each,), tuple(right[at:end]))
        for j, each in enumerate(right):
            at = _find_list(self._shapes.of_all(body_of(each)), shapes_left) if _can_unwrap(each) else None
            if at is not None:
                end = at + len(body_of(each))
                return (at, end), (j, j + 1), Step("wrap", tuple(left[at:end]), (each,))
        return None

    def _similar_pairs(self, left: list[ast.stmt], right: list[ast.stmt]) -> list[tuple[int, int]]:
        """Return the pairs of similar statements with the largest total, in the order of both sides."""
        if len(left) * len(right) > _MOST_PAIRS:
            return []
        is_single = len(left) == len(right) == 1
        best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
        scores = [[self._score(x, y, is_single=is_single) for y in right] for x in left]
        for i in range(len(left) - 1, -1, -1):
            for j in range(len(right) - 1, -1, -1):
                best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + scores[i][j])
        found = []
        i = j = 0
        while i < len(left) and j < len(right):
            if scores[i][j] and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
                found.append((i, j))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1
        return found

    def _score(self, x: ast.stmt, y: ast.stmt, *, is_single: bool) -> float:
        if type(x) is not type(y):
            return 0.0
        score = likeness(self.labels(x), self.labels(y))
        targets = [self._shapes.of(each) for each in targets_of(x)]
        if targets and targets == [self._shapes.of(each) for each in targets_of(y)]:
            # Several assignments to one variable are distinguished by their values.
            score += _SAME_TARGET
        if is_single and isinstance(x, (ast.Return, ast.Raise)):
            score = max(score, _LIKE)
        return score if score >= _LIKE else 0.0

    def _rest(self, left: list[ast.stmt], right: list[ast.stmt]) -> Iterator[Step]:
        """Yield steps for statements that resemble none of the other side."""
        around = self._find_similar_around(left, right)
        if around is not None:
            (i, i2), (j, j2), step = around
            yield from self._rest(left[:i], right[:j])
            yield step
            yield from self._rest(left[i2:], right[j2:])
        elif len(left) == len(right) == 1 and self._score(left[0], right[0], is_single=True):
            yield Step("pair", tuple(left), tuple(right))
        else:
            yield from self._components(left, right)

    def _find_similar_around(self, left: list[ast.stmt], right: list[ast.stmt]) -> _Around | None:
        """Return the block of one side whose statements are most like a run of the other side."""
        best = 0.0
        found: _Around | None = None
        for i, each in enumerate(left):
            score, j, j2 = self._most_like(each, right)
            if score > best:
                step = Step("unwrap", (each,), tuple(right[j:j2]))
                best, found = score, ((i, i + 1), (j, j2), step)
        for j, each in enumerate(right):
            score, i, i2 = self._most_like(each, left)
            if score > best:
                step = Step("wrap", tuple(left[i:i2]), (each,))
                best, found = score, ((i, i2), (j, j + 1), step)
        return found

    def _most_like(self, block: ast.stmt, others: list[ast.stmt]) -> tuple[float, int, int]:
        """Return the run of statements that is most like the body of a block, and how much; 0 if none is."""
        if not _can_unwrap(block) or len(others) > _MOST_RUN:
            return 0.0, 0, 0
        body = sum((self.labels(each) for each in body_of(block)), Counter[str]())
        best = (0.0, 0, 0)
        for start in range(len(others)):
            words: Counter[str] = Counter()
            for end in range(start, len(others)):
                words += self.labels(others[end])
                best = max(best, (likeness(body, words), start, end + 1), key=lambda each: each[0])
        enough = _LIKE if isinstance(block, (ast.With, ast.AsyncWith)) else _LIKE_IN_LOOP
        return best if best[0] >= enough else (0.0, 0, 0)

    def _components(self, left: list[ast.stmt], right: list[ast.stmt]) -> Iterator[Step]:
        """Yield one step for the statements that depend on each other, one for each other statement."""
        groups: list[list[ast.stmt]] = []
        for each in (*left, *right):
            linked = [group for group in groups if any(self._depend(other, each) for other in group)]
            merged = [statement for group in linked for statement in group] + [each]
            groups = [group for group in groups if group not in linked] + [merged]
        on_left = set(left)
        mixed = [group for group in groups if 0 < len(on_left & set(group)) < len(group)]
        rewritten = [each for group in mixed for each in group if each not in on_left]
        if rewritten:
            # New statements in the midst of rewritten ones belong to them, so that their order stays.
            places = [right.index(each) for each in rewritten]
            midst = set(right[min(places) : max(places) + 1])
            mixed = [group for group in groups if group in mixed or midst & set(group)]
            merged = [each for group in mixed for each in group]
            groups = [group for group in groups if group not in mixed] + [merged]
        order = {each: number for number, each in enumerate((*left, *right))}
        for group in sorted(groups, key=lambda group: min(order[each] for each in group)):
            members = sorted(group, key=lambda each: order[each])
            lefts = tuple(each for each in members if each in on_left)
            yield Step("replace", lefts, tuple(each for each in members if each not in on_left))

    def _depend(self, x: ast.stmt, y: ast.stmt) -> bool:
        ends = (ast.Return, ast.Raise, ast.Break, ast.Continue)
        if isinstance(x, ends) and isinstance(y, ends):
            return True
        changed_x, changed_y = self._changed(x), self._changed(y)
        uses_x = changed_x | read_names([x])
        uses_y = changed_y | read_names([y])
        return bool((changed_x & uses_y) | (changed_y & uses_x))

    def _changed(self, statement: ast.stmt) -> set[str]:
        """Return the names that a statement binds or may change in place."""
        names = {name for name, _ in names_bound_by([statement])}
        for each in ast.walk(statement):
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                names.add(dotted(each.value.func).split(".")[0])
            elif isinstance(each, (ast.Attribute, ast.Subscript)) and isinstance(each.ctx, ast.Store):
                names.add(dotted(each.value).split(".")[0])
        return names - self._modules - {""}


def _can_unwrap(statement: ast.stmt) -> bool:
    if not isinstance(statement, _AROUND) or getattr(statement, "orelse", None):
        return False
    inside = [each for child in statement.body for each in ast.walk(child)]
    return not any(isinstance(each, (ast.Break, ast.Continue)) for each in inside)


def _find_list(part: list[int], whole: list[int]) -> int | None:
    for start in range(len(whole) - len(part) + 1):
        if whole[start : start + len(part)] == part:
            return start
    return None
