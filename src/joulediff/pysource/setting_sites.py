"""Finds the lines of a program's own code that set its settings, by reading its files.

No code is run: a line that is found can set a setting, which is no proof that it did. Of several lines, one whose
plain value equals the recorded one is preferred, then the last.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from joulediff.model.place import Place
from joulediff.model.run import Frame, Setting
from joulediff.pysource.call_path import name_file
from joulediff.pysource.code_owner import is_ours, name_case_file
from joulediff.pysource.framework_hints import FrameworkHints

MAX_FILES = 200
MAX_FILE_BYTES = 1_000_000
# Parsing and searching a megabyte takes about two seconds.
MAX_TOTAL_BYTES = 1_000_000
# Modules that no file of the program imports, such as those of a test session, have less.
MAX_OTHER_BYTES = 100_000
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t][^#\n(]*(?:\([^)]*\))?", re.MULTILINE)
MAX_TEXT_CHARS = 300
# Keywords that set a configuration entry of another name.
_WORDS = {
    "attn_implementation": "_attn_implementation",
    "experts_implementation": "_experts_implementation",
}


UNKNOWN = object()
ValueOf = Callable[[ast.AST | None], object]
EffectsOf = Callable[[str, ast.Call, ValueOf], Iterable[tuple[str, object]]]


class Effect(NamedTuple):
    """A setting that a call sets: to `value`, or to its argument of that position or name."""

    setting: str
    position: int | None = 0
    keyword: str = ""
    value: object = UNKNOWN


def _no_effects(_function: str, _call: ast.Call, _value_of: ValueOf) -> Iterable[tuple[str, object]]:
    return ()


def _no_constant(_name: str) -> object:
    return UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Setters:
    """How source code sets the settings of a framework. Functions and settings have their full names."""

    package: str
    """The module that a program imports. Settings of the framework have it as their first word."""
    functions: Mapping[str, tuple[Effect, ...]] = field(default_factory=dict)
    """Functions, also usable as decorators, and the settings they set."""
    effects_of: EffectsOf = _no_effects
    """Returns further settings that a call sets, each with its value."""
    constant: Callable[[str], object] = _no_constant
    """Returns the value of a name of the framework, such as a data type, as it is recorded; else UNKNOWN."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Attributes that hold a setting of another name."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Keywords that set an entry of another name in a model's configuration."""
    methods: Mapping[str, Effect] = field(default_factory=dict)
    """Methods of a model, and the entry that each sets."""
    casts: tuple[str, ...] = ()
    """Methods of a model that set its `dtype` to that among their arguments."""


