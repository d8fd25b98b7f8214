"""Reads syntax trees: equal nodes, names that are read and bound, blocks, dotted names.

Documentation strings, annotations of parameters and the order of keyword arguments do not count as differences.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
_BLOCK_FIELDS = ("body", "orelse", "finalbody")
_IGNORED = frozenset({"ctx", "type_comment", "kind", "type_ignores", "annotation", "returns"})


class Shapes:
    """Numbers nodes: two nodes have the same number if they are equal."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[ast.AST, int] = {}

    def of(self, node: ast.AST) -> int:
        """Return the number of a node."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._number((type(node), *self._parts(node)))
        return known

    def of_all(self, nodes: list[ast.stmt]) -> list[int]:
        """Return the numbers of statements."""
        return [self.of(node) for node in nodes]

    def _parts(self, node: ast.AST) -> Iterator[object]:
        if isinstance(node, ast.Constant):
            # 1, 1.0 and True are equal values of different types.
            yield type(node.value)
            yield repr(node.value)
            return
        for name, value in ast.iter_fields(node):
            is_annotation = name == "annotation" and isinstance(node, ast.AnnAssign)
            if name in _IGNORED and not is_annotation:
                continue
            if name == "body" and isinstance(value, list):
                yield tuple(self.of(each) for each in body_of(node))
            elif name == "keywords" and all(each.arg for each in value):
                yield tuple(sorted(self.of(each) for each in value))
            elif isinstance(value, list):
                yield tuple(self.of(each) if isinstance(each, ast.AST) else each for each in value)
            else:
                yield self.of(value) if isinstance(value, ast.AST) else value

    def _number(self, parts: tuple[object, ...]) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))


def body_of(node: ast.AST) -> list[ast.stmt]:
    """Return the statements of a body, without its documentation string."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return body[1:] if has_docstring(node) else body


def has_docstring(node: ast.AST) -> bool:
    """Return whether a body starts with a documentation string."""
    body = getattr(node, "body", None)
    if not isinstance(node, (*DEFINITIONS, ast.Module)) or not body:
        return False
    return is_text(body[0])


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is nothing but a string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def blocks_of(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements below a node, from the outside in."""
    for name in _BLOCK_FIELDS:
        block = getattr(tree, name, None)
        if isinstance(block, list) and block:
            yield block
            for statement in block:
                yield from blocks_of(statement)
    for name in ("handlers", "cases"):
        for part in getattr(tree, name, ()):
            yield from blocks_of(part)


def dotted(node: ast.AST | None) -> str:
    """Return the dotted name of a function or value; calls within it are written `f()`. "" if it has none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        return f"{name}()" if name else ""
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    return ""


def called(node: ast.AST | None) -> str:
    """Return the dotted name of the function that an expression or statement calls; "" if it is no call."""
    if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Await)):
        return called(node.value)
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def target_name(node: ast.AST) -> str:
    """Return the name that an assignment's target goes by: of a variable, an attribute or a key."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value
        return target_name(node.value)
    if isinstance(node, (ast.Tuple, ast.List)):
        return ", ".join(filter(None, map(target_name, node.elts)))
    if isinstance(node, ast.Starred):
        return target_name(node.value)
    return ""


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """Return the targets of an assignment."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        return [statement.target]
    return []


def labels_of(node: ast.AST) -> Counter[str]:
    """Return the words of a node: kinds of nodes, names and constants."""
    found: Counter[str] = Counter()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found[each.id] += 1
        elif isinstance(each, ast.Attribute):
            found["." + each.attr] += 1
        elif isinstance(each, ast.Constant):
            found[repr(each.value)] += 1
        elif isinstance(each, ast.keyword):
            found[f"{each.arg}="] += 1
        elif isinstance(each, ast.arg):
            found[each.arg] += 1
        elif isinstance(each, (ast.stmt, ast.expr, ast.operator)) and not isinstance(each, ast.Expr):
            found[type(each).__name__] += 1
    return found


def likeness(first: Counter[str], second: Counter[str]) -> float:
    """Return the share of words that two nodes have in common, 0 to 1."""
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope: all below a node, without the insides of functions, classes and lambdas in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, (*DEFINITIONS, ast.Lambda)):
            continue
        yield from own_nodes(child)


def bound_lines(scope: ast.AST) -> dict[str, list[int]]:
    """Return the names that a function, class or module binds, and the lines that do; 0 for a parameter."""
    found: dict[str, list[int]] = {}
    arguments = getattr(scope, "args", None)
    if isinstance(arguments, ast.arguments):
        found = {each.arg: [0] for each in parameters(arguments)}
    for name, line in names_bound_by(list(ast.iter_child_nodes(scope))):
        found.setdefault(name, []).append(line)
    return found


def names_bound_by(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that nodes bind in their own scope, with the line."""
    for node in nodes:
        yield from _bound_by_node(node)
        if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            for child in own_nodes(node):
                yield from _bound_by_node(child)


def _bound_by_node(node: ast.AST) -> Iterator[tuple[str, int]]:
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id, line
    elif isinstance(node, DEFINITIONS):
        yield node.name, line
    elif isinstance(node, IMPORTS):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0], line
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name, line


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function."""
    stars = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]


def read_names(nodes: list[ast.AST]) -> set[str]:
    """Return the names that nodes read, also inside functions in them. Attributes are written `.name`."""
    found = set()
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store):
                found.add(each.id)
            elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
                found.add("." + each.attr)
            elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
    return found


def set_attributes(nodes: list[ast.AST]) -> set[str]:
    """Return the attributes that nodes set, and the methods that they define, written `.name`."""
    found = set()
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                found.add("." + each.attr)
            elif isinstance(each, FUNCTIONS):
                found.add("." + each.name)
    return found


def holds_value(statement: ast.stmt, tree: ast.AST) -> bool:
    """Return whether other code uses the value of a statement, or the statement controls other code."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, (ast.Yield, ast.YieldFrom))
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return True
    return any(holds_name(target, tree) for target in targets_of(statement))


def holds_name(target: ast.expr | None, tree: ast.AST) -> bool:
    """Return whether other code may read a target: a name that is read, or anything else than a name."""
    return target is not None and (not isinstance(target, ast.Name) or target.id in read_names([tree]))
