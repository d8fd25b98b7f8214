"""Follows a value back through assignments, arguments and attributes to the place where a person set it.

Values are read from running frames and their objects. The earlier statements of a caller, or of a method that has
returned, are read from source: such a step is the likeliest assignment, not an observed one.
"""

from __future__ import annotations

import ast
import enum
import inspect
import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from joulediff.model.place import Place
from joulediff.model.run import MAX_SETTING_CHARS, Setting, to_setting
from joulediff.pysource.call_path import name_file
from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.framework_hints import NO_HINTS, FrameworkHints
from joulediff.pysource.line_trace import OriginKind, TraceStep
from joulediff.pysource.tracing.expression_reads import Atom, Link, atoms_of
from joulediff.pysource.tracing.scopes import (
    CONFIG,
    MAX_FRAMES,
    MISSING,
    RECEIVERS,
    FrameScope,
    MethodScope,
    Scope,
    ask,
    evaluate,
)
from joulediff.pysource.tracing.statements import (
    FunctionNode,
    Statement,
    call_of,
    enclosing,
    function_of,
    parse_file,
    self_assignments,
    statement_at,
    statements_of,
)

# Eight callers, each with a local name between parameter and argument.
MAX_DEPTH = 16
MAX_STEPS_OF_ATOM = 100


@dataclass(frozen=True, slots=True)
class Binding:
    """A name that a statement of the traced call set. `at` numbers the executed statements."""

    at: int
    text: str
    place: Place
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """A chain that was read, and its value. `owner` is the object that its last link was read from."""

    atom: Atom
    scope: Scope
    owner: Any
    value: Setting
    exact: bool
    depth: int

    @property
    def root(self) -> str:
        """Return the name that the chain begins with."""
        return str(self.atom.links[0].name)


