"""Makes the bodies of loops functions, in the syntax tree of a script. Without a recording the script works as before.

    for batch in loader:            def body():
        BODY                            nonlocal loss
                            ->          BODY
                                    def values():
                                        return {"loss": loss}
                                    for batch in loader:
                                        loop(3, body, values)
                                        end = body()

Names that BODY binds stay variables of the function, or of the module, that the loop stands in. `continue`, `break` and
`return` in BODY become results of the function. Every statement keeps its line. One thing differs: BODY that reads an
unbound variable of its function raises NameError, and not the UnboundLocalError that is derived from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, TypeVar

from joulediff.pysource.loops.find_loops import FoundLoop, Script
from joulediff.pysource.loops.names import Function, Loop, read_bindings

HOOK = "_joulediff_loop"
"""The name under which the script has the function that each iteration calls: with the number of the loop, its body,
and a function that returns the values of the names that the body binds."""
Node = TypeVar("Node", bound=ast.AST)
_OURS = "_joulediff_"
_BODY, _VALUES, _END = f"{_OURS}body_", f"{_OURS}values_", f"{_OURS}end_"
# What a body returns. It returns None at its end, and a tuple with the result for `return`.
_BREAK, _CONTINUE = 1, 2
_INNER = re.compile(rf"\.<locals>\.{_BODY}\d+")
_OUTER = re.compile(rf"^{_BODY}\d+(\.<locals>\.)?")


def rewrite_loops(script: Script, chosen: Iterable[FoundLoop], file: str) -> CodeType:
    """Return the code of a script in which each iteration of the chosen loops calls `HOOK` before its body.

    The tree of the script is changed.
    """
    _rewrite_in(script.tree, {id(each.node): each for each in chosen})
    ast.fix_missing_locations(script.tree)
    return _renamed(compile(script.tree, file, "exec", dont_inherit=True), "<module>")


def _renamed(code: CodeType, around: str) -> CodeType:
    """Return code in which the body of a loop has the name of the function that the loop stands in.

    `around` is the name of the function around this one.
    """
    name = around if code.co_name.startswith(_BODY) else code.co_name
    inner = (_renamed(each, name) if isinstance(each, CodeType) else _plain_name(each) for each in code.co_consts)
    changes: dict[str, Any] = {"co_name": name, "co_consts": tuple(inner)}
    if hasattr(code, "co_qualname"):  # from Python 3.11
        changes["co_qualname"] = _plain_name(code.co_qualname) or name
    return code.replace(**changes)


def _plain_name(constant: Any) -> Any:
    """Return the name that a class or function in a body has in the plain script; any other constant as it is."""
    if not isinstance(constant, str) or _BODY not in constant:
        return constant
    return _OUTER.sub("", _INNER.sub("", constant))


def _rewrite_in(node: ast.AST, chosen: Mapping[int, FoundLoop]) -> None:
    """Rewrite the loops below a node, inner ones first. `chosen` has loops by the identity of their node."""
    for child in ast.iter_child_nodes(node):
        _rewrite_in(child, chosen)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            block[:] = [new for each in block for new in _replace(each, chosen)]


def _replace(node: Any, chosen: Mapping[int, FoundLoop]) -> list[Any]:
    loop = chosen.get(id(node))
    if loop is None:
        return [node]
    if loop.kind == "marked block":
        return _replace_block(loop, node)
    before, at_each = _make_body(loop, node.body, in_loop=True)
    node.body = at_each
    return [*before, node]


def _replace_block(loop: FoundLoop, node: ast.With) -> list[ast.stmt]:
    """Return the statements in place of `with a, jd.step(), b: BODY`: `with a`, and `with b: BODY` as the body."""
    mark, outer, inner = node.items[loop.item], node.items[: loop.item], node.items[loop.item + 1 :]
    body: list[ast.stmt] = [_at(node, ast.With(items=inner, body=node.body))] if inner else node.body
    if mark.optional_vars is not None:
        body = [_at(node, ast.Assign(targets=[mark.optional_vars], value=ast.Constant(None))), *body]
    before, at_each = _make_body(loop, body, in_loop=False)
    if outer:
        return [*before, _at(node, ast.With(items=outer, body=at_each))]
    return [*before, *at_each]


def _make_body(loop: FoundLoop, body: list[ast.stmt], *, in_loop: bool) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements before a loop, which define the function of its body, and those that call it."""
    function = loop.functions[-1] if loop.functions else None
    declared, before = _declare(body, function)
    leaving = _Leaving(in_loop=in_loop, first=_first_argument(function))
    new: list[ast.stmt] = [leaving.visit(each) for each in body]
    name, values, end = f"{_BODY}{loop.number}", f"{_VALUES}{loop.number}", f"{_END}{loop.number}"
    at_end = ast.Pass()
    for each in (*before, *declared, at_end):
        _move(each, loop.node)
    defined = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(defined, ast.FunctionDef)
    # The body and the function around it are one function of the source, and so have the same first line.
    _place(defined, loop.line if function is None else _first_line(function), 0)
    defined.body = [*declared, *new, at_end]
    shown = ", ".join(f"{each!r}: {each}" for each in loop.bound)
    read = ast.parse(f"def {values}(): return {{{shown}}}").body
    call = f"{HOOK}({loop.number}, {name}, {values})"
    at_each = ast.parse(f"{call}\n{end} = {name}()\n{leaving.text_after(end)}").body
    for each in (*read, *at_each):
        _move(each, loop.node)
    return [*before, defined, *read], at_each


