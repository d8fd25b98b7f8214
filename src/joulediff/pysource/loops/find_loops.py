"""Finds the loops of a script, and those among them whose body may be the step.

A body that cannot be made a function is found too, with the reason, so that an error can name its line.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from joulediff.pysource.loops.marks import step, steps
from joulediff.pysource.loops.names import (
    Function,
    Loop,
    called_name,
    read_assigned_first,
    read_bindings,
    read_changed,
    walk_scope,
)

Kind = Literal["loop", "marked loop", "marked block"]
"""A `for` or `while` loop, one with `jd.steps()` in its head, or the body of `with jd.step()`."""

# These read or change the local variables of the function that calls them, by name; given as the most arguments with
# which they do.
_READS_LOCALS = {"locals": 0, "vars": 0, "dir": 0, "eval": 1, "exec": 1}
_BUILTINS = frozenset(dir(builtins))
_MARKS = {step.__name__, steps.__name__}
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the body of a loop cannot be repeated, and the line that is the reason."""

    line: int
    why: str
    fix: str


@dataclass(frozen=True, eq=False)
class FoundLoop:
    """One loop of a script, or one marked block."""

    number: int
    node: ast.For | ast.While | ast.AsyncFor | ast.With | ast.AsyncWith
    kind: Kind
    functions: tuple[Function, ...]
    """The functions around it, outermost first."""
    path: tuple[str, ...]
    """The names of functions and classes around it."""
    in_class: bool
    """Whether it stands in the body of a class."""
    text: str
    """The first line of its source."""
    bound: tuple[str, ...]
    """The names that its body binds."""
    continued: tuple[str, ...]
    """Those of `bound` whose value from the iteration before may be used."""
    batch: tuple[str, ...]
    """The names that the head of the loop binds, or of the loop around a block, whose objects the body may change."""
    item: int = 0
    """The place of the mark among the items of a marked block."""

    @property
    def line(self) -> int:
        """Return the line of its head."""
        return self.node.lineno

    @property
    def place(self) -> str:
        """Return the function that it stands in."""
        return ".".join(self.path) or "<module>"

    @cached_property
    def refusal(self) -> Refusal | None:
        """Why its body cannot be repeated; None if it can."""
        return next(_find_refusals(self), None)

    def holds(self, line: int) -> bool:
        """Return whether a line belongs to it."""
        return self.node.lineno <= line <= (self.node.end_lineno or self.node.lineno)


@dataclass(frozen=True, slots=True)
class Script:
    """The source of a script, and its loops in the order of the source."""

    tree: ast.Module
    loops: tuple[FoundLoop, ...]
    functions: dict[str, list[Function]]
    """Its functions and methods by name."""

    @property
    def marked(self) -> list[FoundLoop]:
        """Return the loops and blocks that are marked."""
        return [each for each in self.loops if each.kind != "loop"]

    def working(self, among: Iterable[FoundLoop]) -> list[FoundLoop]:
        """Return the loops whose body can be repeated and calls something else than a function of Python itself."""
        return [each for each in among if each.refusal is None and _does_work(each)]

    def calling(self, names: frozenset[str], among: Iterable[FoundLoop]) -> list[FoundLoop]:
        """Return the loops whose body calls one of `names`, itself or through functions of the script.

        Calls in a loop inside of the body count for that inner loop alone.
        """
        return [each for each in among if self._calls(each.node.body, names, set())]

    def _calls(self, body: Sequence[ast.stmt], names: frozenset[str], seen: set[str]) -> bool:
        called = {called_name(node) or "" for node in walk_scope(body, into_loops=False) if isinstance(node, ast.Call)}
        if called & names:
            return True
        inner = called - seen
        seen |= inner
        return any(self._calls(each.body, names, seen) for name in inner for each in self.functions.get(name, ()))


def find_loops(tree: ast.Module, source: bytes) -> Script:
    """Return the loops of a script."""
    finder = _Finder(source.decode("utf-8", errors="replace").splitlines(), _mark_names(tree))
    finder.visit_all(tree.body, (), (), in_class=False, around=())
    return Script(tree, tuple(finder.loops), finder.functions)


def _mark_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that the script has for the marks: `jd.step`, or the name that it imports one as."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name == _PACKAGE:
                    found |= {f"{each.asname or each.name}.{mark}": mark for mark in _MARKS}
        elif isinstance(node, ast.ImportFrom) and node.module == _PACKAGE and node.level == 0:
            found |= {each.asname or each.name: each.name for each in node.names if each.name in _MARKS}
    return found