class _Found(NamedTuple):
    rank: int
    order: tuple[int, int, int]
    place: Place


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source file: its lines, its tree, and the nodes that may set something, each with the function around it."""

    lines: list[str]
    tree: ast.Module
    nodes: list[tuple[ast.AST, str]]


Read = Callable[[Path], SourceText]


def read_source(path: Path) -> SourceText:
    """Return a source file; an empty one if it cannot be read or parsed. Several searches can share a cached reader."""
    lines = read_lines(path)
    tree = parse_text("\n".join(lines))
    return SourceText(lines, tree, list(walk_in_functions(tree)))


def find_places(
    settings: Mapping[str, Setting], files: Mapping[str, Path], setters: Setters, *, read: Read = read_source
) -> dict[str, Place]:
    """Return the place where each setting is set, if one is found; `files` maps shown names to real paths.

    A line of a later file counts as later.
    """
    entries = _entries(settings)
    best: dict[str, _Found] = {}
    for number, (shown, path) in enumerate(files.items()):
        source = read(path)
        for write in find_writes(source, setters):
            place = Place(shown, write.line, write.function, line_at(source.lines, write.line))
            for name in _settings_of(write, settings, entries, setters):
                rank = _rank(write, settings[name], is_entry=name.startswith("model."))
                found = _Found(rank, (number, write.line, write.column), place)
                if rank >= 0 and (name not in best or best[name][:2] < found[:2]):
                    best[name] = found
    return {name: best[name].place for name in settings if name in best}


def own_files(frames: Iterable[Frame], files: Mapping[str, str], root: Path, hints: FrameworkHints) -> dict[str, Path]:
    """Return the program's own source files by shown name: those of its frames, and modules below `root` or of a case.

    `files` has the real paths of the frames' files. The file of the step comes last, since it imports the others. Of
    many modules, those that the program's files import are preferred.
    """
    base = str(root) + os.sep
    found = {frame.file: files.get(frame.file, frame.file) for frame in frames if frame.owner is None}
    modules: dict[str, tuple[str, str]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_ours(file):
            continue
        if file.startswith(base) or name_case_file(file) is not None:
            shown, owner = name_file(file, base, hints)
            if owner is None and shown not in found:
                modules[name] = (shown, file)
    imported = _imported(found.values(), modules)
    own = {**found, **{shown: file for shown, file in modules.values() if shown in imported}}
    others = {shown: file for shown, file in modules.values() if shown not in own}
    affordable = {**_affordable(own, MAX_TOTAL_BYTES), **_affordable(others, MAX_OTHER_BYTES)}
    return dict(reversed(list(affordable.items())[:MAX_FILES]))


def _imported(files: Iterable[str], modules: Mapping[str, tuple[str, str]]) -> set[str]:
    """Return the shown names of modules that files import, directly or through each other.

    A module counts as imported by a file with the last word of its name in an import statement.
    """
    by_word: dict[str, list[tuple[str, str]]] = {}
    for name, module in modules.items():
        by_word.setdefault(name.rpartition(".")[2], []).append(module)
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        statements = _IMPORT.findall("\n".join(read_lines(Path(waiting.pop()))))
        for word in {word for each in statements for word in re.findall(r"\w+", each)}:
            for shown, file in by_word.pop(word, ()):
                found.add(shown)
                waiting.append(file)
    return found


def _affordable(files: Mapping[str, str], left_bytes: int) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for shown, file in list(files.items())[:MAX_FILES]:
        path = Path(file)
        try:
            size = path.stat().st_size if path.is_file() else MAX_FILE_BYTES + 1
        except (OSError, ValueError):
            continue
        if size <= min(MAX_FILE_BYTES, left_bytes):
            found[shown] = path
            left_bytes -= size
    return found


def read_lines(path: Path) -> list[str]:
    """Return the lines of a source file; none if it cannot be read."""
    try:
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []


def parse_text(text: str) -> ast.Module:
    """Return the tree of source text; an empty one if it cannot be parsed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def line_at(lines: list[str], number: int) -> str | None:
    """Return a line by its number, without its indentation."""
    return lines[number - 1].strip()[:MAX_TEXT_CHARS] if 1 <= number <= len(lines) else None


def _entries(settings: Iterable[str]) -> dict[str, list[str]]:
    """Return the settings of models by the last word of their names: `activation_function`."""
    found: dict[str, list[str]] = {}
    for name in settings:
        if name.startswith("model."):
            found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


def _settings_of(
    write: Write, settings: Mapping[str, Setting], entries: Mapping[str, list[str]], setters: Setters
) -> Iterator[str]:
    if write.kind == "setting":
        yield from [write.name] if write.name in settings else ()
    elif write.kind == "tail":
        own = (name for name in settings if name.startswith(f"{setters.package}."))
        yield from (name for name in own if name.endswith(f".{write.name}"))
    else:
        word = {**_WORDS, **setters.words}.get(write.name, write.name)
        yield from entries.get(word, ())
        yield from entries.get(write.name, ()) if word != write.name else ()


def _rank(write: Write, value: Setting, *, is_entry: bool) -> int:
    """Return how likely a line set a value: 2 it has that value, 1 an unknown one, 0 another one, -1 impossible."""
    if write.value is UNKNOWN:
        return -1 if is_entry and write.kind == "word" else 1
    if write.value == value or str(write.value) == str(value):
        return 2
    return -1 if is_entry else 0


# `setting`: a full name. `tail`: the end of a name. `entry`: an entry of a model's configuration.
# `word`: perhaps an entry, in a call or a dictionary of unknown purpose.
WriteKind = Literal["setting", "tail", "entry", "word"]

