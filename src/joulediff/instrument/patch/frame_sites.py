"""Finds which call of a patched file a frame is at, as a place in the file without the patch.

The places are those that `joulediff patch --undo` would give. They are found once for each file: the trees of both
texts have the same calls in the same order.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType

from joulediff.instrument.patch.header import find_header
from joulediff.instrument.patch.source import unpatch_text
from joulediff.instrument.rewriting.calls import SourceSite
from joulediff.instrument.rewriting.places import SourcePlaces, move_to_attribute
from joulediff.model.errors import ProgramError
from joulediff.pysource.source_files import split_lines

_Span = tuple[int | None, ...]
"""Line, last line, column and last column, as `CodeType.co_positions` gives them."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class PatchedText:
    """The measured calls of a patched text, and the text without the patch."""

    file: str
    original: str | None
    """None if the text cannot be read any more."""
    by_span: dict[_Span, SourceSite] = field(default_factory=dict)
    by_line: dict[int, SourceSite] = field(default_factory=dict)
    """The first call that begins in each line: Python 3.10 knows no columns."""

    def site_at(self, frame: FrameType) -> SourceSite:
        """Return the call that a frame is at."""
        code = frame.f_code
        found = self.by_span.get(_span_of(code, frame.f_lasti)) or self.by_line.get(frame.f_lineno)
        function = getattr(code, "co_qualname", code.co_name)
        return found or SourceSite(self.file, frame.f_lineno, 0, "", function)


def _span_of(code: CodeType, instruction: int) -> _Span:
    positions: Iterable[_Span] = code.co_positions() if hasattr(code, "co_positions") else ()
    return next((span for number, span in enumerate(positions) if number == instruction // 2), ())


def read_patched(text: str, file: str, wrapper: str) -> PatchedText:
    """Return the measured calls of a text, as places of `file`; `wrapper` is the name around each callee."""
    try:
        original = unpatch_text(text, file, wrapper)
        calls = list(_pair_calls(_without_header(text), ast.parse(original), wrapper))
    except (ProgramError, SyntaxError, ValueError, RecursionError):
        return PatchedText(file, None)
    found = PatchedText(file, original)
    places = SourcePlaces(original, file)
    for wrapped, call, function in calls:
        callee = call.func
        if isinstance(callee, ast.Attribute):
            move_to_attribute(call, callee)
        place = places.place(call, callee, function)
        found.by_span[wrapped.lineno, wrapped.end_lineno, wrapped.col_offset, wrapped.end_col_offset] = place
        found.by_line.setdefault(wrapped.lineno, place)
    return found


def _without_header(text: str) -> ast.Module:
    """Return the tree of a patched text without the statements that the patch added at its begin."""
    tree = ast.parse(text)
    header = find_header(text)
    if header is not None:
        first = len(split_lines(text[: header.start])) + 1
        last = len(split_lines(text[: header.end]))
        tree.body = [each for each in tree.body if not first <= each.lineno <= last]
    return tree


def _pair_calls(patched: ast.AST, plain: ast.AST, wrapper: str) -> Iterator[tuple[ast.Call, ast.Call, str]]:
    """Yield each `wrapper(...)` of the patched tree, the plain call with the same callee, and the function around it.

    Inner calls come after the calls around them: those are placed first, and placing moves a call.
    """
    waiting: list[tuple[ast.AST, ast.AST, str]] = [(patched, plain, "")]
    while waiting:
        one, other, function = waiting.pop()
        if isinstance(one, ast.Call) and isinstance(other, ast.Call):
            inner = one.func
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == wrapper:
                yield inner, other, function or "<module>"
                one.func = inner.args[0]
        inside = function
        if isinstance(other, _SCOPES):
            inside = f"{function}.{other.name}" if function else other.name
        children = list(zip(_parts(one), _parts(other), strict=True))
        waiting += [(a, b, inside if name == "body" else function) for (name, a), (_, b) in reversed(children)]


def _parts(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield name, value
        elif isinstance(value, list):
            yield from ((name, each) for each in value if isinstance(each, ast.AST))


class FrameSites:
    """The calls of all patched files of a program, by the frames that make them."""

    def __init__(self, wrapper: str, name_file: Callable[[str], str]) -> None:
        """`wrapper` is the name around each callee; `name_file` returns the file in reports that code names."""
        self._wrapper = wrapper
        self._name_file = name_file
        self._texts: dict[str, PatchedText] = {}

    def site_at(self, frame: FrameType) -> SourceSite:
        """Return the call that a frame is at."""
        file = frame.f_code.co_filename
        found = self._texts.get(file)
        if found is None:
            found = self.read(file)
        return found.site_at(frame)

    def read(self, file: str) -> PatchedText:
        """Read a file, before it changes."""
        text = "".join(linecache.getlines(file))
        header = find_header(text)
        wrapper = self._wrapper if header is None else header.name  # a cell of a notebook has none
        found = self._texts[file] = read_patched(text, self._name_file(file), wrapper)
        return found

    def original_texts(self) -> dict[str, str]:
        """Return the files without the patch by their names in reports; those that could be read."""
        return {each.file: each.original for each in self._texts.values() if each.original is not None}
