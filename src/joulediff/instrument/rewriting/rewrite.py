"""Compile source so that each of its calls passes its callee through a site, at the same lines and columns.

The tree gets a placeholder in front of each callee, a constant that no program has. After the compilation the code
objects get the site in place of the placeholder, so no namespace has a name of ours.
"""

from __future__ import annotations

import ast
import builtins
import copy
import gc
import io
import secrets
import sys
import tokenize
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joulediff.instrument.rewriting.places import SourcePlaces, move_to_attribute
from joulediff.instrument.rewriting.plain_code import PlainSource, mode_of
from joulediff.instrument.rewriting.sites import BUILTIN_ITERATORS, Site, Watcher

_BUILTIN_NAMES = frozenset(dir(builtins))
# `CO_FUTURE_ANNOTATIONS`: annotations are kept as text that is made from the tree.
_FUTURE_ANNOTATIONS = 0x1000000
# From this version on, annotations are functions whose tree programs can ask for as text.
_LAZY_ANNOTATIONS = sys.version_info >= (3, 14)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Expressions that are no array and hold none.
_NO_ARRAYS = (ast.Constant, ast.JoinedStr, ast.Lambda, ast.Compare, ast.GeneratorExp, ast.Set, ast.SetComp)
# Expressions that make an object of a builtin type, whose iteration no library works for.
_PLAIN_ITERABLES = (
    *_NO_ARRAYS,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.ListComp,
    ast.DictComp,
)
_REWRITTEN = (ast.Call, ast.For, ast.comprehension, *_FUNCTIONS, ast.ClassDef)
_BINDING = (
    ast.Name,
    *_FUNCTIONS,
    ast.ClassDef,
    ast.arg,
    ast.alias,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
)
"""Nodes that may give a value to a name."""
# Nodes without parts that give no value to a name: half of all nodes.
_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
# Nodes whose code has the place of one of their parts: what tests a truth value, or enters a block.
_PLACE_READERS: tuple[type[ast.AST], ...] = (
    (ast.If, ast.While, ast.Assert, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.withitem, ast.comprehension, ast.match_case)
    if sys.version_info >= (3, 12)
    else ()
)


def compile_rewritten(
    source: str | bytes | ast.Module | ast.Expression,
    filename: str,
    watcher: Watcher,
    *,
    flags: int = 0,
    dont_inherit: bool = True,
    text: str | None = None,
    shown: str | None = None,
) -> types.CodeType:
    """Return the code of a module whose calls the watcher notices; syntax errors are those of `compile`.

    `text` is the source of a tree, and `shown` the name of the file, for the names of its sites.

    A file of which only the plain source can be compiled, because its expressions are nested so deeply, is not
    rewritten, and `watcher.warnings` says so.
    """
    with _no_collections():
        tree = compile(source, filename, mode_of(source), flags | ast.PyCF_ONLY_AST, dont_inherit)
        # The tree that is rewritten is the one that was given.
        original = copy.deepcopy(source) if isinstance(source, ast.AST) else source
        plain = PlainSource(original, filename, flags, dont_inherit)
        places = SourcePlaces(as_text(source) if text is None else text, filename if shown is None else shown)
        rewriter = _Rewriter(watcher, plain, places)
        rewriter.rewrite(tree, is_future=bool(flags & _FUTURE_ANNOTATIONS) or _imports_annotations(tree))
        code, reason = _try_compile(tree, filename, flags, dont_inherit=dont_inherit)
        if code is not None:
            return rewriter.put_sites(code)
    code = plain.compile()
    watcher.warnings.append(
        f"{filename} is not rewritten, and its calls are not measured: the compiler refuses it with calls that are "
        f"nested one level deeper ({reason})"
    )
    return code


