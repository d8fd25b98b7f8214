"""Refuses a function that cannot build a step, from its source, before anything of the program runs.

A function that trains for an hour and returns nothing would fail after the hour. Only what the source settles is
refused: a decorated function, a name that is bound twice or the result of a call may be anything, so the program runs.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from joulediff.model.errors import ProgramError

Function = ast.FunctionDef | ast.AsyncFunctionDef

WHAT_IS_A_BUILDER = """\
a builder sets up once and returns the step, a function without arguments that is called again and again:
    def build():
        model, x = make_model(), make_input()
        return lambda: model(x)"""

# The types of expressions and of results of built-in functions that cannot be called.
_DISPLAYS: dict[type[ast.expr], str] = {
    ast.List: "list",
    ast.ListComp: "list",
    ast.Tuple: "tuple",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
    ast.JoinedStr: "str",
    ast.GeneratorExp: "generator",
}
_RESULTS = {
    **{kind.__name__: kind.__name__ for kind in (bool, dict, float, int, list, set, str, tuple)},
    "len": "int",
    "sorted": "list",
}
# Code that can bind a name which no statement of the file binds.
_BINDS_UNSEEN = frozenset(
    {"exec", "eval", "globals", "locals", "vars", "setattr", "__getattr__", "modules", "__dict__"}
)
_MOST_LINKS = 8


WHAT_IS_A_SIZED_BUILDER = """\
a builder takes the size, sets up once and returns the step, a function without arguments:
    def build(size):
        model, x = make_model(), make_input(size)
        return lambda: model(x)"""


def check_builder(source: bytes, name: str, place: str, *, is_step: bool, is_sized: bool = False) -> None:
    """Raise ProgramError if `name` cannot build a step, or with `is_step` cannot be one; `place` is its file.

    With `is_sized` it is called with the size of the input.
    """
    tree = _parse(source)
    if tree is None:
        return
    module = _Scope(tree.body, tree)
    if name not in module.bindings:
        if not module.binds_unseen:
            raise missing(
                place,
                name,
                _list_functions(module),
                _list_builders(module),
                is_step=is_step,
                is_script=any(_is_main_guard(node) for node in tree.body),
                is_sized=is_sized,
            )
        return
    found = module.find(name)
    if isinstance(found, ast.ClassDef):
        if not is_sized:  # what a call of it with the size makes is checked when it is made
            _check_class(found, place, module, is_step=is_step)
    elif _is_plain_function(found):
        what = f"{name}() in {place}"
        _raise(_why_not_sized(found, what, is_step=is_step) if is_sized else _why_not_called(found, what))
        if not is_step and not _only_raises(found):
            _check_returns(found, what, f"{place}:{name}", module, is_sized=is_sized)


def missing(
    place: str,
    name: str,
    functions: Sequence[str],
    builders: Sequence[str],
    *,
    is_step: bool,
    is_script: bool = False,
    is_sized: bool = False,
) -> ProgramError:
    """Return the error for a name that a program does not have. It has `functions`; `builders` look like builders."""
    defined = f"it defines: {', '.join(functions)}" if functions else "it defines no function"
    lines = [f"{defined}; say which with {place}:NAME"]
    if builders and not is_step and not is_sized:
        lines.append(_look_alikes(builders))
    elif not is_step:
        lines.append(WHAT_IS_A_SIZED_BUILDER if is_sized else WHAT_IS_A_BUILDER)
        lines += [f"if one of them is itself the step: {place}:NAME --step"] if functions else []
    if is_script:
        lines.append('code under if __name__ == "__main__" is not run')
    return ProgramError(f"{place} has no {name}()", fix=_in_lines(lines))


def needs_arguments(what: str, names: Iterable[str]) -> ProgramError:
    """Return the error for a function that cannot be called without arguments."""
    return ProgramError(
        f"{what} needs arguments ({', '.join(names)}), and it is called without any",
        fix="give them defaults, or wrap it in a function without arguments",
    )


def takes_no_size(what: str, *, is_step: bool) -> ProgramError:
    """Return the error for a function that takes no argument, where the size is its argument."""
    fix = "give it a parameter: def step(size): ..." if is_step else _in_lines([WHAT_IS_A_SIZED_BUILDER])
    return ProgramError(f"{what} takes no argument, and it is called with the size", fix=fix)


def needs_more_than_size(what: str, names: Iterable[str]) -> ProgramError:
    """Return the error for a function that needs more arguments than the size."""
    return ProgramError(
        f"{what} needs more arguments than the size ({', '.join(names)}), and it is called with the size alone",
        fix="give the others defaults; the first argument is the size",
    )


def runs_nothing(what: str) -> ProgramError:
    """Return the error for a function whose call makes a coroutine or a generator."""
    return ProgramError(
        f"{what} only makes a coroutine or generator when called: nothing runs",
        fix="use an ordinary function that runs it to its end",
    )


def is_a_class(name: str, place: str) -> ProgramError:
    """Return the error for a class that is named as the step."""
    return ProgramError(
        f"{name} in {place} is a class: as a step it would only make an object in each call",
        fix=f"name a function, or an object whose class has __call__, such as: step = {name}()",
    )


def with_article(type_name: str) -> str:
    """Return the name of a type with its article."""
    return f"{'an' if type_name[0] in 'aeiou' else 'a'} {type_name}"


def _builds_nothing(what: str, why: str, target: str, module: _Scope, *, is_sized: bool = False) -> ProgramError:
    lines = [WHAT_IS_A_SIZED_BUILDER if is_sized else WHAT_IS_A_BUILDER]
    if not is_sized and (builders := _list_builders(module)):
        lines.append(_look_alikes(builders))
    lines.append(f"if it is itself the step, to be called again and again: {target} --step")
    return ProgramError(f"{what} {why}, so it builds no step; it was not called", fix=_in_lines(lines))


def _look_alikes(builders: Sequence[str]) -> str:
    return f"{'this looks' if len(builders) == 1 else 'these look'} like a builder: {', '.join(builders)}"


def _in_lines(lines: Iterable[str]) -> str:
    return "\n".join(lines).replace("\n", "\n  ")


def _check_class(found: ast.ClassDef, place: str, module: _Scope, *, is_step: bool) -> None:
    if is_step:
        raise is_a_class(found.name, place)
    methods = _Scope(found.body, found)
    inherits = any(not isinstance(base, ast.Name) or base.id != "object" for base in found.bases)
    if inherits or found.keywords or found.decorator_list or "__new__" in methods.bindings:
        return
    what = f"{found.name}() in {place}"
    initial, call = methods.find("__init__"), methods.find("__call__")
    if _is_plain_function(initial) and (needed := _needed(initial, given=1)):
        raise needs_arguments(what, needed)
    if "__call__" not in methods.bindings:
        raise _builds_nothing(what, "makes an object whose class has no __call__", f"{place}:NAME", module)
    if _is_plain_function(call):
        _raise(_why_not_called(call, f"{found.name}.__call__() in {place}", given=1))


def _raise(error: ProgramError | None) -> None:
    if error is not None:
        raise error


def _why_not_called(function: Function | ast.Lambda, what: str, *, given: int = 0) -> ProgramError | None:
    """Return the error for a function that cannot be called without arguments, or whose call runs nothing."""
    if needed := _needed(function, given=given):
        return needs_arguments(what, needed)
    return runs_nothing(what) if _is_lazy(function) else None


def _why_not_sized(function: Function, what: str, *, is_step: bool) -> ProgramError | None:
    """Return the error for a function that cannot be called with a size alone, or whose call runs nothing."""
    takes = function.args
    if not (takes.posonlyargs or takes.args or takes.vararg):
        return takes_no_size(what, is_step=is_step)
    if needed := _needed(function, given=1):
        return needs_more_than_size(what, needed)
    return runs_nothing(what) if _is_lazy(function) else None


def _check_returns(function: Function, what: str, target: str, module: _Scope, *, is_sized: bool) -> None:
    """Raise ProgramError if no value that the function may return is a step."""
    inside = _Scope(function.body, function, outer=module)
    errors: list[ProgramError] = []
    for value in inside.possible_results():
        if isinstance(value, Function | ast.Lambda):
            error = _why_not_called(value, f"the step that {what} returns")
        else:
            kind = _type_of(value, inside)
            why = "returns nothing" if kind == "NoneType" else f"returns {with_article(str(kind))}"
            error = None if kind is None else _builds_nothing(what, why, target, module, is_sized=is_sized)
        if error is None:
            return
        errors.insert(len(errors) if isinstance(value, ast.Constant) else 0, error)
    raise errors[0]


def _type_of(value: ast.expr, scope: _Scope) -> str | None:
    """Return the type of an expression whose value cannot be called; None for any other expression."""
    if isinstance(value, ast.Constant):
        return type(value.value).__name__
    is_builtin = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not scope.has(value.func.id)
    if is_builtin:
        return _RESULTS.get(value.func.id)  # type: ignore[attr-defined]
    return _DISPLAYS.get(type(value))


def _needed(function: Function | ast.Lambda, *, given: int) -> list[str]:
    """Return the parameters without defaults, but for the first `given` ones."""
    all_of = function.args
    positional = [*all_of.posonlyargs, *all_of.args]
    required = positional[: len(positional) - len(all_of.defaults)][given:]
    required += [each for each, default in zip(all_of.kwonlyargs, all_of.kw_defaults, strict=True) if default is None]
    return [each.arg for each in required]


def _is_lazy(function: Function | ast.Lambda) -> bool:
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _nodes_of(body))
    return isinstance(function, ast.AsyncFunctionDef) or is_generator


def _only_raises(function: Function) -> bool:
    """Return whether a function does nothing but raise: its own error says more than ours."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _list_functions(module: _Scope) -> list[str]:
    return [name for name in module.bindings if isinstance(module.find(name), Function) and not name.startswith("_")]


