"""A source file with its tree, and the place of each node in the text.

Offsets count characters of the text. The tree counts bytes of a line's UTF-8.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from joulediff.pysource.source_files import SourceFile

BYTE_ORDER_MARK = "\ufeff"
# A tree counts these as ends of lines. `str.splitlines` knows more of them.
_LINE_END = re.compile(r"\r\n|\r|\n")
_MAX_VALUE = 160


@dataclass(frozen=True)
class Parsed:
    """A file and its tree."""

    file: SourceFile
    tree: ast.Module
    line_starts: tuple[int, ...]
    original: Parsed | None = None
    twins: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _string_lines: set[int] = field(default_factory=set)

    @property
    def text(self) -> str:
        """Return the file's text."""
        return self.file.text

    @property
    def newline(self) -> str:
        """Return what ends the file's lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def imported_names(self) -> set[str]:
        """Return the names that imports bind anywhere in the file."""
        imports = [each for each in ast.walk(self.tree) if isinstance(each, (ast.Import, ast.ImportFrom))]
        return {alias.asname or alias.name.split(".")[0] for each in imports for alias in each.names}

    def start(self, node: ast.AST) -> int:
        """Return the offset of a node's first character; decorators belong to a definition."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            return self.text.rfind("@", 0, self.start(decorators[0]))
        return self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Return the offset behind a node's last character."""
        return self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def text_of(self, node: ast.AST) -> str:
        """Return a node's text."""
        return self.text[self.start(node) : self.end(node)]

    def value_of(self, node: ast.AST) -> str:
        """Return a node's text in one short line, with the names of the original if the file was rewritten."""
        twin = self.twins.get(node)
        if twin is not None and self.original is not None:
            return self.original.value_of(twin)
        return shorten(self.text_of(node))

    def show_as(self, original: Parsed) -> Parsed:
        """Return the file with values shown as in the original; both must differ in names only."""
        nodes = list(zip_longest(ast.walk(self.tree), ast.walk(original.tree)))
        if any(type(node) is not type(twin) for node, twin in nodes):
            return self
        return replace(self, original=original, twins={node: twin for node, twin in nodes if hasattr(node, "lineno")})

    def line_at(self, offset: int) -> int:
        """Return the line of an offset; the first line is 1."""
        return bisect_right(self.line_starts, offset)

    def line_start(self, offset: int) -> int:
        """Return the offset at which the line of an offset starts."""
        return self.line_starts[self.line_at(offset) - 1]

    def line_end(self, offset: int) -> int:
        """Return the offset of the end of the line of an offset, before its line end."""
        found = _LINE_END.search(self.text, offset)
        return found.start() if found else len(self.text)

    def indent(self, node: ast.AST) -> str | None:
        """Return the blanks before a statement; None if something else is before it on its line."""
        start = self.start(node)
        before = self.text[self.line_start(start) : start].removeprefix(BYTE_ORDER_MARK)
        return before if not before.strip(" \t\f") else None

    def block_text(self, first: ast.AST, last: ast.AST, indent: str, newline: str) -> str:
        """Return the text of neighbouring statements for a block that is indented by `indent`."""
        old = self.indent(first) or ""
        start, end = self.start(first), self.end(last)
        lines = _LINE_END.split(self.text[start:end])
        first_line = self.line_at(start)
        inside = self._lines_inside_strings()
        moved = [lines[0]]
        for number, line in enumerate(lines[1:], first_line + 1):
            if number in inside or not line.startswith(old):
                moved.append(line)
            else:
                moved.append(indent + line[len(old) :])
        return newline.join(moved)

    def _lines_inside_strings(self) -> set[int]:
        if not self._string_lines:
            self._string_lines.add(0)
            for node in ast.walk(self.tree):
                is_string = isinstance(node, ast.JoinedStr) or (
                    isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
                )
                if is_string:
                    self._string_lines.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))  # type: ignore[attr-defined]
        return self._string_lines

    def logical_line_starts(self, start: int, end: int) -> list[int]:
        """Return the starts of the lines of a span that are neither blank nor inside of a string."""
        inside = self._lines_inside_strings()
        numbers = range(self.line_at(start), self.line_at(end) + 1)
        starts = [self.line_starts[number - 1] for number in numbers if number not in inside]
        return [each for each in starts if self.text[each : self.line_end(each)].strip()]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place as a tree has it: a line and bytes of its UTF-8."""
        start = self.line_starts[line - 1]
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        text = self.text[start:end]
        if line == 1 and text.startswith(BYTE_ORDER_MARK):
            start, text = start + 1, text[1:]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode(errors="replace"))


def parse_file(file: SourceFile) -> Parsed | None:
    """Return the parsed file; None if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            # An invalid escape in the user's file is not news.
            warnings.simplefilter("ignore")
            tree = ast.parse(file.text.removeprefix(BYTE_ORDER_MARK))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    starts = (0, *(found.end() for found in _LINE_END.finditer(file.text)))
    return Parsed(file, tree, starts)


def shorten(text: str) -> str:
    """Return a text in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_VALUE else line[: _MAX_VALUE - 1] + "…"
