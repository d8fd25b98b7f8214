"""The calls in a line of source code, and which of them ran an operator.

An operator often has another name than the call in the code: `contiguous` runs `clone`, `repeat_interleave` runs three
operators.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from joulediff.frameworks.framework import is_read, operators_of, outer_path
from joulediff.model.run import Frame, Run


def call_behind(run: Run, op: int, frame: Frame | None) -> str:
    """Return the call in a line that ran an operator; the operator's own name if no call in the line fits."""
    found = find_written_call(run, op, frame)
    if found is not None:
        return found
    full = run.ops[op].name
    known = operators_of(full).calls.get(full.partition("::")[2], ())
    return known[0] if known and is_read(full) else full.partition("::")[2].strip("_")


def find_written_call(run: Run, op: int, frame: Frame | None) -> str | None:
    """Return the call in a line that ran an operator: by its name, its module, or as the only one that can be."""
    return find_call(run, op, frame) or _called_module(run, op, frame) or _only_call(run, op, frame)


def find_call(run: Run, op: int, frame: Frame | None) -> str | None:
    """Return the call in a line that runs an operator by its name, or `matmul` for the sign of a product."""
    full = run.ops[op].name
    name = full.partition("::")[2]
    known = operators_of(full).calls.get(name, ())
    text = None if frame is None else run.line_text(frame.file, frame.line)
    calls = [] if text is None else calls_in(text)
    found = next((wanted for wanted in (*known, name, name.strip("_")) if wanted in calls), None)
    return _PRODUCT if found is None and _PRODUCT in known and _multiplies(text or "") else found


def _called_module(run: Run, op: int, frame: Frame | None) -> str | None:
    """Return the attribute by which a line calls the module that an operator runs in: `proj` of `self.proj(x)`."""
    module = (run.ops[op].module or "").rpartition(".")[2]
    text = None if frame is None else run.line_text(frame.file, frame.line)
    return module if module and text is not None and module in calls_in(text) else None


def _only_call(run: Run, op: int, frame: Frame | None) -> str | None:
    """Return the only call of a line that can have run an operator: `torch.quantile` runs `isnan` inside the framework.

    Functions with lines of their own and calls that name other operators of the line did not. A name without a module
    or an object before it may be anything.
    """
    if frame is None or run.ops[op].phase == "backward" or not _is_innermost(run, op, frame):
        return None
    text = run.line_text(frame.file, frame.line) or ""
    in_line = [number for number, each in enumerate(run.frames) if (each.file, each.line) == (frame.file, frame.line)]
    entered = {each.function.rpartition(".")[2] for each in run.frames if each.parent in in_line}
    beside = (each for number in in_line for each in run.index.ops_by_frame.get(number, ()))
    named = {find_call(run, each, frame) for each in beside if run.ops[each].name != run.ops[op].name}
    calls = set(calls_in(text)) - entered - named
    return calls.pop() if len(calls) == 1 and re.search(r"[\w\])]\." + min(calls), text) else None


def _is_innermost(run: Run, op: int, frame: Frame) -> bool:
    """Return whether a line itself ran an operator, outside of frameworks."""
    path = outer_path(run, op)
    return bool(path) and (path[-1].file, path[-1].line) == (frame.file, frame.line)


def _multiplies(text: str) -> bool:
    return re.search(r"[\w\])]\s*@\s*[\w(\[-]", text) is not None


# The function that the sign of a product of matrices, `@`, stands for.
_PRODUCT = "matmul"
# Most lines before and after a line that its statement is searched in.
_MAX_LINES = 12
_HEADS = ("async ", "for ", "while ", "if ", "with ", "def ", "class ")


def calls_at(run: Run, file: str, line: int) -> tuple[ast.Call, ...]:
    """Return the calls of the statement at a line, in the order of the text; a statement may span several lines."""
    around = tuple(run.line_text(file, each) for each in range(line - _MAX_LINES, line + _MAX_LINES + 1))
    return _calls_of_statement(around)


@lru_cache(maxsize=1024)
def _calls_of_statement(around: tuple[str | None, ...]) -> tuple[ast.Call, ...]:
    """Return the calls of the shortest statement that contains the middle line."""
    middle = len(around) // 2
    for more in range(middle + 1):
        for before in range(more + 1):
            lines = around[middle - before : middle + more - before + 1]
            tree = None if None in lines else _parse("\n".join(map(str, lines)))
            if tree is not None:
                found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
                return tuple(sorted(found, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)))
    return ()


def _parse(text: str) -> ast.Module | None:
    """Return a statement, or the head of a compound one, without its indentation."""
    if text.startswith(("elif ", "else:")):
        text = text.removeprefix("el").removeprefix("se:").strip() or "pass"
    if text.startswith(_HEADS) and text.endswith(":"):
        text += " pass"
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def name_of(call: ast.Call) -> str:
    """Return the name that a call is made by: `sum` of `x.sum()`, `layer_norm` of `F.layer_norm(x)`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def calls_in(text: str) -> list[str]:
    """Return the names that a line of code calls, in order; a line that is part of a statement is searched as text."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError):
        return re.findall(r"([A-Za-z_]\w*)\s*\(", text)
    names = [name_of(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [name for name in names if name]
