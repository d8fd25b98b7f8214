"""Files of source code: which function a code object was made of, which call a frame is in, who sets an attribute.

All of it is read from text; nothing of the program runs.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from joulediff.recorders.statements import FunctionNode, Statement, statements_of


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its functions by name and first line, classes by qualified name, calls by where they end."""

    tree: ast.Module
    functions: dict[tuple[str, int], list[FunctionNode]]
    classes: dict[str, ast.ClassDef]
    calls: dict[tuple[int, int], ast.Call]
    parents: dict[FunctionNode, FunctionNode | None]


@lru_cache(maxsize=128)
def parse_file(file: str) -> Module | None:
    """Return what is in a file; None for one that cannot be read as Python."""
    try:
        found = Module(ast.parse("".join(linecache.getlines(file))), {}, {}, {}, {})
        _index(found, found.tree, "", None)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return found


def _index(found: Module, node: ast.AST, path: str, function: FunctionNode | None) -> None:
    for child in ast.iter_child_nodes(node):
        inner, owner = path, function
        if isinstance(child, ast.Call):
            found.calls[child.end_lineno or 0, child.end_col_offset or 0] = child
        elif isinstance(child, ast.ClassDef):
            found.classes[path + child.name] = child
            inner = f"{path}{child.name}."
        elif isinstance(child, FunctionNode):
            name = "<lambda>" if isinstance(child, ast.Lambda) else child.name
            found.functions.setdefault((name, first_line(child)), []).append(child)
            found.parents[child] = function
            inner, owner = f"{path}{name}.<locals>.", child
        _index(found, child, inner, owner)


def first_line(node: FunctionNode) -> int:
    """Return the line that a function's code object calls its first."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(each.lineno for each in decorators)])


def function_of(code: CodeType) -> FunctionNode | None:
    """Return the definition that a code object was made of."""
    module = parse_file(code.co_filename)
    found = module.functions.get((code.co_name, code.co_firstlineno), []) if module else []
    names = set(code.co_varnames[: code.co_argcount])
    fitting = [node for node in found if {each.arg for each in (*node.args.posonlyargs, *node.args.args)} == names]
    return fitting[0] if fitting else None


def enclosing(code: CodeType) -> FunctionNode | None:
    """Return the function around the one that a code object was made of."""
    module, node = parse_file(code.co_filename), function_of(code)
    return module.parents.get(node) if module and node is not None else None


def call_of(frame: FrameType, callee: CodeType) -> ast.Call | None:
    """Return the call that a frame is in: by its instruction, and before Python 3.11 by line and name."""
    code, module = frame.f_code, parse_file(frame.f_code.co_filename)
    if module is None:
        return None
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        place = next(islice(positions(), frame.f_lasti // 2, None))
        # Where a call begins depends on the version of Python, where it ends does not.
        return module.calls.get((place[1] or 0, place[3] or 0))
    near = [each for each in module.calls.values() if each.lineno <= frame.f_lineno <= (each.end_lineno or 0)]
    named = [each for each in near if ast.unparse(each.func).rpartition(".")[2] == callee.co_name]
    only = [found[0] for found in (near, named) if len(found) == 1]
    return only[0] if only else None


def self_assignments(module: Module, cls: str, attribute: str) -> tuple[tuple[str, FunctionNode, Statement], ...]:
    """Return where the methods of a class assign an attribute of their first parameter, `__init__` first."""
    node = module.classes.get(cls)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)] if node else []
    methods.sort(key=lambda each: each.name != "__init__")
    return tuple(
        (method.name, method, statement)
        for method in methods
        if (names := [*method.args.posonlyargs, *method.args.args])
        for statement in statements_of(method)
        if _assigns(statement.node, names[0].arg, attribute)
    )


def _assigns(node: ast.AST, owner: str, attribute: str) -> bool:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    else:
        return False
    return any(
        isinstance(each, ast.Attribute)
        and each.attr == attribute
        and isinstance(each.value, ast.Name)
        and each.value.id == owner
        for target in targets
        for each in (target.elts if isinstance(target, ast.Tuple) else [target])
    )
