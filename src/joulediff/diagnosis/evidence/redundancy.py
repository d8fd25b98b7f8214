"""Work that one side does without: which call it came from, in the words of the code.

An operator is seldom what somebody wrote: `contiguous` runs `clone`, `repeat_interleave` runs three. The call is looked
up in the line that led to it.
"""

from __future__ import annotations

import ast
import re

from joulediff.model.run import Frame, Run

# Calls that lay a tensor out anew: leaving one out is what mends its layout.
COPIES = ("contiguous", "clone")
# Calls that run an operator of another name, the likeliest first.
_BEHIND = {
    "clone": ("contiguous", "repeat_interleave", "clone", "reshape", "flatten", "repeat", "tile"),
    "copy_": ("copy_", "to", "contiguous", "repeat_interleave", "pad"),
    "_to_copy": ("to", "float", "double", "half", "bfloat16", "type", "cuda", "cpu", "long", "int"),
    "cat": ("cat", "concat", "concatenate", "hstack", "vstack", "stack"),
    "index_select": ("repeat_interleave", "index_select"),
    "_local_scalar_dense": ("item", "tolist", "float", "int", "bool"),
    "constant_pad_nd": ("pad",),
    "native_layer_norm": ("layer_norm",),
}


def call_behind(run: Run, op: int, frame: Frame | None) -> str:
    """Return the call in the line that led to an operator; the operator's own name where the line has none like it."""
    name = run.ops[op].name.partition("::")[2]
    text = None if frame is None else run.line_text(frame.file, frame.line)
    calls = [] if text is None else calls_in(text)
    for wanted in (*_BEHIND.get(name, ()), name, name.strip("_")):
        if wanted in calls:
            return wanted
    return name.strip("_") if not name.startswith("_local") else "item"


def calls_in(text: str) -> list[str]:
    """Return the names that a line of code calls, in order; a line that is part of a statement is read as text."""
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