@contextmanager
def _no_collections() -> Iterator[None]:
    """Let no garbage collection run: a tree is many objects, and collections took half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _try_compile(tree: Any, filename: str, flags: int, *, dont_inherit: bool) -> tuple[types.CodeType | None, str]:
    """Return the code of a tree, or why there is none: whether that is an error of the program, its source decides."""
    try:
        return compile(tree, filename, mode_of(tree), flags, dont_inherit), ""
    except Exception as error:  # noqa: BLE001 - as above
        return None, type(error).__name__


def as_text(source: str | bytes | ast.AST) -> str:
    """Return source as text; empty if it cannot be decoded, which only the names of sites are made from."""
    if isinstance(source, str):
        return source
    if isinstance(source, ast.AST):
        return ""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        return ""


class _Rewriter:
    def __init__(self, watcher: Watcher, plain: PlainSource, places: SourcePlaces) -> None:
        self._watcher = watcher
        self._plain = plain
        self._places = places
        self._token = secrets.token_bytes(12)
        self._replacements: dict[bytes, Any] = {}

    def rewrite(self, tree: ast.AST, *, is_future: bool) -> None:
        """Put placeholders into a tree, without recursion: trees of programs are deep."""
        skips_annotations = is_future or _LAZY_ANNOTATIONS
        bound: set[str] = set()
        found: list[tuple[ast.AST, str]] = []
        waiting: list[tuple[ast.AST, str]] = [(tree, "")]
        while waiting:
            node, function = waiting.pop()
            if isinstance(node, _BINDING):
                bound.update(_names_bound(node))
            waiting.extend(_children(node, function, skips_annotations=skips_annotations))
            if isinstance(node, (*_REWRITTEN, *_PLACE_READERS)):
                found.append((node, function or "<module>"))
        # Calls come last: a parent takes the place of its child before a method call is moved to its method's line.
        for node, function in found:
            if isinstance(node, _PLACE_READERS):
                self._keep_place_of_parts(node, function)
            if isinstance(node, ast.For | ast.comprehension):
                self._rewrite_loop(node, function)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self._rewrite_decorators(node, function)
        for node, function in found:
            if isinstance(node, ast.Call):
                self._rewrite_call(node, function, bound)

    def _rewrite_call(self, node: ast.Call, function: str, bound: set[str]) -> None:
        callee = node.func
        name = callee.id if isinstance(callee, ast.Name) else None
        # The compiler knows this name, and it is no library's. It warns of the call of a constant or a list.
        if name == "super" or isinstance(callee, _PLAIN_ITERABLES):
            return
        if isinstance(callee, ast.Attribute):
            move_to_attribute(node, callee)
        site = self._make_site(node, callee, function)
        if name is not None and name in BUILTIN_ITERATORS and name not in bound:
            for index, argument in enumerate(node.args):
                if index < BUILTIN_ITERATORS[name] and not isinstance(argument, (*_PLAIN_ITERABLES, ast.Starred)):
                    node.args[index] = self._call(site.builtin_argument, argument)
        elif name is None or name not in _BUILTIN_NAMES or name in bound:
            self._wrap_arguments(node, site)
        node.func = self._call(site.callee, callee)

    def _wrap_arguments(self, node: ast.Call, site: Site) -> None:
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                if _may_be_array(argument.value):
                    argument.value = self._call(site.argument, argument.value)
                    site.counts_bytes = True
            elif _may_be_array(argument):
                node.args[index] = self._call(site.argument, argument)
                site.counts_bytes = True
        for keyword in node.keywords:
            if _may_be_array(keyword.value):
                keyword.value = self._call(site.argument, keyword.value)
                site.counts_bytes = True

    def _keep_place_of_parts(self, node: ast.AST, function: str) -> None:
        """Put a site at the place of a call that is moved, for a parent that reads the place of that call."""
        for name, value in ast.iter_fields(node):
            if name in ("test", "guard", "context_expr", "operand") and _is_moved(value):
                setattr(node, name, self._call(self._make_site(value, value, function).unchanged, value))
            elif name in ("values", "ifs"):
                for index, each in enumerate(value):
                    if _is_moved(each):
                        value[index] = self._call(self._make_site(each, each, function).unchanged, each)

    def _rewrite_decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, function: str) -> None:
        for index, decorator in enumerate(node.decorator_list):
            site = self._make_site(decorator, decorator, function)
            node.decorator_list[index] = self._call(site.callee, decorator)

    def _rewrite_loop(self, node: ast.For | ast.comprehension, function: str) -> None:
        if not isinstance(node.iter, _PLAIN_ITERABLES):
            site = self._make_site(node.iter, node.iter, function)
            node.iter = self._call(site.iterate, node.iter)

    def _make_site(self, node: ast.expr, named: ast.expr, function: str) -> Site:
        return self._watcher.site(self._places.place(node, named, function), self._plain)

    def _call(self, what: Any, argument: ast.expr) -> ast.Call:
        placeholder = self._token + len(self._replacements).to_bytes(4, "little")
        self._replacements[placeholder] = what
        # The compiler warns of the call of a constant, and not of this, which makes the same code.
        place: dict[str, Any] = {
            "lineno": argument.lineno,
            "col_offset": argument.col_offset,
            "end_lineno": argument.end_lineno,
            "end_col_offset": argument.end_col_offset,
        }
        constant = ast.Constant(placeholder, **place)
        choice = ast.IfExp(ast.Constant(True, **place), constant, constant, **place)
        return ast.Call(choice, [argument], [], **place)

    def put_sites(self, code: types.CodeType) -> types.CodeType:
        """Return code with the sites in place of their placeholders, in functions inside too."""
        return code.replace(co_consts=tuple(map(self._replace, code.co_consts)))

    def _replace(self, constant: Any) -> Any:
        if isinstance(constant, types.CodeType):
            return self.put_sites(constant)
        if type(constant) is bytes:
            return self._replacements.get(constant, constant)
        return constant


def _children(node: ast.AST, function: str, *, skips_annotations: bool) -> Iterator[tuple[ast.AST, str]]:
    """Yield the parts of a node, each with the function that it runs in."""
    inner = function
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        inner = f"{function}.{node.name}" if function else node.name
    for name in node._fields:
        value = getattr(node, name, None)
        if skips_annotations and name in ("annotation", "returns"):
            continue
        place = inner if name == "body" else function
        if isinstance(value, list):
            for each in value:
                if isinstance(each, ast.AST) and not isinstance(each, _LEAVES):
                    yield each, place
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            yield value, place


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node may give a value to; of `import *`, all of them."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        if node.name == "*":
            yield from BUILTIN_ITERATORS
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest


def _imports_annotations(tree: ast.AST) -> bool:
    return isinstance(tree, ast.Module) and any(
        isinstance(each, ast.ImportFrom)
        and each.module == "__future__"
        and any(alias.name == "annotations" for alias in each.names)
        for each in tree.body
    )


def _may_be_array(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and not isinstance(node.operand, ast.Constant)
    return not isinstance(node, _NO_ARRAYS)


def _is_moved(node: Any) -> bool:
    """Return whether an expression is a call that `move_to_attribute` moves."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.end_lineno != node.lineno
