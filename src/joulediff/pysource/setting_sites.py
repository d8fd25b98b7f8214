"""Where a program's own code sets its settings, from the text of its files alone.

Nothing is run, so what is found is a line that can set a setting, not proof that it did. Of several lines, one whose
plain value is the recorded one is preferred, and then the last.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from joulediff.model.place import Place
from joulediff.model.run import Frame, Setting
from joulediff.pysource.call_path import name_file
from joulediff.pysource.code_owner import is_ours, name_case_file

MAX_FILES = 200
MAX_FILE_BYTES = 1_000_000
# Parsing and looking through a megabyte takes a second.
MAX_TOTAL_BYTES = 2_000_000
MAX_TEXT_CHARS = 300
# Words that stand for a configuration entry of another name.
_WORDS = {
    "attn_implementation": "_attn_implementation",
    "experts_implementation": "_experts_implementation",
    "torch_dtype": "dtype",
}


class _Found(NamedTuple):
    rank: int
    order: tuple[int, int, int]
    place: Place


def find_places(settings: Mapping[str, Setting], files: Mapping[str, Path]) -> dict[str, Place]:
    """Return where each setting is set, for those that are; `files` says by which name each file is shown.

    Of two files the later one counts as the later line.
    """
    entries = _entries(settings)
    best: dict[str, _Found] = {}
    for number, (shown, path) in enumerate(files.items()):
        lines = _read(path)
        for write in find_writes(_parse("\n".join(lines))):
            place = Place(shown, write.line, write.function, _line(lines, write.line))
            for name in _settings_of(write, settings, entries):
                rank = _rank(write, settings[name], is_entry=name.startswith("model."))
                found = _Found(rank, (number, write.line, write.column), place)
                if rank >= 0 and (name not in best or best[name][:2] < found[:2]):
                    best[name] = found
    return {name: best[name].place for name in settings if name in best}


def own_files(frames: Iterable[Frame], files: Mapping[str, str], root: Path) -> dict[str, Path]:
    """Return the program's own source files by the names they are shown by: of its frames, and modules below `root`
    or of a case.

    `files` says where each frame's file really is. The step's own file comes last, as what imports the others.
    """
    base = str(root) + os.sep
    found = {frame.file: files.get(frame.file, frame.file) for frame in frames if frame.owner is None}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_ours(file):
            continue
        if file.startswith(base) or name_case_file(file) is not None:
            shown, owner = name_file(file, base)
            if owner is None:
                found.setdefault(shown, file)
    return dict(reversed(_affordable(found).items()))


def _affordable(files: Mapping[str, str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    left = MAX_TOTAL_BYTES
    for shown, file in list(files.items())[:MAX_FILES]:
        path = Path(file)
        try:
            size = path.stat().st_size if path.is_file() else MAX_FILE_BYTES + 1
        except (OSError, ValueError):
            continue
        if size <= min(MAX_FILE_BYTES, left):
            found[shown] = path
            left -= size
    return found


def _read(path: Path) -> list[str]:
    try:
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _line(lines: list[str], number: int) -> str | None:
    return lines[number - 1].strip()[:MAX_TEXT_CHARS] if 1 <= number <= len(lines) else None


def _entries(settings: Iterable[str]) -> dict[str, list[str]]:
    """Return the settings of models by the last word of their names: `activation_function`."""
    found: dict[str, list[str]] = {}
    for name in settings:
        if name.startswith("model."):
            found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


def _settings_of(write: Write, settings: Mapping[str, Setting], entries: Mapping[str, list[str]]) -> Iterator[str]:
    if write.kind == "setting":
        yield from [write.name] if write.name in settings else ()
    elif write.kind == "tail":
        yield from (name for name in settings if name.startswith("torch.") and name.endswith(f".{write.name}"))
    else:
        word = _WORDS.get(write.name, write.name)
        yield from entries.get(word, ())
        yield from entries.get(write.name, ()) if word != write.name else ()


def _rank(write: Write, value: Setting, *, is_entry: bool) -> int:
    """Return how likely a line is the one: 2 says the value, 1 says none, 0 says another, -1 is out of the question."""
    if write.value is UNKNOWN:
        return -1 if is_entry and write.kind == "word" else 1
    if write.value == value or str(write.value) == str(value):
        return 2
    return -1 if is_entry else 0


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


UNKNOWN = object()
Resolve = Callable[[ast.AST], str | None]

_CUDA = "torch.backends.cuda"
_SDP = tuple(f"{_CUDA}.{kind}_sdp_enabled" for kind in ("flash", "mem_efficient", "math", "cudnn"))
_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
_FLAGS = re.compile(r"(torch\.backends(?:\.\w+)?)\.(?:set_)?flags")
# The words of `torch.backends.cudnn.flags()`, each of which has a default and so is set in any case.
_CUDNN_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_MKLDNN_FLAGS = ("enabled", "deterministic", "allow_tf32")


class Effect(NamedTuple):
    """A setting that a call sets: to `value`, or to its argument of that position or name."""

    setting: str
    position: int | None = 0
    keyword: str = ""
    value: object = UNKNOWN


def _constant(setting: str, value: object) -> Effect:
    return Effect(setting, None, "", value)


_NO_GRAD = (_constant("torch.grad_enabled", False),)
_SET_GRAD = (Effect("torch.grad_enabled", 0, "mode"),)
_INFERENCE = (Effect("torch.inference_mode", 0, "mode", True), _constant("torch.grad_enabled", False))
_SETTERS: dict[str, tuple[Effect, ...]] = {
    "torch.set_float32_matmul_precision": (Effect("torch.float32_matmul_precision", 0, "precision"),),
    "torch.set_num_threads": (Effect("torch.num_threads"),),
    "torch.set_num_interop_threads": (Effect("torch.num_interop_threads"),),
    "torch.set_default_dtype": (Effect("torch.default_dtype", 0, "d"),),
    "torch.set_default_device": (Effect("torch.default_device", 0, "device"),),
    "torch.use_deterministic_algorithms": (
        Effect("torch.deterministic.enabled", 0, "mode"),
        Effect("torch.deterministic.warn_only", None, "warn_only", False),
    ),
    "torch.set_deterministic_debug_mode": (
        _constant("torch.deterministic.enabled", UNKNOWN),
        _constant("torch.deterministic.warn_only", UNKNOWN),
    ),
    "torch.set_autocast_cache_enabled": (Effect("torch.autocast.cache"),),
    "torch.no_grad": _NO_GRAD,
    "torch.autograd.no_grad": _NO_GRAD,
    "torch.enable_grad": (_constant("torch.grad_enabled", True),),
    "torch.set_grad_enabled": _SET_GRAD,
    "torch.autograd.set_grad_enabled": _SET_GRAD,
    "torch.inference_mode": _INFERENCE,
    "torch.autograd.inference_mode": _INFERENCE,
    "torch.nn.attention.sdpa_kernel": tuple(_constant(name, UNKNOWN) for name in _SDP),
    f"{_CUDA}.sdp_kernel": tuple(
        Effect(name, at, f"enable_{word}", True)
        for at, (name, word) in enumerate(
            zip((_SDP[0], _SDP[2], _SDP[1], _SDP[3]), ("flash", "math", "mem_efficient", "cudnn"), strict=True)
        )
    ),
    **{
        f"{_CUDA}.enable_{name.split('.')[-1].removesuffix('_enabled')}": (Effect(name, 0, "enabled"),) for name in _SDP
    },
    f"{_CUDA}.allow_fp16_bf16_reduction_math_sdp": (
        Effect(f"{_CUDA}.fp16_bf16_reduction_math_sdp_allowed", 0, "enabled"),
    ),
    **{
        f"{_CUDA}.{name}": (Effect(f"{_CUDA}.{name}", 0, word),)
        for name, word in (
            ("preferred_linalg_library", "backend"),
            ("preferred_blas_library", "backend"),
            ("cublas_workspace_size", "size"),
            ("cublaslt_workspace_size", "size"),
        )
    },
    "torch.backends.mha.set_fastpath_enabled": (Effect("torch.backends.mha.get_fastpath_enabled", 0, "value"),),
}


def effects_of(function: str, call: ast.Call | None, resolve: Resolve) -> Iterator[tuple[str, object]]:
    """Yield the settings that a call sets, each with its value; `call` is None for a decorator without brackets."""
    for effect in _SETTERS.get(function, ()):
        yield effect.setting, _value_in(call, effect, resolve)
    if call is None:
        return
    if flags := _FLAGS.fullmatch(function):
        yield from _flags(flags.group(1), call, resolve, own=function.endswith(".flags"))
    if function.startswith("torch.") and function.endswith("autocast"):
        yield from _autocast(function, call, resolve)


def value_of(node: ast.AST | None, resolve: Resolve) -> object:
    """Return what an expression says in plain words: a constant, or a data type of PyTorch by its recorded name."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int | float) else UNKNOWN
    name = resolve(node) if isinstance(node, ast.Attribute | ast.Name) else None
    if name is not None and re.fullmatch(r"torch\.(b?float\d*|half|double|u?int\d+|bool)", name):
        word = name.removeprefix("torch.")
        return _DTYPES.get(word, word)
    return UNKNOWN


