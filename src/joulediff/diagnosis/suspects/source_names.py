"""Names for pieces of source text: the function that an expression calls, or the operator that it applies.

Only text is read: `torch.sort(x).values[:8]` is a call of `torch.sort`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection

from joulediff.model.run import MAX_SETTING_CHARS, Setting

# Methods that only store what another call returns.
_COLLECTING = ("append", "extend", "add", "insert", "put", "update")
_OPERATORS: dict[type[ast.operator], str] = {
    ast.MatMult: "matmul",
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}


def called_name(text: str | None) -> str | None:
    """Return the function that a statement or expression calls last, as it is written; None without one.

    Of `seen.append(x.item())` that is `x.item`: the result is only stored.
    """
    node = _called(_value(text))
    while node is not None and isinstance(node.func, ast.Attribute) and node.func.attr in _COLLECTING and node.args:
        inner = _called(node.args[-1])
        if inner is None:
            break
        node = inner
    return None if node is None else _dotted(node.func)


def _called(node: ast.expr | None) -> ast.Call | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Await | ast.Starred):
        node = node.value
    return node if isinstance(node, ast.Call) else None


def operator_name(text: str | None) -> str | None:
    """Return the operator that an expression applies last: `matmul` for `x @ (a @ b)`; None for another expression."""
    node = _value(text)
    return _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None


def calls_in(text: str) -> list[str]:
    """Return the functions that statements call, as they are written, in order."""
    nodes = [node for each in _statements(text) for node in ast.walk(each) if isinstance(node, ast.Call)]
    nodes.sort(key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    return [name for node in nodes if (name := _dotted(node.func)) is not None]


def class_name(text: str | None) -> str | None:
    """Return the class that an expression names, such as `torch.nn.GELU`; None for another expression."""
    node = _value(text)
    name = None if node is None else _dotted(node)
    return name if name is not None and name.rpartition(".")[2][:1].isupper() and not name.isupper() else None


def is_function(text: str | None) -> bool:
    """Return whether an expression is a function that is written out: what it does is code, and no value."""
    return isinstance(_value(text), ast.Lambda)


def sets_code(text: str | None, functions: Collection[str] = ()) -> bool:
    """Return whether statements end with code that is put in place of other code: set as an attribute, or passed on.

    That is an object of a class, a class, or a function; `functions` are the names that are known to be one.
    """
    body = _statements(text)
    objects: set[str] = set()
    while body:
        objects |= {word for each in body if _is_code(_assigned(each)) for word in _targets(each)}
        if not isinstance(body[-1], ast.For | ast.While | ast.With | ast.If):
            break
        body = body[-1].body
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return any(_is_code(each, functions, objects) for each in last.value.args)
    is_attribute = isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Attribute)
    return is_attribute and _is_code(_assigned(last), functions, objects)


def _is_code(node: ast.expr | None, functions: Collection[str] = (), objects: Collection[str] = ()) -> bool:
    """Return whether an expression is an object of a class, by its name, or else a class or a function."""
    name = None if node is None else _dotted(node.func if isinstance(node, ast.Call) else node)
    if name is None:
        return False
    word = name.rpartition(".")[2]
    is_class = word[:1].isupper() and (isinstance(node, ast.Call) or not name.isupper())
    return is_class or (not isinstance(node, ast.Call) and (word in functions or name in objects))


def _assigned(statement: ast.stmt | None) -> ast.expr | None:
    return statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None


def _targets(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


def assigned_name(text: str) -> str | None:
    """Return the variable or attribute that a statement sets: `capacity` for `self.capacity = 3`; None for others."""
    body = _statements(text)
    targets = body[0].targets if len(body) == 1 and isinstance(body[0], ast.Assign) else []
    name = _dotted(targets[0]) if len(targets) == 1 else None
    return None if name is None else name.rpartition(".")[2]


def sets_constant(text: str) -> bool:
    """Return whether a statement sets an attribute, such as a switch of a module, to a plain value."""
    body = _statements(text)
    statement = body[0] if len(body) == 1 else None
    is_attribute = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute)
    return is_attribute and isinstance(_assigned(statement), ast.Constant)


def last_word(key: str) -> str:
    """Return the last word of a key: `requires_grad_` of `x.requires_grad_()`."""
    return re.split(r"\W+", key.removesuffix("()"))[-1]


def to_value(text: str | None) -> Setting:
    """Return the plain value that a literal has, and other text as it is written, in one line."""
    if text is None:
        return None
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = ()
    if isinstance(found, bool | int | float | str):
        return found
    return " ".join(text.split())[:MAX_SETTING_CHARS]


def _value(text: str | None) -> ast.expr | None:
    """Return the expression of a text of one statement, without the names that it is assigned to."""
    body = _statements(text)
    if len(body) != 1:
        return None
    statement = body[0]
    if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        return statement.value
    return None


def _statements(text: str | None) -> list[ast.stmt]:
    if text is None:
        return []
    try:
        return ast.parse(textwrap.dedent(text).strip()).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return node.attr if owner is None else f"{owner}.{node.attr}"
    return None