class Origins:
    """Collects the steps of one trace. It refers to no frame and no value of the program."""

    def __init__(self, root: Path | None = None, hints: FrameworkHints = NO_HINTS) -> None:
        self.steps: list[TraceStep] = []
        self._hints = hints
        self._root = str(root or Path.cwd()) + os.sep
        self._known: dict[object, int | None] = {}
        self._open: set[object] = set()
        self._left = 0

    def read(self, atoms: Iterable[Atom], scope: FrameScope) -> tuple[int, ...]:
        """Return the steps of atoms with their present values, if they can be read."""
        return self._all(atoms, scope, 0, fresh=True)

    def sources(self, expression: ast.expr | None, scope: Scope, depth: int = 0) -> tuple[int, ...]:
        """Return the steps of the values in an expression; of a literal, its own."""
        if expression is None:
            return ()
        literal = _literal(expression)
        if literal is MISSING:
            return self._all(atoms_of([expression]), scope, depth, fresh=depth == 0)
        value, exact = describe(literal)
        text = ast.unparse(expression)[:MAX_SETTING_CHARS]
        place = self.place(scope.file, expression.lineno, scope.function)
        return (self._add(TraceStep("constant", text, text, text, value, exact, place)),)

    def place(self, file: str, line: int, function: str) -> Place:
        """Return a line of a file, named as call paths name it."""
        return Place(
            name_file(file, self._root, self._hints)[0], line, function, linecache.getline(file, line).strip() or None
        )

    def _all(self, atoms: Iterable[Atom], scope: Scope, depth: int, *, fresh: bool = False) -> tuple[int, ...]:
        found: list[int] = []
        for atom in atoms:
            if fresh:
                self._left = MAX_STEPS_OF_ATOM
            found += self._resolve(atom, scope, depth)
        return tuple(dict.fromkeys(found))

    def _add(self, step: TraceStep) -> int:
        known = self._known.get(step)
        if known is None:
            known = self._known[step] = len(self.steps)
            self.steps.append(step)
            self._left -= 1
        return known

    def _resolve(self, atom: Atom, scope: Scope, depth: int) -> tuple[int, ...]:
        if depth > MAX_DEPTH or self._left <= 0:
            return ()
        if atom.kind == "environment":
            return (self._add(self._leaf("environment", atom, scope, os.environ.get(atom.text))),)
        if atom.kind == "call":
            value = ask(atom, scope, self._hints.is_predicate)
            return () if value is MISSING else (self._add(self._leaf("call", atom, scope, value)),)
        objects = evaluate(atom.links, scope)
        if not objects:
            return self._through_local(atom, scope, depth)
        seen = Seen(atom, scope, objects[-2] if len(objects) > 1 else None, *describe(objects[-1], self._hints), depth)
        found = self._once(seen)
        return () if found is None else (found,)

    def _leaf(self, kind: OriginKind, atom: Atom, scope: Scope, value: object) -> TraceStep:
        setting, exact = describe(value, self._hints)
        place = self.place(scope.file, scope.line, scope.function)
        return TraceStep(kind, atom.text, atom.text.removesuffix("()"), atom.text, setting, exact, place)

    def _through_local(self, atom: Atom, scope: Scope, depth: int) -> tuple[int, ...]:
        """Return the sources of a local name of a method that has returned: the name itself has no value any more."""
        if not isinstance(scope, MethodScope):
            return ()
        name = str(atom.links[0].name)
        values = [bind.value for each in statements_of(scope.node) for bind in each.binds if bind.name == name]
        mark = ("local", scope.key, name)
        if mark in self._open or not values:
            return ()
        self._open.add(mark)
        try:
            return tuple(each for value in values for each in self.sources(value, scope, depth + 1))
        finally:
            self._open.discard(mark)

    def _once(self, seen: Seen) -> int | None:
        binding = seen.scope.bound.get(seen.root) if isinstance(seen.scope, FrameScope) else None
        mark = (seen.scope.key, seen.atom.text, seen.value, type(seen.value), binding and binding.at)
        if mark in self._known:
            return self._known[mark]
        if mark in self._open:
            return None
        self._open.add(mark)
        try:
            found = self._step(seen)
        finally:
            self._open.discard(mark)
        if self._left > 0:  # else cut short
            self._known[mark] = found
        return found

    def _step(self, seen: Seen) -> int | None:
        links = seen.atom.links
        if len(links) == 1:
            return self._name(seen)
        if any(CONFIG.fullmatch(str(link.name)) for link in links[:-1]) and not isinstance(seen.owner, tuple | list):
            return self._made(seen, "config", _config_key(links), seen.atom.text, self._here(seen))
        if not seen.scope.is_local(seen.root) or isinstance(seen.owner, ModuleType):
            return self._global(seen)
        return self._attribute(seen)

    def _made(
        self, seen: Seen, kind: OriginKind, key: str, text: str, place: Place | None, sources: tuple[int, ...] = ()
    ) -> int:
        return self._add(
            TraceStep(kind, seen.atom.text, key, text[:MAX_SETTING_CHARS], seen.value, seen.exact, place, sources)
        )

    def _here(self, seen: Seen) -> Place:
        return self.place(seen.scope.file, seen.scope.line, seen.scope.function)

    def _name(self, seen: Seen) -> int | None:
        scope, name = seen.scope, seen.root
        if scope.is_receiver(name):
            return None
        if isinstance(scope, MethodScope):
            return self._kept(seen, scope) if scope.is_local(name) else self._global(seen)
        if name in scope.bound:
            binding: Binding = scope.bound[name]
            return self._made(seen, "assignment", name, binding.text, binding.place, binding.sources)
        if not scope.is_local(name):
            return self._global(seen)
        code = scope.frame.f_code
        # The traced frame got every name that it did not set as an argument.
        assigned = self._assigned(seen, scope, function_of(code)) if scope.level else None
        if assigned is not None and not self._is_as_given(seen, scope):
            return assigned
        if name in code.co_freevars:
            assigned = self._assigned(seen, scope, enclosing(code))
            return assigned if assigned is not None else self._made(seen, "assignment", name, name, self._here(seen))
        return self._argument(seen, scope)

    def _kept(self, seen: Seen, scope: MethodScope) -> int | None:
        """Return the step of a method's parameter that the object stored under the same name."""
        receiver = (scope.node.args.posonlyargs + scope.node.args.args)[0].arg
        links = (Link(receiver), *seen.atom.links)
        found = self._resolve(Atom("chain", f"{receiver}.{seen.root}", links), scope, seen.depth + 1)
        return found[0] if found else None

    def _assigned(self, seen: Seen, scope: FrameScope, node: FunctionNode | None) -> int | None:
        if node is None:
            return None
        running = statement_at(node, scope.line)
        all_of_it = [
            (each, bind.value) for each in statements_of(node) for bind in each.binds if bind.name == seen.root
        ]
        before = [pair for pair in all_of_it if pair[0].first <= scope.line and pair[0] is not running]
        if not (before or all_of_it):
            return None
        statement, value = _likeliest(before or all_of_it, seen.value)
        sources = self._with_tests(value, statement, scope, seen.depth)
        place = self.place(scope.file, statement.first, scope.function)
        return self._made(
            seen, "assignment", seen.root, ast.unparse(value) if value else statement.text, place, sources
        )

    def _is_as_given(self, seen: Seen, scope: FrameScope) -> bool:
        """Return whether a parameter that is reassigned only under a condition still has the value of its argument."""
        node, code = function_of(scope.frame.f_code), scope.frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if node is None or not seen.exact or seen.root not in names:
            return False
        setting = [each for each in statements_of(node) if seen.root in (bind.name for bind in each.binds)]
        if not all(each.tests for each in setting):
            return False
        given = self.steps[self._argument(seen, scope)]
        return any(self.steps[at].value == seen.value for at in given.sources)

    def _with_tests(self, value: ast.expr | None, statement: Statement, scope: Scope, depth: int) -> tuple[int, ...]:
        """Return the sources of an assignment: those of its expression, and those of the tests around it."""
        tests = self._all(atoms_of(statement.tests), scope, depth + 1)
        return tuple(dict.fromkeys((*self.sources(value, scope, depth + 1), *tests)))

    def _argument(self, seen: Seen, scope: FrameScope) -> int:
        given = find_argument(scope, seen.root)
        if given is None:
            return self._made(seen, "argument", seen.root, seen.root, self._here(seen))
        outer = scope if given.caller is None else FrameScope(given.caller, given.level)
        sources = self.sources(given.expression, outer, seen.depth + 1)
        place = self.place(outer.file, given.expression.lineno, outer.function)
        return self._made(seen, "argument", seen.root, ast.unparse(given.expression), place, sources)

    def _global(self, seen: Seen) -> int:
        module = parse_file(seen.scope.file)
        statements = statements_of(module.tree) if module else ()
        found = [(each, bind.value) for each in statements for bind in each.binds if bind.name == seen.root]
        if not found:
            return self._made(seen, "global", seen.atom.text, seen.atom.text, self._here(seen))
        statement, value = _likeliest(found, seen.value)
        place = self.place(seen.scope.file, statement.first, "<module>")
        return self._made(seen, "global", seen.atom.text, ast.unparse(value) if value else statement.text, place)

    def _attribute(self, seen: Seen) -> int | None:
        last = seen.atom.links[-1]
        key = seen.atom.text if last.item else f"{type(seen.owner).__name__}.{last.name}"
        mark = ("attribute", id(seen.owner), last.name)
        if mark in self._open:
            return None
        self._open.add(mark)
        try:
            found = None if last.item else _setter(seen.owner, str(last.name), seen.value, seen.scope.frame)
            if found is None:
                before = Atom("chain", seen.atom.text.rpartition(".")[0] or seen.root, seen.atom.links[:-1])
                sources = self._resolve(before, seen.scope, seen.depth + 1)
                return self._made(seen, "attribute", key, seen.atom.text, self._here(seen), sources)
            value: ast.expr = found.statement.node.value  # type: ignore[attr-defined]
            sources = self._with_tests(value, found.statement, found, seen.depth)
            place = self.place(found.file, found.line, found.function)
            return self._made(seen, "attribute", key, ast.unparse(value), place, sources)
        finally:
            self._open.discard(mark)


