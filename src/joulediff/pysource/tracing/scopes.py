"""Scopes in which names are evaluated: a running frame, or a method that returned after setting an attribute.

A scope keeps a frame and all its variables alive: use it for one evaluation and drop it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.tracing.expression_reads import Atom, Link
from joulediff.pysource.tracing.statements import FunctionNode, Statement

MISSING = object()
CONFIG = re.compile(r"(.*_)?(config|cfg|configuration)|hparams|args")
# Enough for a function deep in a model, with the wrappers of two libraries around each module.
MAX_FRAMES = 60

RECEIVERS = ("self", "cls")


@dataclass(frozen=True)
class FrameScope:
    """A running frame. `level` is its distance from the traced frame; `bound` has the names that that frame set."""

    frame: FrameType
    level: int
    bound: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int, int]:
        """Return a key that is unique among the scopes of one trace."""
        return (self.level, id(self.frame.f_code), self.frame.f_lasti if self.level else 0)

    @property
    def file(self) -> str:
        """Return the real path of the file."""
        return self.frame.f_code.co_filename

    @property
    def line(self) -> int:
        """Return the line that runs."""
        return self.frame.f_lineno or self.frame.f_code.co_firstlineno

    @property
    def function(self) -> str:
        """Return the function as call paths name it."""
        return function_name(self.frame.f_code)

    def read(self, name: str) -> Any:
        """Return the value of a name, `MISSING` where it has none."""
        local = self.frame.f_locals
        return local[name] if name in local else self.frame.f_globals.get(name, MISSING)

    def is_local(self, name: str) -> bool:
        """Return whether a name is the function's own rather than its module's."""
        return name in self.frame.f_locals and self.frame.f_locals is not self.frame.f_globals

    def is_receiver(self, name: str) -> bool:
        """Return whether a name is the object whose method this is."""
        code = self.frame.f_code
        return name in RECEIVERS and name in code.co_varnames[: code.co_argcount]


@dataclass(frozen=True)
class MethodScope:
    """A method of `owner` that has returned: its arguments are known as far as the owner stored them."""

    owner: Any
    node: FunctionNode
    statement: Statement
    file: str
    module: str
    function: str
    frame: FrameType
    """The traced frame: its callers may have the configuration that the owner did not store."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Return a key that is unique among the scopes of one trace."""
        return (-1, id(self.owner), self.statement.first)

    @property
    def line(self) -> int:
        """Return the line of the assignment."""
        return self.statement.first

    def read(self, name: str) -> Any:
        """Return the value of a name, `MISSING` if it is no longer known."""
        names = [each.arg for each in (*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs)]
        if names and name == names[0]:
            return self.owner
        if name not in names:
            return MISSING if self._sets(name) else _attribute(sys.modules.get(self.module), name)
        kept = _attribute(self.owner, name)
        if kept is MISSING and CONFIG.fullmatch(name):
            return next(_configs(self.frame, name), MISSING)
        return kept

    def _sets(self, name: str) -> bool:
        stored = (
            each for each in ast.walk(self.node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )
        return any(each.id == name for each in stored)

    def is_local(self, name: str) -> bool:
        """Return whether a name is the method's own rather than its module's."""
        return self.read(name) is self.owner or name in {
            each.arg for each in ast.walk(self.node.args) if isinstance(each, ast.arg)
        }

    def is_receiver(self, name: str) -> bool:
        """Return whether a name is the object whose method this is."""
        return self.read(name) is self.owner


Scope = FrameScope | MethodScope


def _attribute(thing: Any, name: str) -> Any:
    with suppress(Exception):  # a property of the program's own may raise anything
        return getattr(thing, name, MISSING)
    return MISSING


def _configs(frame: FrameType, name: str) -> Iterator[Any]:
    """Yield the values of a configuration's name in the callers, innermost first, and in their objects."""
    at: FrameType | None = frame
    for _ in range(MAX_FRAMES):
        if at is None or is_ours(at.f_code.co_filename):
            return
        if at is not frame and name in at.f_locals:
            yield at.f_locals[name]
        owner = at.f_locals.get("self", MISSING)
        if owner is not MISSING and (found := _attribute(owner, name)) is not MISSING:
            yield found
        at = at.f_back


def function_name(code: CodeType) -> str:
    """Return a function as call paths name it."""
    return str(getattr(code, "co_qualname", code.co_name))  # from Python 3.11


def evaluate(links: tuple[Link, ...], scope: Scope) -> list[Any]:
    """Return the objects along a chain, one for each link; an empty list if one is missing."""
    found = [scope.read(str(links[0].name))]
    for link in links[1:]:
        found.append(_item(found[-1], link.name) if link.item else _attribute(found[-1], str(link.name)))
    return [] if any(each is MISSING for each in found) else found


def _item(thing: Any, key: str | int) -> Any:
    """Return an item of a plain container; `[]` of any other class could run code of the program."""
    with suppress(KeyError, IndexError, TypeError):
        return thing[key] if type(thing) in (dict, list, tuple) else MISSING
    return MISSING


def ask(atom: Atom, scope: Scope, is_predicate: Callable[[str, Any], bool]) -> Any:
    """Return the result of a predicate of a framework; `MISSING` for any other function, which is never called."""
    found = evaluate(atom.links, scope)
    if not found:
        return MISSING
    function = found[-1]
    is_plain = not inspect.ismethod(function) and not isinstance(function, type)
    if not is_plain or not is_predicate(str(atom.links[-1].name), function):
        return MISSING
    if len(found) > 1 and not inspect.ismodule(found[-2]):
        return MISSING
    with suppress(Exception):  # a flag of a device that this machine lacks
        return function()
    return MISSING
