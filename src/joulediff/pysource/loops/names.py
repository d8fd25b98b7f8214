"""Reads the names that statements bind in the scope they stand in, and finds the calls of that scope.

Functions, lambdas and classes inside have scopes of their own. What they evaluate when they are defined, such as
defaults and decorators, belongs to the scope around them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(slots=True)
class Bindings:
    """The names that statements bind, in the order of the source, and those that they declare."""

    bound: dict[str, None] = field(default_factory=dict)
    declared_global: dict[str, None] = field(default_factory=dict)
    declared_nonlocal: dict[str, None] = field(default_factory=dict)


def read_bindings(nodes: Iterable[ast.AST]) -> Bindings:
    """Return the names that nodes bind or declare in the scope they stand in."""
    found = Bindings()
    for node in nodes:
        _read(node, found, in_comprehension=False)
    return found


def _read(node: ast.AST, found: Bindings, *, in_comprehension: bool) -> None:
    if isinstance(node, ast.NamedExpr):
        found.bound[node.target.id] = None  # also in a comprehension it binds in the scope around
    elif isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load) and not in_comprehension:
            found.bound[node.id] = None
    elif isinstance(node, ast.Global):
        found.declared_global.update(dict.fromkeys(node.names))
    elif isinstance(node, ast.Nonlocal):
        found.declared_nonlocal.update(dict.fromkeys(node.names))
    else:
        found.bound.update(dict.fromkeys(_names_of(node)))
    inner = in_comprehension or isinstance(node, Comprehension)
    for child in children_in_scope(node):
        _read(child, found, in_comprehension=inner)


def _names_of(node: ast.AST) -> list[str]:
    """Return the names that a node binds other than by a `Name`."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [each.asname or each.name for each in node.names if each.name != "*"]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        return [node.name]
    if isinstance(node, ast.MatchMapping) and node.rest is not None:
        return [node.rest]
    return []


def read_assigned_first(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements assign before they read them, where the source shows it."""
    found: set[str] = set()
    _find_assigned_first(body, found, mentioned=set())
    return found


def _find_assigned_first(body: Iterable[ast.stmt], found: set[str], mentioned: set[str]) -> None:
    for node in body:
        if isinstance(node, ast.Assign):
            mentioned |= _mentioned_in(node.value)
            _add_targets(node.targets, found, mentioned)
        elif isinstance(node, ast.With):
            for item in node.items:
                mentioned |= _mentioned_in(item.context_expr)
                _add_targets([item.optional_vars] if item.optional_vars is not None else [], found, mentioned)
            _find_assigned_first(node.body, found, mentioned)
        else:
            mentioned |= _mentioned_in(node)


def _add_targets(targets: Iterable[ast.expr], found: set[str], mentioned: set[str]) -> None:
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        found |= {each.id for each in parts if isinstance(each, ast.Name)} - mentioned
        mentioned |= _mentioned_in(target)


def _mentioned_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | set(read_bindings([node]).bound)


def read_changed(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names whose objects statements may change: those with a method called, or an entry set or deleted."""
    found = set()
    for node in (each for statement in body for each in ast.walk(statement)):
        thing = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            thing = node.func.value
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            thing = node.value
        if isinstance(thing, ast.Name):
            found.add(thing.id)
    return found


def children_in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that are evaluated in its own scope."""
    if isinstance(node, Function | ast.ClassDef | ast.Lambda):
        arguments = None if isinstance(node, ast.ClassDef) else node.args
        if not isinstance(node, ast.Lambda):
            yield from node.decorator_list
        if isinstance(node, ast.ClassDef):
            yield from (*node.bases, *(each.value for each in node.keywords))
        if arguments is not None:
            yield from (each for each in (*arguments.defaults, *arguments.kw_defaults) if each is not None)
    else:
        yield from ast.iter_child_nodes(node)


def walk_scope(nodes: Iterable[ast.AST], *, into_loops: bool = True) -> Iterator[ast.AST]:
    """Yield nodes and all below them that are evaluated in the same scope.

    Without `into_loops` the bodies of loops are left out.
    """
    for node in nodes:
        yield node
        below = children_in_scope(node)
        if not into_loops and isinstance(node, Loop):
            below = (each for each in below if each not in node.body)
        yield from walk_scope(below, into_loops=into_loops)


def called_name(call: ast.Call) -> str | None:
    """Return the last part of a called name: `step` of `self.optimizer.step()`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None
