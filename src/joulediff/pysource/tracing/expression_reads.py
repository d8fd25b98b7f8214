"""Finds the names, dotted chains, environment variables and flag functions that an expression reads.

A chain such as `self.config.use_cache` is one read: its last link is the setting, the others only lead to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

_ENVIRONMENT = ("os.environ", "environ")
_ENVIRONMENT_READS = ("os.getenv", "getenv", "os.environ.get", "environ.get")
_BY_NAME = ("getattr", "hasattr")


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain: an attribute, or an item with a literal key."""

    name: str | int
    item: bool = False


@dataclass(frozen=True, slots=True)
class Atom:
    """One name, chain, variable or call that is read. `text` is its source; the first link is a name."""

    kind: Literal["chain", "call", "environment"]
    text: str
    links: tuple[Link, ...] = ()
    callee: bool = False


def atoms_of(expressions: Iterable[ast.expr]) -> tuple[Atom, ...]:
    """Return the reads of expressions, each once: called functions first, then in the order of the source."""
    found: dict[str, Atom] = {}
    for expression in expressions:
        for atom in _visit(expression, frozenset()):
            known = found.setdefault(atom.text, atom)
            if atom.callee and not known.callee:
                found[atom.text] = replace(known, callee=True)
    return tuple(sorted(found.values(), key=lambda atom: not atom.callee))


def _visit(node: ast.AST, bound: frozenset[str]) -> Iterator[Atom]:
    if isinstance(node, ast.Call):
        yield from _visit_call(node, bound)
    elif isinstance(node, ast.Compare) and _has_environment(node):
        yield Atom("environment", str(node.left.value))  # type: ignore[attr-defined]
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        yield from _visit_chain(node, bound)
    else:
        inner = bound | _bound_inside(node)
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, inner)


def _visit_call(node: ast.Call, bound: frozenset[str]) -> Iterator[Atom]:
    links, name = _links(node.func), ast.unparse(node.func)
    key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    if name in _ENVIRONMENT_READS and isinstance(key, str):
        yield Atom("environment", key)
        return
    if links and links[0].name not in bound:
        if not node.args and not node.keywords:
            yield Atom("call", f"{name}()", links)
        yield Atom("chain", name, links, callee=True)
        if len(links) > 1:
            yield from _visit(node.func.value, bound)  # type: ignore[attr-defined]
    elif not isinstance(node.func, ast.Name):
        yield from _visit(node.func, bound)
    if name in _BY_NAME and (by_name := _read_by_name(node)) is not None and by_name.links[0].name not in bound:
        yield by_name
    for child in (*node.args, *(each.value for each in node.keywords)):
        yield from _visit(child, bound)


def _read_by_name(node: ast.Call) -> Atom | None:
    """Return `getattr(config, "x", None)` as `config.x`."""
    if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant) or not isinstance(node.args[1].value, str):
        return None
    links, name = _links(node.args[0]), node.args[1].value
    return Atom("chain", f"{ast.unparse(node.args[0])}.{name}", (*links, Link(name))) if links else None


def _visit_chain(node: ast.Name | ast.Attribute | ast.Subscript, bound: frozenset[str]) -> Iterator[Atom]:
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in _ENVIRONMENT:
        if isinstance(node.slice, ast.Constant):
            yield Atom("environment", str(node.slice.value))
        return
    links = _links(node)
    if not links:
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, bound)
    elif links[0].name not in bound and isinstance(node.ctx, ast.Load):
        yield Atom("chain", ast.unparse(node), links)


def _links(node: ast.AST) -> tuple[Link, ...]:
    """Return the links of a chain that begins with a name; an empty tuple for any other expression."""
    match node:
        case ast.Name(id=name):
            return (Link(name),)
        case ast.Attribute(value=inner, attr=name):
            before = _links(inner)
            return (*before, Link(name)) if before else ()
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)) if isinstance(key, str | int):
            before = _links(inner)
            return (*before, Link(key, item=True)) if before else ()
    return ()


def _has_environment(node: ast.Compare) -> bool:
    asked = isinstance(node.ops[0], ast.In | ast.NotIn) and ast.unparse(node.comparators[0]) in _ENVIRONMENT
    return asked and isinstance(node.left, ast.Constant)


def _bound_inside(node: ast.AST) -> frozenset[str]:
    """Return the names that a comprehension or a lambda defines."""
    if isinstance(node, ast.Lambda):
        return frozenset(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
    generators = getattr(node, "generators", [])
    targets = [name for each in generators for name in ast.walk(each.target) if isinstance(name, ast.Name)]
    return frozenset(name.id for name in targets)
