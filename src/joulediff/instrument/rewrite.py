"""Compile source so that each of its calls passes its callee through a site, at the same lines and columns.

The tree gets a placeholder in front of each callee, a constant that no program has. After the compilation the code
objects get the site in place of the placeholder, so no namespace has a name of ours.
"""

from __future__ import annotations

import ast
import secrets
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

from joulediff.instrument.calls import SourceSite
from joulediff.instrument.sites import Watcher

Source = str | bytes
_FUTURE_ANNOTATIONS = 0x1000000
"""`CO_FUTURE_ANNOTATIONS`: annotations are kept as text, made from the tree."""


def compile_rewritten(
    source: Source, filename: str, watcher: Watcher, *, flags: int = 0, dont_inherit: bool = True
) -> types.CodeType:
    """Return the code of a module whose calls the watcher notices; syntax errors are those of `compile`.

    Code that can only be compiled plain is compiled plain, and `watcher.warnings` says so.
    """
    tree = compile(source, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit)
    rewriter = _Rewriter(watcher, filename)
    rewriter.rewrite(tree)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"'bytes' object is not callable; perhaps you missed a comma\?", SyntaxWarning
        )
        code = compile(tree, filename, "exec", flags, dont_inherit)
    return rewriter.put_sites(code)


class _Rewriter:
    def __init__(self, watcher: Watcher, filename: str) -> None:
        self._watcher = watcher
        self._filename = filename
        self._token = secrets.token_bytes(12)
        self._sites: dict[bytes, Any] = {}

    def rewrite(self, tree: ast.AST) -> None:
        waiting: list[tuple[ast.AST, str]] = [(tree, "")]
        while waiting:
            node, function = waiting.pop()
            inner = function
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{function}.{node.name}" if function else node.name
            for child in ast.iter_child_nodes(node):
                waiting.append((child, inner))
            if isinstance(node, ast.Call):
                self._rewrite_call(node, function or "<module>")

    def _rewrite_call(self, node: ast.Call, function: str) -> None:
        callee = node.func
        place = SourceSite(self._filename, node.lineno, node.col_offset, ast.unparse(callee), function)
        site = self._watcher.site(place, counts_bytes=False)
        if isinstance(callee, ast.Attribute):
            _move_to_attribute(node, callee)
        node.func = self._call(site.callee, callee)

    def _call(self, what: Any, argument: ast.expr) -> ast.Call:
        placeholder = self._token + len(self._sites).to_bytes(4, "little")
        self._sites[placeholder] = what
        constant = ast.copy_location(ast.Constant(placeholder), argument)
        return ast.copy_location(ast.Call(func=constant, args=[argument], keywords=[]), argument)

    def put_sites(self, code: types.CodeType) -> types.CodeType:
        """Return code with the sites in place of their placeholders, in functions inside too."""
        constants = tuple(map(self._replace, code.co_consts))
        return code.replace(co_consts=constants)

    def _replace(self, constant: Any) -> Any:
        if isinstance(constant, types.CodeType):
            return self.put_sites(constant)
        if type(constant) is bytes:
            return self._sites.get(constant, constant)
        return constant


def _move_to_attribute(node: ast.Call, callee: ast.Attribute) -> None:
    """Give a call the place that the compiler gives to a method call: the line of the method's name."""
    if callee.end_lineno is None or callee.end_col_offset is None or callee.end_lineno == node.lineno:
        return
    node.lineno = callee.end_lineno
    node.col_offset = max(0, callee.end_col_offset - len(callee.attr))
