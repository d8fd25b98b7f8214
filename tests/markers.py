"""What a test needs, read from its source: a framework, processes, or neither.

A test needs a name if its function uses it, directly or through fixtures and helper functions, also those that it
imports from other modules of `tests`. Nothing is imported to find out, so that a file without a unit test can be left
out of a run without frameworks before it is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
NEEDS = ("unit", "torch", "live", "gpu")
FRAMEWORKS = ("torch", "transformers", "jax", "tensorflow", "triton")
# Modules and functions that start a process.
STARTERS = (
    "subprocess",
    "multiprocessing",
    "pty",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "joulediff.archive.scratch.open_scratch_folder",
    "joulediff.process.guarded",
    "joulediff.process.process",
    "joulediff.process.interpreter",
)
IMPORT = "import "
# Events of `sys.addaudithook` that a test of the marker `unit` must not raise.
PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "pty.spawn")


class Forbidden(Exception):
    """A unit test loaded a framework or started a process."""


@dataclass(frozen=True)
class Source:
    """The names in one file."""

    definitions: dict[str, set[str]] = field(default_factory=dict)
    """The names that each definition uses."""
    imports: dict[str, str] = field(default_factory=dict)
    """The dotted name that each imported name stands for."""
    on_load: set[str] = field(default_factory=set)
    """The modules that are imported when the file is loaded."""
    automatic: set[str] = field(default_factory=set)
    """Fixtures that every test of the file uses."""


@cache
def read(path: Path) -> Source:
    """Read one file of `tests`."""
    source = Source()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            source.imports.update(_imported(node))
        used = set(_used(node))
        for name in _defined(node):
            source.definitions.setdefault(name, set()).update(used)
        if isinstance(node, ast.FunctionDef) and "autouse=True" in "".join(map(ast.unparse, node.decorator_list)):
            source.automatic.add(node.name)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            source.on_load.update(name.removeprefix(IMPORT) for name in used if name.startswith(IMPORT))
    return source


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the name that an import defines in its file, and the dotted name it stands for."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            first = alias.name.partition(".")[0]
            yield (alias.asname or first, alias.name if alias.asname else first)
        else:
            yield (alias.asname or alias.name, f"{node.module}.{alias.name}")


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names below `node`; arguments are names of fixtures, and `import X` stands for an import."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            yield f"{each.value.id}.{each.attr}"
        elif isinstance(each, ast.Import | ast.ImportFrom):
            yield from (IMPORT + target for _, target in _imported(each))
        elif isinstance(each, ast.Call) and (named := _imported_by_name(each)) is not None:
            yield IMPORT + named


def _imported_by_name(node: ast.Call) -> str | None:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first = node.args[0] if node.args else None
    if name in ("importorskip", "import_module") and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def _defined(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


@cache
def needs_of_test(path: Path, test: str) -> frozenset[str]:
    """Return the markers of the test that is called `test` in the file at `path`."""
    reached = _reach(path, {test} | read(path).automatic)
    needs = set()
    if loads_a_framework(path) or any(_is_below(name, FRAMEWORKS) for name in reached):
        needs.add("torch")
    if any(_is_below(name, STARTERS) for name in reached):
        needs.add("live")
    return frozenset(needs or {"unit"})


def loads_a_framework(path: Path) -> bool:
    """Say whether a framework is imported when the file at `path` is loaded."""
    return any(_is_below(name, FRAMEWORKS) for name in _load_names(path))


@cache
def _load_names(path: Path) -> frozenset[str]:
    seen: set[Path] = set()
    names: set[str] = set()
    left = [path]
    while left:
        here = left.pop()
        if here in seen:
            continue
        seen.add(here)
        names |= read(here).on_load
        left += [helper[0] for name in read(here).on_load if (helper := _helper_of(TESTS, name)) is not None]
    return frozenset(names)


def _reach(path: Path, names: set[str]) -> set[str]:
    """Return the dotted names from outside `tests` that the definitions `names` use, however far away."""
    seen: set[tuple[Path, str]] = set()
    found: set[str] = set()
    left = [(path, name) for name in names]
    while left:
        here, name = left.pop()
        if (here, name) in seen:
            continue
        seen.add((here, name))
        source = read(here)
        first, _, rest = name.partition(".")
        if name.startswith(IMPORT):
            target = name.removeprefix(IMPORT)
        elif first in source.imports:
            target = ".".join([source.imports[first], *([rest] if rest else [])])
        elif first in source.definitions:
            left += [(here, used) for used in source.definitions[first]]
            continue
        else:
            target = name  # a name that a function defines, perhaps by an import of its own
        helper = _helper_of(TESTS, target)
        if helper is None:
            found.add(target)
        else:
            left.append(helper)
    return found


@cache
def _helper_of(tests: Path, target: str) -> tuple[Path, str] | None:
    """Return the file below `tests` and the name in it that a dotted name stands for."""
    words = target.split(".")
    for count in range(len(words), 0, -1):
        path = tests.joinpath(*words[:count]).with_suffix(".py")
        if path.is_file():
            return path, ".".join(words[count:])
    return None


def _is_below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def forbid(event: str, arguments: tuple[object, ...]) -> None:
    """Raise `Forbidden` when a framework is imported or a process is started: a hook for `sys.addaudithook`."""
    if event == "import" and _is_below(str(arguments[0]), FRAMEWORKS):
        raise Forbidden(f"a unit test imports {arguments[0]}; mark it `torch`, or build its input without a framework")
    if event in PROCESS_EVENTS:
        raise Forbidden(f"a unit test starts a process ({event}); mark it `live`, or call the function in this process")