MODULE = "<module>"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONFIG = re.compile(r"config|cfg|kwargs", re.IGNORECASE)
_CONFIG_CALL = re.compile(r".*Config(uration)?|.*Args|from_pretrained|from_config|pipeline")
_MODEL = re.compile(r"(?i:.*model.*|.*net|lm)|from_pretrained|from_config|[A-Z]\w*")


class Write(NamedTuple):
    """A line that sets `name`. `value` is UNKNOWN unless it is a plain one."""

    kind: WriteKind
    name: str
    value: object
    line: int
    column: int
    function: str


Set = tuple[WriteKind, str, object, ast.AST]


def find_writes(source: SourceText, setters: Setters) -> Iterator[Write]:
    """Yield the writes of a file, in no order; a decorator belongs to the function it decorates."""
    names = SourceNames(source, setters)
    for node, function in source.nodes:
        for kind, name, value, at in _sets(node, names):
            yield Write(kind, name, value, getattr(at, "lineno", 0), getattr(at, "col_offset", 0), function)


# Nodes that set something, or hold a number; names and operators are most of a tree.
_TELLING = (ast.stmt, ast.Call, ast.Dict, ast.Constant)


def walk_in_functions(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the statements, calls, dictionaries and constants of a file, in order, each with its function."""
    stack: list[tuple[ast.AST, str]] = [(tree, MODULE)]
    while stack:
        node, function = stack.pop()
        inside = node.name if isinstance(node, _DEFINITIONS) else function
        if isinstance(node, _TELLING):
            yield node, inside
        if not isinstance(node, ast.Name | ast.Constant | ast.Pass):
            stack.extend((child, inside) for child in reversed([*ast.iter_child_nodes(node)]))


class SourceNames:
    """Resolves the names of a file to full names."""

    def __init__(self, source: SourceText, setters: Setters) -> None:
        self.setters = setters
        self._known = {setters.package: setters.package, "os": "os"}  # also if they were imported with a star
        imports = [node for node, _ in source.nodes if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
        for node in imports:
            if isinstance(node, ast.Import):
                self._known |= {each.asname or each.name.partition(".")[0]: _bound(each) for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        for node in imports:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found = self.resolve(node.value)
                if found is not None and self.is_framework(found):
                    self._known.setdefault(node.targets[0].id, found)

    def resolve(self, node: ast.AST) -> str | None:
        """Return the full name of an expression; None unless it begins with an imported name."""
        dotted = _dotted(node)
        head, dot, rest = (dotted or "").partition(".")
        return self._known[head] + dot + rest if head in self._known else None

    def is_framework(self, name: str) -> bool:
        """Return whether a full name is one of the framework's."""
        return name.startswith(f"{self.setters.package}.")

    def value_of(self, node: ast.AST | None) -> object:
        """Return the plain value of an expression: a constant, or a name that the framework knows as one."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return -node.operand.value if isinstance(node.operand.value, int | float) else UNKNOWN
        name = self.resolve(node) if isinstance(node, ast.Attribute | ast.Name) else None
        return UNKNOWN if name is None else self.setters.constant(name)


def _bound(name: ast.alias) -> str:
    return name.name if name.asname else name.name.partition(".")[0]


def _dotted(node: ast.AST) -> str | None:
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else None


def _sets(node: ast.AST, names: SourceNames) -> Iterator[Set]:
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
                effects = _effects_of(function, None, names)
                yield from (("setting", name, value, decorator) for name, value in effects)


def _assignment(target: ast.expr, given: ast.expr | None, names: SourceNames) -> Iterator[Set]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _assignment(each, None, names)
        return
    value = names.value_of(given)
    if isinstance(target, ast.Attribute):
        yield from _attribute(target, value, names)
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        word = str(target.slice.value)
        if names.resolve(target.value) == "os.environ":
            yield "setting", f"env.{word}", value, target
        elif _CONFIG.search(last_word(target.value)):
            yield "entry", word, value, target


def _attribute(target: ast.Attribute, value: object, names: SourceNames) -> Iterator[Set]:
    full, dotted = names.resolve(target), _dotted(target) or ""
    if full is not None:
        yield "setting", names.setters.renamed.get(full, full), value, target
    elif (package := f".{names.setters.package}.") in dotted:  # a module that an object holds
        yield "setting", package[1:] + dotted.partition(package)[2], value, target
    elif dotted:
        yield "tail", dotted, value, target
    if _CONFIG.search(last_word(target.value)):
        yield "entry", target.attr, value, target


def _call(call: ast.Call, names: SourceNames) -> Iterator[Set]:
    function = names.resolve(call.func)
    if function is not None and function.startswith("os."):
        yield from _environment(function, call, names)
        return
    if function is not None and names.is_framework(function):
        yield from (("setting", name, value, call) for name, value in _effects_of(function, call, names))
        return
    kind: WriteKind = "entry" if _CONFIG_CALL.fullmatch(last_word(call.func)) else "word"
    for each in call.keywords:
        if each.arg is not None:
            yield kind, each.arg, names.value_of(each.value), each
    if isinstance(call.func, ast.Attribute):
        yield from _method(call, call.func, names)


def _environment(function: str, call: ast.Call, names: SourceNames) -> Iterator[Set]:
    first = call.args[0] if call.args else None
    if function in ("os.environ.setdefault", "os.putenv") and isinstance(first, ast.Constant) and len(call.args) > 1:
        yield "setting", f"env.{first.value!s}", names.value_of(call.args[1]), call
    elif function == "os.environ.update":
        yield from (("setting", f"env.{k.arg}", names.value_of(k.value), k) for k in call.keywords if k.arg)
        if isinstance(first, ast.Dict):
            yield from _table(first, "setting", "env.", names)


def _method(call: ast.Call, function: ast.Attribute, names: SourceNames) -> Iterator[Set]:
    if not _MODEL.fullmatch(_root_word(function.value)):
        return
    effect = names.setters.methods.get(function.attr)
    if effect is not None and (effect.position is not None or not call.args):
        yield "entry", effect.setting, value_in(call, effect, names.value_of), call
    elif function.attr in names.setters.casts:
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "dtype")]
        values = [names.value_of(each) for each in given if not isinstance(each, ast.Constant)]
        yield from (("entry", "dtype", value, call) for value in values if value is not UNKNOWN)


def _table(table: ast.Dict, kind: WriteKind, prefix: str, names: SourceNames) -> Iterator[Set]:
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield kind, prefix + key.value, names.value_of(value), key


def _defaults(config: ast.ClassDef, names: SourceNames) -> Iterator[Set]:
    for node in config.body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and node.value is not None:
                yield "entry", target.id, names.value_of(node.value), node


def last_word(node: ast.AST) -> str:
    """Return the last name of a chain: `Model` of `models.Model`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root_word(node: ast.AST) -> str:
    """Return the first name of a chain of calls: `Model` of `Model(config).cuda().half()`."""
    while isinstance(node, ast.Call):
        inner = node.func
        is_step = isinstance(inner, ast.Attribute) and not _CONFIG_CALL.fullmatch(inner.attr)
        node = inner.value if is_step and isinstance(inner, ast.Attribute) else inner
        if not is_step:
            break
    return last_word(node)


def value_in(call: ast.Call | None, effect: Effect, value_of: ValueOf) -> object:
    """Return the value that a call sets by an effect; UNKNOWN if it is not a plain value."""
    given = [each.value for each in call.keywords if each.arg and each.arg == effect.keyword] if call else []
    if call and effect.position is not None and effect.position < len(call.args):
        given.append(call.args[effect.position])
    return value_of(given[0]) if given else effect.value


def _effects_of(function: str, call: ast.Call | None, names: SourceNames) -> Iterator[tuple[str, object]]:
    """Yield the settings that a call sets, each with its value; `call` is None for a decorator without brackets."""
    for effect in names.setters.functions.get(function, ()):
        yield effect.setting, value_in(call, effect, names.value_of)
    if call is not None and names.is_framework(function):
        yield from names.setters.effects_of(function, call, names.value_of)
