"""Find which edits must be applied together: one uses a name that another one introduces or stops to use.

Moves are found here too: a statement that one edit leaves out and another one adds is one edit.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulediff.pysource.edits.draft import Draft, Scope, merge_drafts, merge_into
from joulediff.pysource.edits.naming import name_rewritten, name_statement
from joulediff.pysource.edits.syntax import (
    DEFINITIONS,
    FUNCTIONS,
    Shapes,
    bound_lines,
    dotted,
    labels_of,
    likeness,
    names_bound_by,
    read_names,
    set_attributes,
    targets_of,
)

# Half of the words in common: another version of the same value.
_LIKE = 0.5
_STRUCTURAL = ("call", "code", "left_out", "added")
# From this many changes that depend on each other, a part of a function is rewritten.
_REWRITTEN_EDITS = 3
_BUILTINS = set(dir(builtins)) | {"__file__", "__name__", "__doc__"}


def merge_moves(drafts: list[Draft], shapes: Shapes) -> list[Draft]:
    """Return the drafts with both sides of each move in one draft."""
    found = list(drafts)
    for gone in drafts:
        if gone.kind != "left_out" or not _shapes_of(gone.nodes_a, shapes):
            continue
        for new in found:
            if _is_moved(gone, new, shapes):
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


def _is_moved(gone: Draft, new: Draft, shapes: Shapes) -> bool:
    """Return whether a draft adds what another one leaves out: the same statements, or another version of one."""
    if new.kind != "added" or new.path != gone.path:
        return False
    if _shapes_of(gone.nodes_a, shapes) == _shapes_of(new.nodes_b, shapes):
        return True
    one, other = gone.statement, new.statement
    if not isinstance(one, ast.Assign) or not isinstance(other, ast.Assign) or gone.block is new.block:
        return False
    are_same = [shapes.of(each) for each in one.targets] == [shapes.of(each) for each in other.targets]
    return are_same and likeness(labels_of(one.value), labels_of(other.value)) >= _LIKE


def merge_rewritten(drafts: list[Draft], modules: set[str]) -> list[Draft]:
    """Return the drafts with one for each part of a function in which most statements depend on changed ones."""
    scopes: dict[ast.AST, list[Draft]] = defaultdict(list)
    for draft in drafts:
        if isinstance(draft.scope.node_a, FUNCTIONS) and draft.scope_b is None and draft.kind != "support":
            scopes[draft.scope.node_a].append(draft)
    found = list(drafts)
    for group in scopes.values():
        uses = {id(draft): _uses_of(draft) for draft in group}
        for part in _linked([each for each in group if each.kind in _STRUCTURAL], uses):
            if len(part) < _REWRITTEN_EDITS or len({each.kind for each in part} & {"left_out", "added", "code"}) < 2:
                continue
            first, last = min(each.line for each in part), max(each.end_line for each in part)
            whole = [each for each in group if first <= each.line and each.end_line <= last]
            found = [each for each in found if all(each is not one for one in whole)]
            merged = merge_drafts(whole)
            merged.key = name_rewritten(merged.nodes_a, merged.nodes_b, modules) or merged.key
            found.append(merged)
    return found


def _linked(drafts: list[Draft], uses: Mapping[int, _Uses]) -> list[list[Draft]]:
    """Return the drafts in groups that bind the same names or read names that others of the group bind anew."""
    groups: list[list[Draft]] = []
    for draft in drafts:
        mine = uses[id(draft)]
        near = []
        for group in groups:
            for other in group:
                theirs = uses[id(other)]
                rebound = (mine.binds_a & theirs.binds_b) | (mine.binds_b & theirs.binds_a)
                read = (mine.binds_b & theirs.reads_b) | (mine.reads_b & theirs.binds_b)
                if rebound or read:
                    near.append(group)
                    break
        merged = [each for group in near for each in group] + [draft]
        groups = [group for group in groups if all(group is not one for one in near)] + [merged]
    return groups


def mark_support(drafts: Sequence[Draft], needs: Sequence[set[int]]) -> None:
    """Mark drafts that change nothing alone: variables that only b has, and preparations for work that is left out."""
    needed = {index for need in needs for index in need}
    for index, draft in enumerate(drafts):
        statements = [each for each in (*draft.nodes_a, *draft.nodes_b) if isinstance(each, ast.stmt)]
        targets = [target for each in statements for target in targets_of(each)]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if not targets or len(targets) < len(statements) or len(names) < len(targets):
            continue
        is_new = not names & set(bound_lines(_scope_of(draft).node_a))
        if draft.kind == "added" and index in needed and is_new:
            draft.kind = "support"
        elif draft.kind == "left_out" and needs[index]:
            users = [drafts[other].scope for other in needs[index]]
            if all(scope.node_a is not draft.scope.node_a for scope in users):
                draft.kind = "support"


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
