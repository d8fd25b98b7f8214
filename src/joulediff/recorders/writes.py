"""Lines of a program that set something: an attribute by its full name, the environment, a configuration entry.

Names are followed through `import torch.backends.cuda as c` and `mm = c.matmul`, wherever in the file these stand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from joulediff.recorders.setters import UNKNOWN, effects_of, value_of

# `setting`: a name in full. `tail`: the end of one. `entry`: a word of a model's configuration.
# `word`: one that may be, in a call or table of which nothing is known.
WriteKind = Literal["setting", "tail", "entry", "word"]

MODULE = "<module>"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONFIG = re.compile(r"config|cfg|kwargs", re.IGNORECASE)
_CONFIG_CALL = re.compile(r".*Config(uration)?|.*Args|from_pretrained|from_config|pipeline")
_RENAMED = {"torch.utils.deterministic.fill_uninitialized_memory": "torch.deterministic.fill_uninitialized_memory"}
# Methods of a model, and the entry that each sets.
_METHODS: dict[str, tuple[str, object]] = {
    "eval": ("training", False),
    "half": ("dtype", "float16"),
    "bfloat16": ("dtype", "bfloat16"),
    "float": ("dtype", "float32"),
    "double": ("dtype", "float64"),
}
_MODEL = re.compile(r"(?i:.*model.*|.*net|lm)|from_pretrained|from_config|[A-Z]\w*")


class Write(NamedTuple):
    """A line that sets `name`. `value` is UNKNOWN where it is no plain one."""

    kind: WriteKind
    name: str
    value: object
    line: int
    column: int
    function: str


Set = tuple[WriteKind, str, object, ast.AST]


def find_writes(tree: ast.Module) -> Iterator[Write]:
    """Yield what a file sets, in no order; a decorator belongs to the function it decorates."""
    names = _Names(tree)
    for node, function in _walk(tree):
        for kind, name, value, at in _sets(node, names):
            yield Write(kind, name, value, getattr(at, "lineno", 0), getattr(at, "col_offset", 0), function)


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    stack: list[tuple[ast.AST, str]] = [(tree, MODULE)]
    while stack:
        node, function = stack.pop()
        inside = node.name if isinstance(node, _DEFINITIONS) else function
        yield node, inside
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))


class _Names:
    """What the names of a file stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._known = {"torch": "torch", "os": "os"}  # also where they came with a star
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
        for node in imports:
            if isinstance(node, ast.Import):
                self._known |= {each.asname or each.name.partition(".")[0]: _bound(each) for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        for node in imports:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found = self.resolve(node.value)
                if found is not None and found.startswith("torch."):
                    self._known.setdefault(node.targets[0].id, found)

    def resolve(self, node: ast.AST) -> str | None:
        """Return the full name of what an expression names; None where it does not begin with an import."""
        dotted = _dotted(node)
        head, dot, rest = (dotted or "").partition(".")
        return self._known[head] + dot + rest if head in self._known else None


def _bound(name: ast.alias) -> str:
    return name.name if name.asname else name.name.partition(".")[0]


def _dotted(node: ast.AST) -> str | None:
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else None


def _sets(node: ast.AST, names: _Names) -> Iterator[Set]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assignment(target, node.value, names)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        yield from _assignment(node.target, node.value, names)
    elif isinstance(node, ast.Call):
        yield from _call(node, names)
    elif isinstance(node, ast.Dict):
        yield from _table(node, "word", "", names)
    elif isinstance(node, ast.ClassDef) and _CONFIG_CALL.fullmatch(node.name):
        yield from _defaults(node, names)
    elif isinstance(node, _DEFINITIONS):
        for decorator in node.decorator_list:
            function = names.resolve(decorator)
            if function is not None:
                effects = effects_of(function, None, names.resolve)
                yield from (("setting", name, value, decorator) for name, value in effects)


def _assignment(target: ast.expr, given: ast.expr | None, names: _Names) -> Iterator[Set]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _assignment(each, None, names)
        return
    value = value_of(given, names.resolve)
    if isinstance(target, ast.Attribute):
        yield from _attribute(target, value, names)
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        word = str(target.slice.value)
        if names.resolve(target.value) == "os.environ":
            yield "setting", f"env.{word}", value, target
        elif _CONFIG.search(_last_word(target.value)):
            yield "entry", word, value, target


def _attribute(target: ast.Attribute, value: object, names: _Names) -> Iterator[Set]:
    full, dotted = names.resolve(target), _dotted(target) or ""
    if full is not None:
        yield "setting", _RENAMED.get(full, full), value, target
    elif ".torch." in dotted:  # a module that an object holds
        yield "setting", "torch." + dotted.partition(".torch.")[2], value, target
    elif dotted:
        yield "tail", dotted, value, target
    if _CONFIG.search(_last_word(target.value)):
        yield "entry", target.attr, value, target


def _call(call: ast.Call, names: _Names) -> Iterator[Set]:
    function = names.resolve(call.func)
    if function is not None and function.startswith("os."):
        yield from _environment(function, call, names)
        return
    if function is not None and function.startswith("torch."):
        yield from (("setting", name, value, call) for name, value in effects_of(function, call, names.resolve))
        return
    kind: WriteKind = "entry" if _CONFIG_CALL.fullmatch(_last_word(call.func)) else "word"
    for each in call.keywords:
        if each.arg is not None:
            yield kind, each.arg, value_of(each.value, names.resolve), each
    if isinstance(call.func, ast.Attribute):
        yield from _method(call, call.func, names)


def _environment(function: str, call: ast.Call, names: _Names) -> Iterator[Set]:
    first = call.args[0] if call.args else None
    if function in ("os.environ.setdefault", "os.putenv") and isinstance(first, ast.Constant) and len(call.args) > 1:
        yield "setting", f"env.{first.value!s}", value_of(call.args[1], names.resolve), call
    elif function == "os.environ.update":
        yield from (("setting", f"env.{k.arg}", value_of(k.value, names.resolve), k) for k in call.keywords if k.arg)
        if isinstance(first, ast.Dict):
            yield from _table(first, "setting", "env.", names)


def _method(call: ast.Call, function: ast.Attribute, names: _Names) -> Iterator[Set]:
    if not _MODEL.fullmatch(_root_word(function.value)):
        return
    if function.attr in _METHODS and not call.args:
        yield "entry", *_METHODS[function.attr], call
    elif function.attr == "train":
        yield "entry", "training", value_of(call.args[0], names.resolve) if call.args else True, call
    elif function.attr == "to":
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "dtype")]
        values = [value_of(each, names.resolve) for each in given if not isinstance(each, ast.Constant)]
        yield from (("entry", "dtype", value, call) for value in values if value is not UNKNOWN)


def _table(table: ast.Dict, kind: WriteKind, prefix: str, names: _Names) -> Iterator[Set]:
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield kind, prefix + key.value, value_of(value, names.resolve), key


def _defaults(config: ast.ClassDef, names: _Names) -> Iterator[Set]:
    for node in config.body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and node.value is not None:
                yield "entry", target.id, value_of(node.value, names.resolve), node


def _last_word(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root_word(node: ast.AST) -> str:
    """Return what a chain of calls begins with: `Model` of `Model(config).cuda().half()`."""
    while isinstance(node, ast.Call):
        inner = node.func
        is_step = isinstance(inner, ast.Attribute) and not _CONFIG_CALL.fullmatch(inner.attr)
        node = inner.value if is_step and isinstance(inner, ast.Attribute) else inner
        if not is_step:
            break
    return _last_word(node)