def _declare(body: Sequence[ast.stmt], function: Function | None) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the declarations at the begin of a body, and statements before its loop that keep the scopes of names."""
    found = read_bindings(body)
    bound = [name for name in found.bound if not name.startswith(_OURS)]  # those of loops inside are its own
    if function is None:
        return _declarations(ast.Global, bound), []
    around = read_bindings(function.body)
    as_global = [name for name in bound if name in around.declared_global or name in found.declared_global]
    as_nonlocal = [name for name in bound if name not in as_global]
    own = [name for name in as_nonlocal if name not in around.declared_nonlocal | found.declared_nonlocal]
    before: list[ast.stmt] = [
        *_declarations(ast.Global, found.declared_global),
        *_declarations(ast.Nonlocal, found.declared_nonlocal),
    ]
    if own:  # makes the names variables of the function, and never runs
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in own]
        before.append(ast.If(ast.Constant(0), [ast.Assign(targets=targets, value=ast.Constant(None))], []))
    return [*_declarations(ast.Global, as_global), *_declarations(ast.Nonlocal, as_nonlocal)], before


def _declarations(kind: Callable[..., ast.stmt], names: Iterable[str]) -> list[ast.stmt]:
    found = list(names)
    return [kind(names=found)] if found else []


class _Leaving(ast.NodeTransformer):
    """Turns statements that leave a body into results of its function. Functions inside are left as they are."""

    def __init__(self, *, in_loop: bool, first: str | None) -> None:
        self._in_loop = in_loop
        self._first = first
        self._depth = 0
        self._used: set[str] = set()

    def text_after(self, end: str) -> str:
        """Return the source that runs after the call of the function."""
        lines = [f"if {end} is not None:"]
        if "break" in self._used:
            lines.append(f"    if {end} == {_BREAK}: break")
        if "continue" in self._used:
            lines.append(f"    if {end} == {_CONTINUE}: continue")
        if "return" in self._used:
            lines.append(f"    return {end}[0]")
        return "\n".join(lines) if len(lines) > 1 else ""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, Function | ast.ClassDef | ast.Lambda):
            return node
        return self._visit_loop(node) if isinstance(node, Loop) else super().visit(node)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        self.generic_visit(node)
        self._used.add("return")
        value = node.value or _at(node, ast.Constant(None))
        return _at(node, ast.Return(_at(node, ast.Tuple([value], ast.Load()))))

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        if self._depth:
            return node
        self._used.add("break")
        return _at(node, ast.Return(_at(node, ast.Constant(_BREAK))))

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        if self._depth:
            return node
        if self._in_loop:
            return _at(node, ast.Return(None))
        self._used.add("continue")
        return _at(node, ast.Return(_at(node, ast.Constant(_CONTINUE))))

    def _visit_loop(self, node: Any) -> ast.stmt:
        for name, value in ast.iter_fields(node):
            inside = name == "body"
            self._depth += inside
            if isinstance(value, list):
                setattr(node, name, [self.visit(each) for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
            self._depth -= inside
        found: ast.stmt = node
        return found

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return _at(node, ast.Pass())

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        return _at(node, ast.Pass())

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Drop the annotation of a variable: one that is declared nonlocal or global has none."""
        self.generic_visit(node)
        if not node.simple:
            return node
        return _at(node, ast.Pass() if node.value is None else ast.Assign(targets=[node.target], value=node.value))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Give `super()` its arguments, which it takes from the function that calls it."""
        self.generic_visit(node)
        is_super = isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args
        if is_super and self._first is not None:
            node.args = [_at(node, ast.Name(name, ast.Load())) for name in ("__class__", self._first)]
        return node


def _first_argument(function: Function | None) -> str | None:
    arguments = [] if function is None else [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else None


def _first_line(function: Function) -> int:
    """Return the first line that the code of a function has."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _at(place: ast.AST, node: Node) -> Node:
    return ast.copy_location(node, place)


def _move(node: ast.AST, place: Any) -> None:
    """Give new nodes the line of a loop's head."""
    for each in ast.walk(node):
        if isinstance(each, ast.expr | ast.stmt):
            _place(each, place.lineno, place.col_offset)


def _place(node: Any, line: int, column: int) -> None:
    node.lineno = node.end_lineno = line
    node.col_offset = node.end_col_offset = column