def _list_builders(module: _Scope) -> list[str]:
    """Return the functions that surely return a function, and can be called without arguments."""
    return [name for name in _list_functions(module) if _looks_like_builder(module.find(name), module)]


def _looks_like_builder(function: object, module: _Scope) -> bool:
    if not _is_plain_function(function) or _why_not_called(function, "") is not None:
        return False
    results = _Scope(function.body, function, outer=module).possible_results()
    return any(isinstance(each, Function | ast.Lambda) for each in results)


def _is_plain_function(node: object) -> TypeGuard[Function]:
    return isinstance(node, Function) and not node.decorator_list


@dataclass(frozen=True)
class _Scope:
    """The names of a module, class or function. `node` is all of it, with the functions inside."""

    body: Sequence[ast.stmt]
    node: ast.AST
    outer: _Scope | None = None

    @cached_property
    def bindings(self) -> dict[str, list[ast.AST | None]]:
        """What binds each name: its definition or the expression assigned to it; None for any other way."""
        found: dict[str, list[ast.AST | None]] = {}
        assigned: dict[ast.AST, ast.expr] = {}
        for node in _nodes_of(self.body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                assigned[node.targets[0]] = node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                assigned[node.target] = node.value
            elif isinstance(node, Function | ast.ClassDef):
                found.setdefault(node.name, []).append(node)
            for name in _names_bound(node):
                found.setdefault(name, []).append(assigned.get(node))
        if isinstance(self.node, Function):
            for each in ast.walk(self.node.args):
                if isinstance(each, ast.arg):
                    found.setdefault(each.arg, []).append(None)
        # A function inside may bind the names of this scope too.
        for node in ast.walk(self.node):
            for name in node.names if isinstance(node, ast.Global | ast.Nonlocal) else ():
                found.setdefault(name, []).append(None)
        return found

    @cached_property
    def binds_unseen(self) -> bool:
        """Whether the module may have names that no statement of it binds."""
        nodes = list(ast.walk(self.node))
        names = {each.id if isinstance(each, ast.Name) else each.attr for each in nodes if isinstance(each, _NAMES)}
        names |= {each.name for each in nodes if isinstance(each, Function)}
        return self._has_star_import or not names.isdisjoint(_BINDS_UNSEEN)

    def possible_results(self) -> list[ast.expr | Function]:
        """Return what a function may return: functions that it names, or else expressions."""
        nothing = ast.Constant(None)
        values = [node.value or nothing for node in _nodes_of(self.body) if isinstance(node, ast.Return)]
        return [found for value in values or [nothing] for found in self._values_of(value)]

    @cached_property
    def _has_star_import(self) -> bool:
        imports = [node for node in _nodes_of(self.body) if isinstance(node, ast.ImportFrom)]
        return any(alias.name == "*" for node in imports for alias in node.names)

    def has(self, name: str) -> bool:
        """Return whether a name may be bound here or outside."""
        return name in self.bindings or self._has_star_import or (self.outer is not None and self.outer.has(name))

    def find(self, name: str) -> ast.AST | None:
        """Return what binds a name; None if the source leaves that open."""
        if name not in self.bindings:
            return None if self.outer is None else self.outer.find(name)
        found = self.bindings[name]
        return found[0] if len(found) == 1 and not self._has_star_import else None

    def _values_of(self, value: ast.expr, links: int = 0) -> Iterator[ast.expr | Function]:
        parts: list[ast.expr] = []
        if isinstance(value, ast.IfExp):
            parts = [value.body, value.orelse]
        elif isinstance(value, ast.BoolOp):
            parts = value.values
        elif isinstance(value, ast.NamedExpr):
            parts = [value.value]
        elif isinstance(value, ast.Name):
            found = self.find(value.id)
            if _is_plain_function(found):
                yield found
                return
            parts = [found] if isinstance(found, ast.expr) else []
        if not parts or links == _MOST_LINKS:
            yield value
            return
        for part in parts:
            yield from self._values_of(part, links + 1)


_NAMES = (ast.Name, ast.Attribute)


def _parse(source: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the program's own Python, which may be newer, says what is wrong with it


def _nodes_of(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes that run in a scope, in order: without the insides of functions and classes."""
    todo = list(body)[::-1]
    while todo:
        node = todo.pop()
        yield node
        inner: Iterable[ast.AST] = ()
        if isinstance(node, Function | ast.ClassDef):
            inner = node.decorator_list
        elif isinstance(node, ast.If) and _is_main_guard(node):
            inner = node.orelse
        elif not isinstance(node, ast.Lambda):
            inner = ast.iter_child_nodes(node)
        todo += list(inner)[::-1]


def _is_main_guard(node: ast.AST) -> bool:
    """Return whether this is `if __name__ == "__main__":`, whose body does not run: the file is no `__main__` here."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    sides = [node.test.left, *node.test.comparators]
    names = {each.id for each in sides if isinstance(each, ast.Name)}
    values = {each.value for each in sides if isinstance(each, ast.Constant)}
    return names == {"__name__"} and values == {"__main__"} and isinstance(node.test.ops[0], ast.Eq)


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds or unbinds, but for definitions."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
