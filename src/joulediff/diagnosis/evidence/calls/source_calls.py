"""The calls in a line of source code, and which of them ran an operator.

An operator often has another name than the call in the code: `contiguous` runs `clone`, `repeat_interleave` runs three
operators.
"""

from __future__ import annotations

import ast
import re

from joulediff.frameworks.framework import is_read, operators_of
from joulediff.model.run import Frame, Run


def call_behind(run: Run, op: int, frame: Frame | None) -> str:
    """Return the call in a line that ran an operator; the operator's own name if no call in the line fits."""
    full = run.ops[op].name
    name = full.partition("::")[2]
    known = operators_of(full).calls.get(name, ())
    text = None if frame is None else run.line_text(frame.file, frame.line)
    calls = [] if text is None else calls_in(text)
    for wanted in (*known, name, name.strip("_")):
        if wanted in calls:
            return wanted
    return known[0] if known and is_read(full) else name.strip("_")


def calls_in(text: str) -> list[str]:
    """Return the names that a line of code calls, in order; a line that is part of a statement is searched as text."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError):
        return re.findall(r"([A-Za-z_]\w*)\s*\(", text)
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            names.append(function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""))
    return [name for name in names if name]
