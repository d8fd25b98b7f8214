"""Puts `measured(...)` around the callees of a program's source, adds the import, and takes both out again.

Only characters are inserted, each callee is still evaluated once and at its place: `f(a)` becomes `measured(f)(a)`. No
line is joined or split, so the lines of a patched file are those of the program, further down by the added lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from joulediff.instrument.patch.edits import TextEdit, apply_edits, to_characters
from joulediff.instrument.patch.header import Header, choose_name, find_header, header_lines
from joulediff.instrument.patch.own_names import OwnNames, find_own_names
from joulediff.model.errors import ProgramError
from joulediff.pysource.source_files import split_lines

if TYPE_CHECKING:
    import libcst as cst

Level = Literal["method", "project"]

# libcst drops the form feeds at the begin of a line. They matter for no place in it.
_FORM_FEEDS = re.compile(r"^[ \t\f]*\f", re.MULTILINE)
# Decorators that read the source or the bytecode of their function: what they make of it must not change.
_READERS = frozenset(
    {"jit", "njit", "function", "script", "script_method", "compile", "vectorize", "guvectorize", "cfunc"}
)


@dataclass(frozen=True, slots=True)
class PatchRequest:
    """What to add: the libraries whose calls are measured, and what is known about the program's modules."""

    libraries: tuple[str, ...]
    program: str
    """The program's file, seen from the folder of the patched one."""
    level: Level = "method"
    other: frozenset[str] = frozenset()
    """Known libraries that are not measured."""
    local: frozenset[str] = frozenset()
    """Modules beside the program, which hide those of the standard library."""


@dataclass(frozen=True, slots=True)
class SourceEdits:
    """The changes of one text, and how many calls they measure."""

    edits: tuple[TextEdit, ...]
    calls: int