def _value_in(call: ast.Call | None, effect: Effect, resolve: Resolve) -> object:
    given = [each.value for each in call.keywords if each.arg and each.arg == effect.keyword] if call else []
    if call and effect.position is not None and effect.position < len(call.args):
        given.append(call.args[effect.position])
    return value_of(given[0], resolve) if given else effect.value


def _flags(backend: str, call: ast.Call, resolve: Resolve, *, own: bool) -> Iterator[tuple[str, object]]:
    words = {"torch.backends.cudnn": _CUDNN_FLAGS, "torch.backends.mkldnn": _MKLDNN_FLAGS}.get(backend, ())
    found: dict[str, object] = dict.fromkeys(words, UNKNOWN) if own else {}
    found |= {each.arg.removeprefix("_"): value_of(each.value, resolve) for each in call.keywords if each.arg}
    found |= {word: value_of(each, resolve) for word, each in zip(words, call.args, strict=False)}
    yield from ((f"{backend}.{word}", value) for word, value in found.items())


def _autocast(function: str, call: ast.Call, resolve: Resolve) -> Iterator[tuple[str, object]]:
    fixed = re.search(r"\.(cpu|cuda)\.", function)
    kind = fixed.group(1) if fixed else _value_in(call, Effect("", 0, "device_type"), resolve)
    for each in (kind,) if kind in ("cpu", "cuda") else ("cpu", "cuda"):
        yield f"torch.autocast.{each}.enabled", _value_in(call, Effect("", None, "enabled", True), resolve)
        yield f"torch.autocast.{each}.dtype", _value_in(call, Effect("", None, "dtype"), resolve)
