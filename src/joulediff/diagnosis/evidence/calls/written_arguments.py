"""Arguments as they are written in source code: the keywords of the calls in a line, and where two lines differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.diagnosis.evidence.calls.source_calls import calls_at, name_of
from joulediff.model.place import Place
from joulediff.model.run import MAX_SETTING_CHARS, Run, Setting


@dataclass(frozen=True, slots=True)
class Written:
    """An argument in source code: the function that is called, its keyword, its text, and the line of its call."""

    function: str
    keyword: str
    text: str
    place: Place
    is_constructor: bool
    """The call makes an object, by a name with a capital letter."""

    @property
    def is_passed_on(self) -> bool:
        """Whether the text is a variable or an attribute of `self`, which another line sets."""
        return self.text.isidentifier() or self.text.startswith("self.")


def keywords_named(run: Run, name: str) -> Iterator[Written]:
    """Yield the arguments of that keyword in the recorded lines of the user's own code."""
    own = {frame.file for frame in run.frames if frame.owner is None}
    assigns = re.compile(rf"\b{re.escape(name)}\s*=(?!=)")
    for (file, line), text in run.index.lines.items():
        if file in own and assigns.search(text):
            yield from (each for each in keywords_at(run, file, line, "") if each.keyword == name)


def keywords_at(run: Run, file: str, line: int, function: str) -> Iterator[Written]:
    """Yield the arguments by keyword of the calls at a line."""
    for call in calls_at(run, file, line):
        called = name_of(call)
        for each in call.keywords:
            if each.arg is not None:
                place = Place(file, line, function, run.line_text(file, line))
                yield Written(called, each.arg, ast.unparse(each.value), place, is_class(called))


def is_class(name: str) -> bool:
    """Return whether a name is written as that of a class."""
    return name[:1].isupper() and not name.isupper()


def reads_as(text: str, value: Setting) -> bool:
    """Return whether an expression in source code is a recorded value: `torch.float64` is `float64`."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.rpartition(".")[2] == str(value)
    if isinstance(found, list | tuple):
        found = f"[{', '.join(map(str, found))}]"
    return bool(found == value) and type(found) is type(value)


def same_calls(mine: Sequence[ast.Call], others: Sequence[ast.Call]) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield the calls of two statements with the same function, in order."""
    left: dict[str, list[ast.Call]] = {}
    for call in others:
        left.setdefault(ast.unparse(call.func), []).append(call)
    for call in mine:
        if same := left.get(ast.unparse(call.func)):
            yield call, same.pop(0)


def differing_texts(mine: ast.Call, other: ast.Call) -> dict[str, tuple[str | None, str | None]]:
    """Return the keywords whose texts differ: an argument that only one side gives, or one that is a literal."""
    left, right = _keywords(mine), _keywords(other)
    found = {}
    for name in dict.fromkeys((*left, *right)):
        x, y = left.get(name), right.get(name)
        if x is None or y is None or (ast.dump(x) != ast.dump(y) and (_is_plain(x) or _is_plain(y))):
            found[name] = (_text(x), _text(y))
    return found


def _keywords(call: ast.Call) -> Mapping[str, ast.expr]:
    return {each.arg: each.value for each in call.keywords if each.arg is not None}


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)[:MAX_SETTING_CHARS]


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression names a value that a person wrote: a literal or a member of a module."""
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_is_plain, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand)
    return isinstance(node, ast.Constant | ast.Attribute)


def to_literal(text: str) -> Setting:
    """Return the value of a literal; the text of any other expression."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return found if found is None or isinstance(found, bool | int | float | str) else text