class _Finder:
    def __init__(self, lines: Sequence[str], marks: dict[str, str]) -> None:
        self.loops: list[FoundLoop] = []
        self.functions: dict[str, list[Function]] = {}
        self._lines = lines
        self._marks = marks

    def visit_all(
        self,
        nodes: Iterable[ast.AST],
        functions: tuple[Function, ...],
        path: tuple[str, ...],
        *,
        in_class: bool,
        around: tuple[Loop, ...],
    ) -> None:
        for node in nodes:
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append(node)
                self.visit_all(node.body, (*functions, node), (*path, node.name), in_class=False, around=())
                continue
            if isinstance(node, ast.ClassDef):
                self.visit_all(node.body, functions, (*path, node.name), in_class=True, around=())
                continue
            inner = (*around, node) if isinstance(node, Loop) else around
            if isinstance(node, Loop | ast.With | ast.AsyncWith) and (kind := self._kind(node)) is not None:
                found = FoundLoop(
                    number=len(self.loops),
                    node=node,
                    kind=kind,
                    functions=functions,
                    path=path,
                    in_class=in_class,
                    text=self._lines[node.lineno - 1].strip() if node.lineno <= len(self._lines) else "",
                    bound=(bound := tuple(read_bindings(node.body).bound)),
                    continued=tuple(name for name in bound if name not in read_assigned_first(node.body)),
                    batch=tuple(name for name in _targets(inner) if name in read_changed(node.body)),
                    item=0 if isinstance(node, Loop) else self._marks_in(node.items).index(True),
                )
                self.loops.append(found)
            children = ast.iter_child_nodes(node)
            self.visit_all(children, functions, path, in_class=in_class, around=inner)

    def _kind(self, node: Loop | ast.With | ast.AsyncWith) -> Kind | None:
        if isinstance(node, ast.With | ast.AsyncWith):
            return "marked block" if any(self._marks_in(node.items)) else None
        if isinstance(node, ast.For | ast.AsyncFor):
            return "marked loop" if any(self._mark(each) == "steps" for each in walk_scope([node.iter])) else "loop"
        return "loop"

    def _marks_in(self, items: Sequence[ast.withitem]) -> list[bool]:
        return [self._mark(each.context_expr) == "step" for each in items]

    def _mark(self, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        return self._marks.get(ast.unparse(node.func))


def _targets(around: Sequence[Loop]) -> Iterable[str]:
    """Return the names that each iteration of the innermost of these loops binds."""
    return () if not around or isinstance(around[-1], ast.While) else read_bindings([around[-1].target]).bound


def _does_work(loop: FoundLoop) -> bool:
    calls = (node for node in walk_scope(loop.node.body) if isinstance(node, ast.Call))
    return any(not (isinstance(node.func, ast.Name) and node.func.id in _BUILTINS) for node in calls)


_MARK_FIX = "mark the part of the body that can be repeated: with joulediff.step(): ..."


def _find_refusals(loop: FoundLoop) -> Iterator[Refusal]:
    if loop.in_class:
        yield Refusal(loop.line, "it stands in the body of a class", "move it into a function")
    if isinstance(loop.node, ast.AsyncFor | ast.AsyncWith):
        yield Refusal(loop.line, "it is asynchronous", _MARK_FIX)
    for node in walk_scope(loop.node.body):
        line = getattr(node, "lineno", loop.line)
        if isinstance(node, ast.Yield | ast.YieldFrom):
            fix = "record the loop that takes the values, or mark the part without yield: with joulediff.step(): ..."
            yield Refusal(line, "its body has a yield", fix)
        elif isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Refusal(line, "its body has an await", _MARK_FIX)
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield Refusal(node.target.lineno, "its body has an await", _MARK_FIX)
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield Refusal(line, "its body imports all names of a module", "move the import before the loop")
        elif isinstance(node, ast.Call) and (name := _reader_of_locals(node)) is not None:
            yield Refusal(line, f"its body calls {name}(), which reads the variables of the function", _MARK_FIX)


def _reader_of_locals(call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Name) or call.func.id not in _READS_LOCALS:
        return None
    given = len(call.args) + len(call.keywords)
    return call.func.id if given <= _READS_LOCALS[call.func.id] else None
