"""What a caller wrote for a parameter, found past wrappers that hand on all they are given."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from joulediff.own import is_ours
from joulediff.recorders.scopes import MAX_FRAMES, MISSING, RECEIVERS, FrameScope
from joulediff.recorders.statements import FunctionNode
from joulediff.recorders.syntax import call_of, function_of


@dataclass(frozen=True)
class Given:
    """How a parameter got its value: the expression, and the frame it was written in; no frame for a default."""

    expression: ast.expr
    caller: FrameType | None
    level: int


def find_argument(scope: FrameScope, name: str) -> Given | None:
    """Return the expression that a caller gave for a parameter, past wrappers that hand on all they are given."""
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
    """Return which argument of the caller it must be, -1 for one by keyword alone; None where none is handed on."""
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
