"""Splits a function into statements: the expressions each reads, the names it sets, and the tests around it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

MAX_TEXT = 500

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Bind:
    """A name that a statement sets; `value` is the expression it is set from."""

    name: str
    value: ast.expr | None
    late: bool = False
    """Set in the middle of the statement, so its value is read after the statement."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, or the head of a compound one. `tests` are those of the `if`s and `while`s around it."""

    first: int
    last: int
    text: str
    branch: bool
    reads: tuple[ast.expr, ...]
    binds: tuple[Bind, ...]
    tests: tuple[ast.expr, ...]
    node: ast.AST


@lru_cache(maxsize=512)
def statements_of(node: FunctionNode | ast.ClassDef | ast.Module) -> tuple[Statement, ...]:
    """Return the statements of a body, outer ones first, without those of functions inside."""
    if isinstance(node, ast.Lambda):
        body = node.body
        last = body.end_lineno or body.lineno
        return (Statement(node.lineno, last, _text(body), False, (body,), _walrus([body]), (), body),)
    return tuple(_statements(node.body, ()))


def _statements(body: Iterable[ast.AST], tests: tuple[ast.expr, ...]) -> Iterator[Statement]:
    for node in body:
        yield _statement(node, tests)
        if isinstance(node, _SCOPES):
            continue
        around = (*tests, node.test) if isinstance(node, ast.If | ast.While) else tests
        for _, field in ast.iter_fields(node):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt | ast.ExceptHandler):
                yield from _statements(field, around)
            elif isinstance(field, list) and field and isinstance(field[0], ast.match_case):
                for case in field:
                    yield from _statements(case.body, around)


def statement_at(node: FunctionNode, line: int) -> Statement | None:
    """Return the innermost statement on a line."""
    return _by_line(node).get(line)


@lru_cache(maxsize=512)
def _by_line(node: FunctionNode) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    for each in statements_of(node):
        for line in range(each.first, each.last + 1):
            found.setdefault(line, each)
    return found


def _statement(node: ast.AST, tests: tuple[ast.expr, ...]) -> Statement:
    reads, text = _head(node)
    if text is None:
        text = _text(node)
    first = getattr(node, "lineno", 0)
    last = max([first, *(each.end_lineno or first for each in reads)])
    compound = isinstance(getattr(node, "body", None), list)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        first = min([first, *(each.lineno for each in node.decorator_list)])
    elif not compound and not isinstance(node, ast.Match):
        last = getattr(node, "end_lineno", None) or last
    branch = isinstance(node, ast.If | ast.While | ast.For | ast.AsyncFor | ast.Match)
    return Statement(first, last, text[:MAX_TEXT], branch, reads, (*_binds(node), *_walrus(reads)), tests, node)


def _head(node: ast.AST) -> tuple[tuple[ast.expr, ...], str | None]:
    """Return the expressions that a statement itself reads, and the text of a compound one's head."""
    match node:
        case ast.If(test=test):
            return (test,), f"if {_text(test)}:"
        case ast.While(test=test):
            return (test,), f"while {_text(test)}:"
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            return (values,), f"for {_text(target)} in {_text(values)}:"
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return tuple(item.context_expr for item in items), f"with {', '.join(map(_text, items))}:"
        case ast.Match(subject=subject):
            return (subject,), f"match {_text(subject)}:"
        case ast.ExceptHandler(type=kind):
            return ((kind,) if kind else ()), f"except {_text(kind) if kind else ''}:"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return tuple(node.decorator_list), f"def {node.name}"
        case ast.Try():
            return (), "try:"
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            return (value,), None
        case ast.AnnAssign(value=given):
            return ((given,) if given else ()), None
    if isinstance(
        getattr(node, "body", None), list
    ):  # `try` with exception groups, and statements of later Python versions
        return (), f"{type(node).__name__.lower()}:"
    return tuple(each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)), None


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _binds(node: ast.AST) -> tuple[Bind, ...]:
    match node:
        case ast.Assign(targets=targets, value=value):
            return tuple(bind for target in targets for bind in _targets(target, value))
        case ast.AnnAssign(target=target, value=given):
            return tuple(_targets(target, given)) if given else ()
        case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
            read = ast.copy_location(ast.Name(name, ast.Load()), target)
            return (Bind(name, ast.copy_location(ast.BinOp(read, node.op, value), node)),)
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            return tuple(Bind(name, values) for name in _names(target))
        case ast.With(items=items) | ast.AsyncWith(items=items):
            pairs = [(item.optional_vars, item.context_expr) for item in items if item.optional_vars]
            return tuple(bind for target, value in pairs for bind in _targets(target, value))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (Bind(name, None),)
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return tuple(Bind(each.asname or each.name.partition(".")[0], None) for each in names)
    return ()


def _targets(target: ast.expr, value: ast.expr) -> Iterator[Bind]:
    """Yield the names in a target; each with its own part of the value, where both are written as tuples."""
    several = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
    if several and not any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)):  # type: ignore[attr-defined]
        for inner, part in zip(target.elts, value.elts, strict=False):  # type: ignore[attr-defined]
            yield from _targets(inner, part)
        return
    yield from (Bind(name, value) for name in _names(target))


def _names(target: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _walrus(reads: Sequence[ast.expr]) -> tuple[Bind, ...]:
    inner = [each for read in reads for each in ast.walk(read) if isinstance(each, ast.NamedExpr)]
    return tuple(Bind(each.target.id, each.value, late=True) for each in inner)


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
    """Return the contents of a file; None if it cannot be parsed as Python."""
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
    """Return the first line number that a function's code object has."""
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
    """Return the function that encloses the function of a code object."""
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
        # The recorded begin of a call depends on the Python version, its end does not.
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