def parse_python(text: str, name: str) -> ast.Module:
    """Return the tree of a program's text. `name` is its file, for the error."""
    try:
        return ast.parse(text, name)
    except SyntaxError as error:
        shown = (error.text or "").strip()
        raise ProgramError(
            f"{name}, line {error.lineno or 1}: {error.msg}" + (f": {shown}" if shown else ""),
            fix="correct the line: a program is patched only if Python can read it",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(
            f"Python cannot read {name}: {error or 'it is nested too deeply'}",
            fix="check that it is the source of a Python program",
        ) from error


def patch_source(text: str, name: str, request: PatchRequest) -> SourceEdits:
    """Return the changes that measure a program. Raises if it is patched already or has nothing to measure."""
    refuse_patched(text, name)
    tree = parse_python(text, name)
    own = find_own_names([tree], other=request.other, local=request.local)
    begin = find_header_place(text, tree, name)
    wrapper = choose_name(own.every)
    found = wrap_calls(text, name, own, wrapper, begin=begin) if request.level == "method" else SourceEdits((), 0)
    if request.level == "method" and not found.calls:
        raise nothing_to_measure(name, request.libraries)
    added = add_header(text, wrapper, request, begin)
    return SourceEdits((added, *found.edits), found.calls)


def add_header(text: str, wrapper: str, request: PatchRequest, begin: int) -> TextEdit:
    """Return the change that adds the import at the offset `begin` of a text."""
    lines = header_lines(wrapper, request.program, request.libraries if request.level == "method" else ())
    return TextEdit(begin, begin, "".join(line + newline_of(text) for line in lines))


def find_header_place(text: str, tree: ast.Module, name: str) -> int:
    """Return the offset of the line for the import: behind the first comments, the docstring and `__future__`."""
    lines = split_lines(text)
    at = _last_line_of_begin(tree)
    if at == 0:
        # The encoding may be declared in the second line.
        while at < len(lines) and (lines[at].startswith("#") or (at == 0 and not lines[at].strip())):
            at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at == len(lines):
        raise ProgramError(f"{name} has no code to measure", fix="patch the file that runs the program")
    return sum(map(len, lines[:at]))


def _last_line_of_begin(tree: ast.Module) -> int:
    """Return the last line of the docstring and the imports from `__future__`, 0 without them."""
    last = 0
    for number, statement in enumerate(tree.body):
        is_docstring = number == 0 and ast.get_docstring(tree, clean=False) is not None
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if is_docstring or is_future or statement.lineno == last:  # the last: behind a semicolon
            last = statement.end_lineno or statement.lineno
        else:
            break
    return last


def newline_of(text: str) -> str:
    """Return what ends the first line of a text."""
    return "\r\n" if text.find("\r\n") + 1 == text.find("\n") > 0 else "\n"


def nothing_to_measure(name: str, libraries: tuple[str, ...]) -> ProgramError:
    """Return the error for a program without a call that a library might answer."""
    return ProgramError(
        f"no call in {name} can be one of {', '.join(libraries)}",
        fix="patch the file that calls the library, or measure the whole program: --level project",
    )


def wrap_calls(text: str, name: str, own: OwnNames, wrapper: str, *, begin: int = 0) -> SourceEdits:
    """Return the changes that measure the calls of a text behind the offset `begin`."""
    read = _FORM_FEEDS.sub("", text)
    module, spans = _parse_exactly(read, name)
    edits = []
    for call in _calls_in(module):
        if not _may_be_of_a_library(call.func, own):
            continue
        first = call.func.lpar[0] if call.func.lpar else call.func
        last = call.func.rpar[-1] if call.func.rpar else call.func
        start, end = spans[first].start, spans[last].start + spans[last].length
        edits += [TextEdit(start, start, f"{wrapper}("), TextEdit(end, end, ")")]
    kept = [each for each in _place_in(text, to_characters(read, edits)) if each.start >= begin]
    return SourceEdits(tuple(kept), len(kept) // 2)


def refuse_patched(text: str, name: str) -> None:
    """Raise if a text is patched already: its calls would be measured twice."""
    if find_header(text) is not None:
        raise ProgramError(
            f"{name} is patched already", fix=f"run it, or take the patch out: joulediff patch --undo {name} -o FILE"
        )


def unpatch_source(text: str, name: str, header: Header) -> SourceEdits:
    """Return the changes that take out what `patch_source` added."""
    found = unwrap_calls(text, name, header.name)
    return SourceEdits((TextEdit(header.start, header.end, ""), *found.edits), found.calls)


def unpatch_text(text: str, name: str, wrapper: str) -> str:
    """Return a text without the patch; a cell of a notebook may have `wrapper(...)` and no import."""
    header = find_header(text)
    found = unwrap_calls(text, name, wrapper) if header is None else unpatch_source(text, name, header)
    return apply_edits(text, found.edits)


def unwrap_calls(text: str, name: str, wrapper: str) -> SourceEdits:
    """Return the changes that take `wrapper(...)` off the callees of a text."""
    import libcst as cst

    read = _FORM_FEEDS.sub("", text)
    module, spans = _parse_exactly(read, name)
    edits = []
    for call in _calls_in(module):
        inner = call.func
        if isinstance(inner, cst.Call) and _is_name(inner.func, wrapper) and len(inner.args) == 1:
            outside, inside = spans[inner], spans[inner.args[0]]
            edits.append(TextEdit(outside.start, inside.start, ""))
            edits.append(TextEdit(inside.start + inside.length, outside.start + outside.length, ""))
    return SourceEdits(tuple(_place_in(text, to_characters(read, edits))), len(edits) // 2)


def _place_in(text: str, edits: Iterable[TextEdit]) -> Iterator[TextEdit]:
    """Yield edits of a text without the form feeds as edits of the text."""
    left_out = [(found.start(), len(found[0])) for found in _FORM_FEEDS.finditer(text)]
    for edit in edits:
        start, end = edit.start, edit.end
        for place, length in left_out:
            start += length if place <= start else 0
            end += length if place <= end else 0
        yield TextEdit(start, end, edit.text)


def _parse_exactly(text: str, name: str) -> tuple[cst.Module, Mapping[cst.CSTNode, Any]]:
    """Return the tree of a text that Python can read, and the span of each node in its UTF-8."""
    import libcst as cst
    from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

    try:
        module = cst.parse_module(text)
        # It drops the last end of a line behind a backslash in a comment, which is behind all calls.
        is_exact = module.code.rstrip("\r\n") == text.rstrip("\r\n")
        spans = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider) if is_exact else {}
    except cst.ParserSyntaxError as error:
        raise _cannot_read(name, f"line {error.raw_line}") from error
    except RecursionError as error:
        raise _cannot_read(name, "it is nested too deeply") from error
    if not is_exact:
        raise _cannot_read(name, "it has unusual ends of lines")
    return module, spans


def _cannot_read(name: str, why: str) -> ProgramError:
    return ProgramError(
        f"libcst cannot read {name} ({why})",
        fix="measure it without a patch: joulediff apis, or patch a part of it in a file of its own",
    )


def _calls_in(module: cst.Module) -> Iterator[cst.Call]:
    """Yield the calls that run as they stand: none in annotations, and none that a decorator reads as source."""
    import libcst as cst

    left: list[cst.CSTNode] = [module]
    while left:
        node = left.pop()
        if isinstance(node, (cst.Annotation, cst.TypeAlias)):
            continue
        if isinstance(node, cst.FormattedStringExpression) and node.equal is not None:
            continue  # f"{f(x)=}" prints its own source
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)) and any(map(_is_reader, node.decorators)):
            left += node.decorators
            continue
        if isinstance(node, cst.Call):
            yield node
        left += node.children


def _is_reader(decorator: cst.Decorator) -> bool:
    import libcst as cst

    node: cst.BaseExpression = decorator.decorator
    if isinstance(node, cst.Call):
        # `@partial(jit, ...)` names it in the first argument.
        first = [node.args[0].value] if node.args else []
        return any(_last_name(each) in _READERS for each in (node.func, *first))
    return _last_name(node) in _READERS


def _last_name(node: cst.BaseExpression) -> str | None:
    import libcst as cst

    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    import libcst as cst

    return isinstance(node, cst.Name) and node.value == name


def _may_be_of_a_library(callee: cst.BaseExpression, own: OwnNames) -> bool:
    import libcst as cst

    depth = 0
    node = callee
    while isinstance(node, cst.Attribute):
        node = node.value
        depth += 1
    if isinstance(node, cst.Name):
        if depth == 0:
            return node.value not in own.callees
        is_known_object = depth == 1 and node.value in own.objects | own.builtins
        return not is_known_object and node.value not in own.modules
    if depth == 0:
        return not isinstance(node, cst.Lambda)
    literals = (cst.BaseString, cst.BaseNumber, cst.BaseList, cst.BaseSet, cst.BaseDict, cst.Tuple)
    return depth > 1 or not isinstance(node, literals)
