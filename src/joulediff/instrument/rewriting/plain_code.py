"""The plain code of rewritten functions, for compilers that read the code of a function instead of running it."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any, Literal


def mode_of(source: str | bytes | ast.AST) -> Literal["exec", "eval"]:
    """Return the mode in which `compile` takes source: all of it but the tree of an expression is a module."""
    return "eval" if isinstance(source, ast.Expression) else "exec"


class PlainSource:
    """The source of one file, compiled as it is when it is asked for."""

    def __init__(self, source: str | bytes | ast.AST, filename: str, flags: int, dont_inherit: bool) -> None:  # noqa: FBT001
        self._source = source
        self.filename = filename
        self._flags = flags
        self._dont_inherit = dont_inherit
        self._codes: dict[tuple[str, str, int], list[types.CodeType]] | None = None

    def compile(self) -> types.CodeType:
        """Return the code of the source, not rewritten."""
        source: Any = self._source
        code: types.CodeType = compile(source, self.filename, mode_of(source), self._flags, self._dont_inherit)
        return code

    def find(self, rewritten: types.CodeType) -> types.CodeType | None:
        """Return the code that stands for a function in the plain source; None if it cannot be told apart."""
        if self._codes is None:
            self._codes = {}
            for code in _walk(self.compile()):
                self._codes.setdefault(_key(code), []).append(code)
        found = self._codes.get(_key(rewritten), [])
        if len(found) > 1:
            found = [each for each in found if _end(each) == _end(rewritten)]
        return found[0] if len(found) == 1 else None


def plain_code(code: types.CodeType) -> types.CodeType:
    """Return the plain code of a rewritten function; any other code as it is."""
    source = _source_of(code)
    return code if source is None else source.find(code) or code


def _source_of(code: types.CodeType) -> PlainSource | None:
    for constant in code.co_consts:
        found = None
        if isinstance(constant, types.MethodType):
            found = getattr(constant.__self__, "plain", None)
        elif isinstance(constant, types.CodeType):
            found = _source_of(constant)
        if isinstance(found, PlainSource):
            return found
    return None


def _key(code: types.CodeType) -> tuple[Any, ...]:
    names = code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, getattr(code, "co_qualname", ""), code.co_firstlineno, code.co_flags, *names


def _end(code: types.CodeType) -> Any:
    """Return the place of the last expression: two functions on one line end at different columns."""
    positions = getattr(code, "co_positions", None)
    return None if positions is None else max((each for each in positions() if None not in each), default=None)


def _walk(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk(constant)
