"""Where a call stands in the source, as reports name it."""

from __future__ import annotations

import ast
import sys

from joulediff.instrument.rewriting.calls import SourceSite

_LONGEST_TEXT = 200
_MOST_LINES = 10
# `STACK_USE_GUIDELINE` in CPython's `compile.c`.
_KEYWORDS_MAKE_NO_METHOD_CALL = sys.version_info < (3, 11)
_MOST_METHOD_ARGUMENTS = 30


class SourcePlaces:
    """The places of one file, by the nodes of its tree."""

    def __init__(self, text: str, file: str) -> None:
        """`text` is the source that the tree was made from, or empty if it is not known."""
        # The lines of the parser: other characters that end a line for `str.splitlines` do not count.
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._file = file

    def place(self, node: ast.expr, named: ast.expr, function: str) -> SourceSite:
        """Return the place of a call or loop, whose callee or iterable is `named`, in `function`."""
        line, column = node.lineno, node.col_offset
        if line <= len(self._lines):
            column = len(self._lines[line - 1].encode()[:column].decode(errors="replace"))
        return SourceSite(self._file, line, column, self._text_of(named), function)

    def _text_of(self, node: ast.expr) -> str:
        """Return the source of an expression on one line, cut where it is long."""
        end_line = node.end_lineno or node.lineno
        if end_line > len(self._lines):
            return ""
        lines = self._lines[node.lineno - 1 : end_line]
        if len(lines) == 1:
            text = lines[0].encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
        else:
            first = lines[0].encode()[node.col_offset :].decode(errors="replace")
            last = lines[-1].encode()[: node.end_col_offset].decode(errors="replace")
            text = "".join(line.strip() for line in (first, *lines[1:-1][:_MOST_LINES], last))
        return text if len(text) <= _LONGEST_TEXT else f"...{text[3 - _LONGEST_TEXT :]}"


def move_to_attribute(node: ast.Call, callee: ast.Attribute) -> None:
    """Give a call the place that the compiler gives to the call of an attribute: that of the attribute's name.

    As `update_start_location_to_match_attr` in CPython's `compile.c`.
    """
    end_line, end_column = callee.end_lineno, callee.end_col_offset
    if end_line is None or end_column is None or end_line == node.lineno or not _is_method_call(node):
        return
    length = len(callee.attr)
    node.lineno = end_line
    node.end_lineno = max(end_line, node.end_lineno or end_line)
    node.col_offset = max(0, end_column - length)
    if node.end_lineno == end_line:
        node.end_col_offset = max(end_column, node.end_col_offset or 0)


def _is_method_call(node: ast.Call) -> bool:
    """Return whether the compiler makes a method call of the call of an attribute."""
    if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
        return False
    if _KEYWORDS_MAKE_NO_METHOD_CALL and node.keywords:
        return False
    return len(node.args) + len(node.keywords) + bool(node.keywords) < _MOST_METHOD_ARGUMENTS
