"""Names for differences: the argument, function, variable or operator that a person would name.

A name is text of the source: nothing here knows what a function does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from joulediff.pysource.edits.syntax import DEFINITIONS, IMPORTS, called, dotted, read_names, target_name, targets_of

_OPERATORS = {
    "Add": "+",
    "Sub": "-",
    "Mult": "*",
    "MatMult": "@",
    "Div": "/",
    "Mod": "%",
    "Pow": "**",
    "FloorDiv": "//",
    "And": "and",
    "Or": "or",
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtE": "<=",
    "Gt": ">",
    "GtE": ">=",
    "Is": "is",
    "IsNot": "is not",
    "In": "in",
    "NotIn": "not in",
    "Not": "not",
    "USub": "-",
}


def name_statement(statement: ast.AST) -> tuple[str, str]:
    """Return the key and the call of a statement: what it sets, or the function that it calls."""
    call = called(statement)
    targets = targets_of(statement)
    key = target_name(targets[0]) if targets else call
    if call and targets and key in read_names([getattr(statement, "value", statement)]):
        # `x = x.f()`: the function says more than the variable.
        key = call
    if not key:
        key, call = _keyword_of(statement), call or _call_in(statement)
    return key, call


def name_block(statement: ast.stmt) -> tuple[str, str]:
    """Return the key and the call of a block's header."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        names = [dotted(function_of(item.context_expr)) for item in statement.items]
        return names[0], names[0]
    return type(statement).__name__.lower().removeprefix("async"), called(getattr(statement, "iter", None))


def _keyword_of(statement: ast.AST) -> str:
    if isinstance(statement, DEFINITIONS):
        return statement.name
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return name_block(statement)[0]
    if isinstance(statement, IMPORTS):
        return ", ".join(alias.name for alias in statement.names)
    inside = _only_statement(statement)
    if inside is not None:
        targets = targets_of(inside)
        return target_name(targets[0]) if targets else called(inside)
    return type(statement).__name__.lower().removeprefix("async")


def _only_statement(statement: ast.AST) -> ast.AST | None:
    """Return the assignment or call that a loop or condition is about, if it is the only one in it."""
    while isinstance(statement, (ast.For, ast.If, ast.While)) and len(statement.body) == 1 and not statement.orelse:
        statement = statement.body[0]
    return statement if targets_of(statement) or called(statement) else None


def _call_in(statement: ast.AST) -> str:
    inside = _only_statement(statement)
    return called(inside) if inside is not None and not targets_of(inside) else ""


def function_of(decorator: ast.expr) -> ast.expr:
    """Return the function of a decorator or context, without its arguments."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def name_rewritten(left: Sequence[ast.AST], right: Sequence[ast.AST], modules: set[str]) -> str:
    """Return a name for rewritten code; "" if there is none.

    It is the loop that goes, else the function that is new or goes, else the argument, else the operator. Functions of
    `modules` come before methods.
    """
    words_left, words_right = _words(left, modules), _words(right, modules)
    new = [word for word in words_right if word not in words_left]
    old = [word for word in words_left if word not in words_right]
    for loop in ("for", "while"):
        if loop in old:
            return loop
    functions = [[word for word in words if word.split(".")[0] in modules] for words in (new, old)]
    for ours, theirs in (functions, (new, old)):
        if len(ours) == 1:
            return ours[0]
        if theirs:
            return theirs[0]
    arguments = [name for name in _arguments(right) if name not in _arguments(left)]
    operators = [symbol for node in left for each in ast.walk(node) for symbol in operators_of(each)]
    return next(iter([*arguments, *operators]), "")


def _words(nodes: Iterable[ast.AST], modules: set[str]) -> list[str]:
    """Return the loops, functions of modules, and methods of code."""
    found = []
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, (ast.For, ast.AsyncFor, ast.While)):
                found.append(type(each).__name__.lower().removeprefix("async"))
            elif isinstance(each, ast.Call):
                name = dotted(each.func)
                is_function = name.split(".")[0] in modules and "()" not in name
                found.append(name if is_function else name.split(".")[-1])
    return [word for word in dict.fromkeys(found) if word]


def _arguments(nodes: Iterable[ast.AST]) -> list[str]:
    return [each.arg for node in nodes for each in ast.walk(node) if isinstance(each, ast.keyword) and each.arg]


def main_call(node: ast.AST, other: ast.AST) -> str:
    """Return the function that an expression calls and the other one does not; functions of modules come first."""
    theirs = {dotted(each.func) for each in ast.walk(other) if isinstance(each, ast.Call)}
    names = [dotted(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)]
    new = [name for name in names if name and name not in theirs]
    functions = [name for name in new if "()" not in name]
    return next(iter([*functions, *new]), "")


def operators_of(node: ast.AST) -> list[str]:
    """Return the operators of a node, as they are written; a sign of a number is none."""
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.UnaryOp)):
        symbol = _OPERATORS.get(type(node.op).__name__)
        is_number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        return [symbol] if symbol and not is_number else []
    if isinstance(node, ast.Compare):
        return [_OPERATORS[type(each).__name__] for each in node.ops if type(each).__name__ in _OPERATORS]
    return []


def function_at(text: str, line: int) -> str:
    """Return the qualified name of the function around a line, as frames have it; empty outside of any."""
    try:
        nodes: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ""
    found = ""
    while nodes:
        node, outer = nodes.pop()
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}" if outer else child.name
                if isinstance(child, ast.ClassDef):
                    nodes.append((child, name))
                    continue
                if child.lineno <= line <= (child.end_lineno or child.lineno):
                    found = name
                name = f"{name}.<locals>"
            nodes.append((child, name))
    return found
