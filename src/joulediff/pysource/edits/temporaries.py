"""Give the second program the temporary variables of the first one.

`y = f(x); return y` and `return f(x)` do the same work. Lines keep their numbers, so places in b stay right.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from joulediff.pysource.edits.parsed import Parsed
from joulediff.pysource.edits.renames import identifiers, paired_scopes, replace_spans
from joulediff.pysource.edits.syntax import FUNCTIONS, blocks_of, labels_of, likeness

# Each change parses the file again.
_MOST_CHANGES = 20
_LIKE = 0.5
# Nodes whose parts are evaluated another number of times, or in a scope of their own.
_APART = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.JoinedStr)


def match_temporaries(a: Parsed, b: Parsed, ignored_a: set[str]) -> Parsed:
    """Return b without the temporary variables that a lacks, and with those that only a has."""
    for _ in range(_MOST_CHANGES):
        changed = _change_one(a, b, ignored_a)
        if changed is None:
            return b
        b = changed
    return b


def _change_one(a: Parsed, b: Parsed, ignored_a: set[str]) -> Parsed | None:
    for scope_a, scope_b in paired_scopes(a, b, ignored_a):
        if isinstance(scope_a, ast.Module):
            continue
        used_a, used_b = identifiers(scope_a), identifiers(scope_b)
        for first, user, name in _temporaries(scope_b):
            # Past other statements, the value might be another one.
            is_next = user.lineno - first.lineno == 1 and first.lineno == first.end_lineno
            if name.id not in used_a and is_next and first not in _new_code(scope_b, used_a):
                changed = _inline(b, first, name)
                if changed is not None:
                    return changed
        for first, user, name in _temporaries(scope_a):
            if name.id not in used_b:
                changed = _outline(b, first, user, name, scope_b)
                if changed is not None:
                    return changed
    return None


def _new_code(scope: ast.AST, known: set[str]) -> set[ast.AST]:
    """Return the nodes of the functions in a scope that the other program does not have."""
    functions = [each for each in ast.walk(scope) if isinstance(each, FUNCTIONS) and each is not scope]
    return {inside for each in functions if each.name not in known for inside in ast.walk(each)}


def _temporaries(scope: ast.AST) -> Iterator[tuple[ast.Assign, ast.stmt, ast.Name]]:
    """Yield assignments to a variable that is read once, by a statement behind it, with that statement and the name."""
    counts = Counter(each.id for each in ast.walk(scope) if isinstance(each, ast.Name))
    for block in blocks_of(scope):
        for index, first in enumerate(block):
            if not isinstance(first, ast.Assign) or len(first.targets) != 1:
                continue
            target = first.targets[0]
            if not isinstance(target, ast.Name) or counts[target.id] != 2:
                continue
            for user in block[index + 1 :]:
                paths = [] if hasattr(user, "body") else _paths(user)
                names = [path[-1] for path in paths if isinstance(path[-1], ast.Name)]
                yield from ((first, user, name) for name in names if name.id == target.id)


def _paths(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, ...]]:
    """Yield each node that is evaluated once with its statement, after the nodes around it."""
    path = (*above, node)
    yield path
    if not isinstance(node, _APART):
        for child in ast.iter_child_nodes(node):
            yield from _paths(child, path)


def _inline(b: Parsed, first: ast.Assign, name: ast.Name) -> Parsed | None:
    value = f"({b.text_of(first.value)})"
    if isinstance(first.value, (ast.Yield, ast.YieldFrom, ast.Await)):
        return None
    return replace_spans(b, {b.start(first): (b.end(first), "pass"), b.start(name): (b.end(name), value)})


def _outline(b: Parsed, first: ast.Assign, second: ast.stmt, name: ast.Name, scope_b: ast.AST) -> Parsed | None:
    """Give a value of b the name that it has in a, if a statement of b is like that of a without the name."""
    whole = labels_of(_Inlined(name.id, first.value).visit(copy.deepcopy(second)))
    best: tuple[float, ast.stmt, ast.expr] | None = None
    for block in blocks_of(scope_b):
        for statement in block:
            if type(statement) is not type(second) or hasattr(statement, "body"):
                continue
            score = likeness(whole, labels_of(statement))
            value = _same_place(second, statement, name)
            if value is None or score < _LIKE or likeness(labels_of(first.value), labels_of(value)) < _LIKE:
                continue
            if best is None or score > best[0]:
                best = (score, statement, value)
    if best is None:
        return None
    _, statement, chosen = best
    text = b.text_of(chosen)
    if "\n" in text or b.indent(statement) is None:
        return None
    start = b.start(statement)
    if b.start(chosen) == start:
        return replace_spans(b, {start: (b.end(chosen), f"{name.id} = {text}; {name.id}")})
    return replace_spans(b, {start: (start, f"{name.id} = {text}; "), b.start(chosen): (b.end(chosen), name.id)})


class _Inlined(ast.NodeTransformer):
    """Puts a value in the place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self._name = name
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._value if node.id == self._name else node


def _same_place(x: ast.AST, y: ast.AST, name: ast.Name) -> ast.expr | None:
    """Return the value in `y` at the place of a name in `x`; None if the nodes around it differ in kind."""
    for path in _paths(x):
        if path[-1] is not name:
            continue
        here: ast.AST = y
        for node, child in pairwise(path):
            if type(node) is not type(here) or isinstance(here, _APART):
                return None
            found = _child_at(node, child, here)
            if found is None:
                return None
            here = found
        is_value = isinstance(here, ast.expr) and not isinstance(here, (ast.Name, ast.Constant, ast.Starred))
        return here if is_value and isinstance(here, ast.expr) else None
    return None


def _child_at(node: ast.AST, child: ast.AST, other: ast.AST) -> ast.AST | None:
    """Return the part of `other` that is where `child` is in `node`."""
    for (_, value), (_, twin) in zip(ast.iter_fields(node), ast.iter_fields(other), strict=True):
        if value is child:
            return twin if isinstance(twin, ast.AST) else None
        if isinstance(value, list) and child in value:
            index = value.index(child)
            return twin[index] if index < len(twin) else None
    return None
