"""Drafts of edits, before their needs are known, and the scopes that they are in.

A draft keeps the nodes of both programs that it is about. An edit has only their text.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from joulediff.pysource.edits.edit import EditContext, EditKind, Patch
from joulediff.pysource.edits.parsed import shorten
from joulediff.pysource.edits.syntax import FUNCTIONS, Definition


@dataclass
class Scope:
    """A module, class or function that both programs have."""

    name: str
    node_a: ast.AST
    node_b: ast.AST
    parent: Scope | None = None

    def inner(self, a: Definition, b: Definition) -> Scope:
        """Return the scope of a definition in this one."""
        between = ".<locals>." if isinstance(self.node_a, FUNCTIONS) else "."
        name = f"{self.name}{between}{a.name}" if self.name else a.name
        return Scope(name, a, b, self)

    def chain(self) -> list[Scope]:
        """Return this scope and those around it."""
        found, scope = [self], self.parent
        while scope is not None:
            found.append(scope)
            scope = scope.parent
        return found


@dataclass(eq=False)
class Draft:
    """An edit before its needs are known. `scope_b` differs from `scope` for a statement that moves."""

    kind: EditKind
    key: str
    call: str
    value_a: str | None
    value_b: str | None
    line: int
    end_line: int
    line_b: int | None
    scope: Scope
    patches: list[Patch]
    nodes_a: list[ast.AST] = field(default_factory=list)
    nodes_b: list[ast.AST] = field(default_factory=list)
    context: EditContext = ""
    path: str = ""
    path_b: str = ""
    signature_of: str = ""
    statement: ast.AST | None = None
    scope_b: Scope | None = None
    block: list[ast.stmt] | None = None


def merge_drafts(drafts: Sequence[Draft]) -> Draft:
    """Return one draft that makes the changes of all."""
    ordered = sorted(drafts, key=lambda each: each.line)
    first = ordered[0]
    values_a = [each.value_a for each in ordered if each.value_a is not None]
    values_b = [each.value_b for each in ordered if each.value_b is not None]
    for other in ordered[1:]:
        merge_into(first, other, "code")
        first.end_line = max(first.end_line, other.end_line)
    first.value_a = shorten("; ".join(values_a)) if values_a else None
    first.value_b = shorten("; ".join(values_b)) if values_b else None
    return first


def merge_into(draft: Draft, other: Draft, kind: EditKind) -> None:
    """Add the changes of another draft to a draft. A move's new place is that of the other one."""
    draft.kind = kind
    draft.patches += other.patches
    draft.nodes_a += other.nodes_a
    draft.nodes_b += other.nodes_b
    draft.value_a = draft.value_a if draft.value_a is not None else other.value_a
    draft.value_b = draft.value_b if draft.value_b is not None else other.value_b
    draft.line_b = other.line_b if kind == "moved" or draft.line_b is None else draft.line_b
    draft.scope_b = other.scope if kind == "moved" and other.nodes_b else draft.scope_b
