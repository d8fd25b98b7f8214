"""Finds the names of a program that cannot stand for something of a measured library.

A name counts only if every place that binds it, in any scope, says so. A library may still be reached through any
other name: that is decided when the program runs.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_BUILTINS = frozenset(vars(builtins))
_IMPORTS = (ast.Import, ast.ImportFrom)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Their objects have methods of the standard library only; other classes may hold anything as an attribute.
_PLAIN_OBJECTS = frozenset({"argparse.ArgumentParser", "logging.getLogger", "pathlib.Path"})
_WORD = re.compile(r"[^\W\d]\w*")
# Magics that run other code in the namespace of the notebook.
_BINDING_MAGICS = ("%run", "%pylab", "%load", "%macro", "%store")


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names by what they surely are. `callees` are called bare, any attribute below `modules` belongs to other code."""

    callees: frozenset[str]
    modules: frozenset[str]
    """Imported from modules that are not measured, and what is imported from them."""
    objects: frozenset[str]
    """Objects of the standard library, whose methods are its own."""
    builtins: frozenset[str]
    """The builtins that the program does not bind anew."""
    every: frozenset[str]
    """Every identifier in the program."""


@dataclass
class _Bindings:
    """What binds each name: a statement, an alias of an import, or another node."""

    by_name: dict[str, list[ast.AST]] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    """The dotted name of each imported name; of the last import, if there are several."""
    modules: dict[str, set[str]] = field(default_factory=dict)
    """The top-level packages that each name is imported from; "." for a relative import."""
    stars: set[str] = field(default_factory=set)
    """The top-level packages of star imports, which may bind any name."""
    every: set[str] = field(default_factory=set)

    def add(self, name: str, node: ast.AST) -> None:
        self.by_name.setdefault(name, []).append(node)


def find_own_names(
    trees: Sequence[ast.Module], *, other: Collection[str], local: Collection[str] = (), magics: Sequence[str] = ()
) -> OwnNames:
    """Return the names of a program that cannot be of a measured library.

    `other` are the known libraries that are not measured, `local` the modules beside the program, which hide those of
    the standard library. `magics` are texts of a notebook that are not Python, and may bind the words in them.
    """
    bound = _find_bindings(trees)
    for text in magics:
        for word in _WORD.findall(text):
            bound.every.add(word)
            bound.add(word, ast.Pass())
    foreign = (frozenset(sys.stdlib_module_names) | set(other)) - set(local)
    if bound.stars - foreign or any(text.startswith(_BINDING_MAGICS) for text in magics):
        return OwnNames(frozenset(), frozenset(), frozenset(), frozenset(), frozenset(bound.every))
    modules = frozenset(name for name in bound.by_name if _is_foreign(name, bound, foreign))
    free = _BUILTINS - bound.by_name.keys()
    callees = modules | free | _own_definitions(bound, modules | free)
    objects = frozenset(
        name for name, nodes in bound.by_name.items() if all(_is_plain(each, bound, modules) for each in nodes)
    )
    return OwnNames(callees, modules, objects, free, frozenset(bound.every))


def _find_bindings(trees: Iterable[ast.Module]) -> _Bindings:
    found = _Bindings()
    for tree in trees:
        for node in ast.walk(tree):
            for name in _names_in(node):
                found.every.add(name)
            if isinstance(node, _IMPORTS):
                _add_import(node, found)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                found.add(node.targets[0].id, node)
            else:
                for name in _bound_by(node, found):
                    found.add(name, node)
    return found


def _names_in(node: ast.AST) -> Iterator[str]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, str) and name in ("id", "attr", "arg", "name", "asname", "rest", "module"):
            yield from value.split(".")
        elif name == "names" and value and isinstance(value[0], str):  # of `global` and `nonlocal`
            yield from value


def _bound_by(node: ast.AST, found: _Bindings) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        assigned = found.by_name.get(node.id, [])
        if not any(isinstance(each, ast.Assign) and each.targets[0] is node for each in assigned):
            yield node.id
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest


def _add_import(node: ast.Import | ast.ImportFrom, found: _Bindings) -> None:
    base = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
    for alias in node.names:
        dotted = f"{base}.{alias.name}" if base else alias.name
        package = "." if base.startswith(".") else dotted.partition(".")[0]
        if alias.name == "*":
            found.stars.add(package)
            continue
        name = alias.asname or (alias.name if base else package)
        found.add(name, alias)
        found.imported[name] = dotted if alias.asname or base else name
        found.modules.setdefault(name, set()).add(package)


def _is_foreign(name: str, bound: _Bindings, foreign: Collection[str]) -> bool:
    only_imports = all(isinstance(each, ast.alias) for each in bound.by_name[name])
    return only_imports and bound.modules[name] <= set(foreign)


def _own_definitions(bound: _Bindings, others: Collection[str]) -> frozenset[str]:
    """Return the functions and classes that the program defines and never binds to anything else."""
    found: set[str] = set()
    before = -1
    while len(found) > before:  # a class may derive from one that is found later
        before = len(found)
        known = found | set(others)
        found |= {name for name, nodes in bound.by_name.items() if all(_is_own(each, known) for each in nodes)}
    return frozenset(found)


def _is_own(node: ast.AST, known: Collection[str]) -> bool:
    """Return whether a binding defines something of the program: a decorator may return anything, a base too."""
    if isinstance(node, _FUNCTIONS):
        return not node.decorator_list
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
        return False
    return all((root := root_of(base)) is not None and root in known for base in node.bases)


def _is_plain(node: ast.AST, bound: _Bindings, modules: Collection[str]) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    root = root_of(node.value.func)
    return root in modules and _dotted(node.value.func, bound.imported) in _PLAIN_OBJECTS


def root_of(node: ast.expr) -> str | None:
    """Return the name that a chain of attributes begins with; None for another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _dotted(node: ast.expr, imported: Mapping[str, str]) -> str:
    name = ast.unparse(node)
    root, dot, rest = name.partition(".")
    return f"{imported.get(root, root)}{dot}{rest}"
