"""Find which edits must be applied together: one uses a name that another one introduces or stops to use.

Moves are found here too: a statement that one edit leaves out and another one adds is one edit.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.pysource.edits.blocks import Draft, Scope, merge_into, name_statement
from joulediff.pysource.edits.syntax import (
    DEFINITIONS,
    Shapes,
    bound_lines,
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
        statements = _shapes_of(gone.nodes_a, shapes)
        if gone.kind != "left_out" or not statements:
            continue
        for new in found:
            is_new = new.kind == "added" and new.path == gone.path
            if is_new and statements == _shapes_of(new.nodes_b, shapes):
                found.remove(new)
                merge_into(gone, new, "moved")
                break
    for draft in [each for each in found if len(each.nodes_a) == len(each.nodes_b) == 1]:
        other = _moved_value(draft, found, shapes)
        if other is not None and other.statement is not None:
            found.remove(other)
            # In one block, a value only gets a name.
            merge_into(draft, other, "support" if draft.block is other.block else "moved")
        elif other is not None:
            # The value gets a name so that the statements after it can change it.
            found.remove(draft)
            merge_into(other, draft, other.kind)
            other.key, other.call = name_statement((other.nodes_b if other.kind == "added" else other.nodes_a)[1])
    return found


def _shapes_of(nodes: Sequence[ast.AST], shapes: Shapes) -> list[int]:
    """Return the numbers of statements; none if one of the nodes is no statement."""
    are_statements = all(isinstance(node, ast.stmt) for node in nodes)
    return [shapes.of(node) for node in nodes] if are_statements else []


def _moved_value(draft: Draft, drafts: list[Draft], shapes: Shapes) -> Draft | None:
    """Return the draft that gives a name to what this one replaces by that name, or the reverse."""
    for here, there, kind in ((0, 1, "added"), (1, 0, "left_out")):
        nodes = (draft.nodes_a[0], draft.nodes_b[0])
        value, name = nodes[here], nodes[there]
        if not isinstance(name, ast.Name) or draft.kind in ("added", "left_out"):
            continue
        for other in drafts:
            statement = next(iter(other.nodes_b if kind == "added" else other.nodes_a), None)
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
    has_new_attributes = any(name.startswith(".") for use in uses for name in use.binds_b)
    attributes = set_attributes(list(trees)) if has_new_attributes else set()
    # A definition that a has and does not use may be another one than that of b.
    support = [use for draft, use in zip(drafts, uses, strict=True) if draft.kind == "support"]
    replaced = {name for use in support for name in use.binds_a}
    bound: dict[ast.AST, dict[str, list[int]]] = {}
    needs: list[set[int]] = [set() for _ in drafts]
    for index, draft in enumerate(drafts):
        for name in uses[index].reads_b - uses[index].binds_b:
            if _is_available(name, draft, uses[index], bound, attributes) and name not in replaced:
                continue
            needs[index] |= _providers(name, index, drafts, uses)
        # A name that a function begins to bind can no longer be read from outside of it.
        local = uses[index].binds_b - set(_bound_in(_scope_of(draft).node_a, bound))
        for name in (uses[index].binds_a - uses[index].binds_b) | local:
            needs[index] |= _readers_that_stop(name, index, drafts, uses)
        for name in uses[index].binds_a - uses[index].binds_b:
            needs[index] |= _other_binders(name, index, drafts, uses)
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
    return set(bound_lines(node)) if is_scope else set()


def _is_available(
    name: str, draft: Draft, uses: _Uses, bound: dict[ast.AST, dict[str, list[int]]], attributes: set[str]
) -> bool:
    """Return whether program a has a name where the new text of a draft reads it."""
    if name.startswith("."):
        return name in attributes
    scope = draft.scope_b or draft.scope
    for each in scope.chain():
        if isinstance(each.node_a, ast.ClassDef) and each is not scope:
            continue
        lines = _bound_in(each.node_a, bound).get(name, [])
        if name in uses.binds_a:
            lines = [line for line in lines if not draft.line <= line <= draft.end_line]
        if each is scope and not draft.nodes_a:
            # A name that a binds only below the added statement is not there yet.
            lines = [line for line in lines if line <= draft.end_line]
        if lines:
            return True
    return name in _BUILTINS


def _bound_in(scope: ast.AST, known: dict[ast.AST, dict[str, list[int]]]) -> dict[str, list[int]]:
    if scope not in known:
        known[scope] = bound_lines(scope)
    return known[scope]


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


def _readers_that_stop(name: str, index: int, drafts: Sequence[Draft], uses: Sequence[_Uses]) -> set[int]:
    """Return the drafts whose old text reads a name, and whose new text does not, in the scope of a draft."""
    found = set()
    for other, draft in enumerate(drafts):
        is_here = name.startswith(".") or _is_within(draft.scope, drafts[index].scope)
        if other != index and is_here and name in uses[other].reads_a and name not in uses[other].reads_b:
            found.add(other)
    return found


def _other_binders(name: str, index: int, drafts: Sequence[Draft], uses: Sequence[_Uses]) -> set[int]:
    """Return the drafts whose new text binds a name, in the scope of a draft or one around it."""
    found = set()
    for other, draft in enumerate(drafts):
        scope = _scope_of(draft)
        is_near = _is_within(scope, drafts[index].scope) or _is_within(drafts[index].scope, scope)
        if other != index and (is_near or name.startswith(".")) and name in uses[other].binds_b:
            found.add(other)
    return found


def _is_within(scope: Scope, other: Scope) -> bool:
    """Return whether a scope is another one or inside of it."""
    return any(each.node_a is other.node_a for each in scope.chain())


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
