"""Find which edits must be applied together: one uses a name that another one introduces or stops to use.

Moves are found here too: a statement that one edit leaves out and another one adds is one edit.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.pysource.edits.blocks import Draft, Scope, merge_into
from joulediff.pysource.edits.syntax import (
    DEFINITIONS,
    Shapes,
    bound_names,
    dotted,
    names_bound_by,
    read_names,
    set_attributes,
    targets_of,
)

_BUILTINS = set(dir(builtins)) | {"__file__", "__name__", "__doc__"}


def merge_moves(drafts: list[Draft], shapes: Shapes) -> list[Draft]:
    """Return the drafts with both sides of each move in one draft."""
    found = list(drafts)
    for gone in drafts:
        if gone.kind != "left_out" or gone.statement is None or gone not in found:
            continue
        for new in found:
            is_same = new.kind == "added" and new.statement is not None and new.path == gone.path
            if is_same and shapes.of(gone.statement) == shapes.of(new.statement):  # type: ignore[arg-type]
                found.remove(new)
                merge_into(gone, new, "moved")
                break
    for draft in [each for each in found if len(each.nodes_a) == len(each.nodes_b) == 1]:
        other = _moved_value(draft, found, shapes)
        if other is not None:
            found.remove(other)
            merge_into(draft, other, "moved")
    return found


def _moved_value(draft: Draft, drafts: list[Draft], shapes: Shapes) -> Draft | None:
    """Return the draft that gives a name to what this one replaces by that name, or the reverse."""
    for here, there, kind in ((0, 1, "added"), (1, 0, "left_out")):
        nodes = (draft.nodes_a[0], draft.nodes_b[0])
        value, name = nodes[here], nodes[there]
        if not isinstance(name, ast.Name) or draft.kind in ("added", "left_out"):
            continue
        for other in drafts:
            statement = other.statement
            if other.kind != kind or not isinstance(statement, ast.Assign):
                continue
            names = [dotted(each) for each in targets_of(statement)]
            if names == [name.id] and shapes.of(statement.value) == shapes.of(value):
                return other
    return None


@dataclass(frozen=True)
class _Uses:
    """What one draft reads and binds on both sides. Attributes are written `.name`."""

    reads_a: set[str]
    reads_b: set[str]
    binds_a: set[str]
    binds_b: set[str]


def find_needs(drafts: Sequence[Draft], trees: Sequence[ast.AST]) -> list[set[int]]:
    """Return for each draft the indices of those that it needs. `trees` are the files of program a."""
    uses = [_uses_of(draft) for draft in drafts]
    attributes = set_attributes(list(trees))
    bound: dict[ast.AST, dict[str, int]] = {}
    needs: list[set[int]] = [set() for _ in drafts]
    for index, draft in enumerate(drafts):
        for name in uses[index].reads_b - uses[index].binds_b:
            if _is_available(name, draft, bound, attributes):
                continue
            needs[index] |= _providers(name, index, drafts, uses)
        for name in uses[index].binds_a - uses[index].binds_b:
            needs[index] |= _remaining_users(name, index, drafts, uses)
        if draft.signature_of:
            callers = _callers(draft.signature_of, index, drafts)
            needs[index] |= callers
            for caller in callers:
                needs[caller].add(index)
    return needs


def _uses_of(draft: Draft) -> _Uses:
    binds_a = {name for name, _ in names_bound_by(draft.nodes_a)} | set_attributes(draft.nodes_a)
    binds_b = {name for name, _ in names_bound_by(draft.nodes_b)} | set_attributes(draft.nodes_b)
    inner = {name for node in draft.nodes_b for each in ast.walk(node) for name in _inner_names(each)}
    return _Uses(read_names(draft.nodes_a), read_names(draft.nodes_b) - inner, binds_a, binds_b)


def _inner_names(node: ast.AST) -> set[str]:
    is_scope = isinstance(node, (*DEFINITIONS, ast.Lambda))
    return set(bound_names(node)) if is_scope else set()


def _is_available(name: str, draft: Draft, bound: dict[ast.AST, dict[str, int]], attributes: set[str]) -> bool:
    if name.startswith("."):
        return name in attributes
    scope = draft.scope_b or draft.scope
    for each in scope.chain():
        if isinstance(each.node_a, ast.ClassDef) and each is not scope:
            continue
        names = bound.setdefault(each.node_a, bound_names(each.node_a))
        # A name that a binds only below the added statement is not there yet.
        is_later = each is scope and not draft.nodes_a and names.get(name, 0) > draft.end_line
        if name in names and not is_later:
            return True
    return name in _BUILTINS


def _providers(name: str, index: int, drafts: Sequence[Draft], uses: Sequence[_Uses]) -> set[int]:
    scope = drafts[index].scope_b or drafts[index].scope
    chain = [each.node_a for each in scope.chain()]
    found = set()
    for other, draft in enumerate(drafts):
        if other == index or name not in uses[other].binds_b:
            continue
        is_near = name.startswith(".") or (draft.path == drafts[index].path and _scope_of(draft).node_a in chain)
        if is_near:
            found.add(other)
    return found


def _scope_of(draft: Draft) -> Scope:
    return draft.scope_b or draft.scope


def _remaining_users(name: str, index: int, drafts: Sequence[Draft], uses: Sequence[_Uses]) -> set[int]:
    """Return the drafts that stop to read a name, or that bind it elsewhere, if this draft stops to bind it."""
    draft = drafts[index]
    found = set()
    for other, each in enumerate(drafts):
        if other == index:
            continue
        scopes = [scope.node_a for scope in each.scope.chain()]
        is_near = name.startswith(".") or (each.path == draft.path and draft.scope.node_a in scopes)
        stops = name in uses[other].reads_a and name not in uses[other].reads_b
        if is_near and (stops or name in uses[other].binds_b):
            found.add(other)
    return found


def _callers(function: str, index: int, drafts: Sequence[Draft]) -> set[int]:
    found = set()
    for other, draft in enumerate(drafts):
        calls = {draft.call} | {
            dotted(each.func)
            for node in (*draft.nodes_a, *draft.nodes_b)
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
        }
        if other != index and any(call.split(".")[-1] == function for call in calls):
            found.add(other)
    return found