def _config_key(links: tuple[Link, ...]) -> str:
    """Return `config.` with the links after the last one that is a configuration."""
    at = max(at for at, link in enumerate(links[:-1]) if CONFIG.fullmatch(str(link.name)))
    return ".".join(["config", *(str(link.name) for link in links[at + 1 :])])


def _setter(owner: Any, name: str, value: Setting, frame: FrameType) -> MethodScope | None:
    """Return the method that set an attribute: `__init__` of the class or of one above it, or any other."""
    found = list(_setters(owner, name, frame))
    first = [each for each in found if each.function.endswith(".__init__")]
    for group in (first, [each for each in found if each not in first]):
        pairs = [(each.statement, each.statement.node.value) for each in group]  # type: ignore[attr-defined]
        if pairs:
            chosen, assigned = _likeliest(pairs, value)
            literal = _literal(assigned) if assigned else MISSING
            if literal is MISSING or describe(literal)[0] == value or group is not first or len(found) == len(first):
                return next(each for each in group if each.statement is chosen)
    return None


def _setters(owner: Any, name: str, frame: FrameType) -> Iterator[MethodScope]:
    for cls in type(owner).__mro__:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        module = parse_file(file) if file and file.endswith(".py") else None
        if module is None or not file:
            continue
        for method, node, statement in self_assignments(module, cls.__qualname__, name):
            function = f"{cls.__qualname__}.{method}"
            yield MethodScope(owner, node, statement, file, cls.__module__, function, frame)


def _likeliest(found: list[tuple[Statement, ast.expr | None]], value: Setting) -> tuple[Statement, ast.expr | None]:
    """Return the assignment that gave a value: one of that literal, otherwise the last one without a literal."""
    literals = [(pair, _literal(pair[1]) if pair[1] is not None else MISSING) for pair in found]
    same = [pair for pair, literal in literals if literal is not MISSING and describe(literal)[0] == value]
    other = [pair for pair, literal in literals if literal is MISSING]
    return (same or other or found)[-1]


def _literal(expression: ast.expr) -> Any:
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return MISSING


@dataclass(frozen=True)
class Given:
    """How a parameter got its value: the expression, and the frame it was written in; no frame for a default."""

    expression: ast.expr
    caller: FrameType | None
    level: int


def find_argument(scope: FrameScope, name: str) -> Given | None:
    """Return a caller's expression for a parameter, past wrappers that forward `*args` and `**kwargs`."""
    code = scope.frame.f_code
    positional = code.co_varnames[: code.co_argcount]
    frame, at = scope.frame, positional.index(name) if name in positional else None
    receiver = _receiver(frame)
    for level in range(scope.level + 1, scope.level + MAX_FRAMES):
        caller = frame.f_back
        call = call_of(caller, frame.f_code) if caller and not is_ours(caller.f_code.co_filename) else None
        if caller is None or call is None:
            return None
        place = at if at is None else at - _is_receiver_implied(call, frame, caller, receiver)
        expression = _written(call, place, name)
        if expression is not None:
            return Given(expression, caller, level)
        handed = _handed_on(call, place, caller)
        if handed is None:
            default = _default(function_of(code), name)
            return Given(default, None, level) if default is not None else None
        frame, at = caller, handed if handed >= 0 else None
        receiver = receiver if (own := _receiver(frame)) is MISSING else own
    return None


def _is_receiver_implied(call: ast.Call, frame: FrameType, caller: FrameType, receiver: Any) -> bool:
    """Return whether the first argument is the receiver of a bound method, which the call does not write out."""
    if receiver is MISSING or _first_value(frame) is not receiver:
        return False
    if not call.args:
        return True
    begin = call.args[0]
    name = begin.value if isinstance(begin, ast.Starred) else begin
    given = FrameScope(caller, 0).read(name.id) if isinstance(name, ast.Name) else MISSING
    if isinstance(begin, ast.Starred):
        given = given[0] if isinstance(given, tuple) and given else MISSING
    return given is not receiver


def _receiver(frame: FrameType) -> Any:
    """Return the object whose method a frame runs."""
    first = _first_name(frame.f_code)
    return frame.f_locals.get(first, MISSING) if first in RECEIVERS else MISSING


def _first_name(code: CodeType) -> str | None:
    return code.co_varnames[0] if code.co_argcount else None


def _first_value(frame: FrameType) -> Any:
    """Return the first positional argument that a frame was given, also where it takes all as one tuple."""
    if (first := _first_name(frame.f_code)) is not None:
        return frame.f_locals.get(first, MISSING)
    rest, _ = _catch_all(frame.f_code)
    values = frame.f_locals.get(rest, ()) if rest else ()
    return values[0] if values else MISSING


def _catch_all(code: CodeType) -> tuple[str | None, str | None]:
    """Return the names of `*args` and `**kwargs`, where a function has them."""
    count = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[count] if code.co_flags & inspect.CO_VARARGS else None
    more = code.co_varnames[count + bool(rest)] if code.co_flags & inspect.CO_VARKEYWORDS else None
    return rest, more


def _written(call: ast.Call, place: int | None, name: str) -> ast.expr | None:
    starred = [at for at, each in enumerate(call.args) if isinstance(each, ast.Starred)]
    explicit = call.args[: starred[0]] if starred else call.args
    if place is not None and 0 <= place < len(explicit):
        return explicit[place]
    return next((each.value for each in call.keywords if each.arg == name), None)


def _handed_on(call: ast.Call, place: int | None, caller: FrameType) -> int | None:
    """Return the position of the caller's argument that is forwarded, -1 for a keyword alone; None if none is."""
    rest, more = _catch_all(caller.f_code)
    starred = [at for at, each in enumerate(call.args) if isinstance(each, ast.Starred) and _is(each.value, rest)]
    if starred and place is not None:
        return place - starred[0] + caller.f_code.co_argcount
    return -1 if any(each.arg is None and _is(each.value, more) for each in call.keywords) else None


def _is(node: ast.expr, name: str | None) -> bool:
    return name is not None and isinstance(node, ast.Name) and node.id == name


def _default(node: FunctionNode | None, name: str) -> ast.expr | None:
    if node is None:
        return None
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = dict(zip((each.arg for each in reversed(positional)), reversed(node.args.defaults), strict=False))
    named = zip((each.arg for each in node.args.kwonlyargs), node.args.kw_defaults, strict=True)
    return {**defaults, **{each: value for each, value in named if value is not None}}.get(name)


# Sizes, strides and paddings are reported; longer tuples are data.
MAX_ITEMS = 8
# A recording stores integers of 64 bits.
MAX_INT = 2**64

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)


def describe(value: Any, hints: FrameworkHints = NO_HINTS) -> tuple[Setting, bool]:
    """Return a value as a setting, and whether it is the value itself rather than a description of it."""
    text = f"<{type(value).__name__}>"
    with suppress(Exception):  # a class of the program's own may raise anything
        if (found := _exact(value)) is not NotImplemented:
            return (found[:MAX_SETTING_CHARS] if isinstance(found, str) else found), True
        text = hints.describe_value(value) or _description(value) or text
    return str(to_setting(text))[:MAX_SETTING_CHARS], False


def _exact(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple | list):
        items = [_exact(each) for each in value[:MAX_ITEMS] if not isinstance(each, tuple | list)]
        is_exact = len(items) == len(value) and NotImplemented not in items
        texts = [each if isinstance(own, slice) else repr(each) for own, each in zip(value, items, strict=False)]
        return f"({', '.join(texts)})" if is_exact else NotImplemented
    if isinstance(value, slice):
        parts = [_exact(each) for each in (value.start, value.stop, value.step)]
        return NotImplemented if NotImplemented in parts else f"slice({', '.join(map(repr, parts))})"
    if isinstance(value, int) and abs(value) >= MAX_INT:
        return NotImplemented
    with suppress(TypeError):
        return to_setting(value)
    return NotImplemented


def _description(value: Any) -> str | None:
    if isinstance(value, ModuleType):
        return value.__name__
    return qualified(value) if isinstance(value, _FUNCTIONS) else None


def qualified(thing: Any) -> str:
    """Return the name of a class or function, with its module where it has one."""
    name = getattr(thing, "__qualname__", None) or thing.__name__
    module = getattr(thing, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else str(name)
