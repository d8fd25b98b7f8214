"""Imports point downwards only, a framework or a vendor's library is imported in one place, folders stay small."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import joulediff

SOURCE = Path(joulediff.__file__).parent
RANKS = (
    ("version",),
    ("model",),
    ("pysource", "archive"),
    ("frameworks",),
    ("measuring", "matching"),
    ("energy", "instrument"),
    ("session",),
    ("process",),
    ("diagnosis",),
    ("report",),
    ("cases",),
    ("cli", "integrations"),
    ("patched",),
)
RANK = {room: rank for rank, rooms in enumerate(RANKS) for room in rooms}
# The package's own names are loaded when first used, so they may come from any room.
LAZY = ("__init__.py", "__main__.py")
# A folder with more modules needs folders of its own.
MOST_MODULES = 15
# Programs that are looked at, not code of the package: they use whatever they are about.
PROGRAMS = "cases/library/"
DOORS = {
    "torch": "frameworks/torch",
    "jax": "frameworks/jax",
    "tensorflow": "frameworks/tensorflow",
    "pynvml": "measuring/meters/nvml",
    "amdsmi": "measuring/meters/amdsmi",
    "zeus_apple_silicon": "measuring/meters/apple",
    "pyarrow": "archive",
}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    lazy: bool


def broken_fences(source: Path) -> list[str]:
    """Return a sentence for each breach in the package at `source`."""
    found = large_folders(source)
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).as_posix()
        if place.startswith(PROGRAMS):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=place)
        imports = list(find_imports(tree, place))
        found += [f"{place}:{line}: print( belongs to no room: reports go through a console" for line in prints(tree)]
        found += [breach for each in imports if (breach := door_breach(place, each)) is not None]
        if place not in LAZY:
            found += [breach for each in imports if (breach := rank_breach(place, each)) is not None]
            if room_of(place) not in RANK:
                found.append(
                    f"{place}: the room {room_of(place)!r} has no rank; give it one in RANKS and in the design"
                )
    return found


def large_folders(source: Path) -> list[str]:
    modules = [path.relative_to(source) for path in source.rglob("*.py")]
    counts = Counter(each.parent.as_posix() for each in modules if not each.as_posix().startswith(PROGRAMS))
    return [
        f"{folder}: {count} modules in one folder, which may hold {MOST_MODULES}"
        for folder, count in sorted(counts.items())
        if count > MOST_MODULES
    ]


def room_of(place: str) -> str:
    return place.partition("/")[0].removesuffix(".py")


def find_imports(tree: ast.AST, place: str, *, lazy: bool = False) -> Iterator[Import]:
    """Yield every import below `tree`; `lazy` where it does not run when the file is loaded."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, place)
            yield from (Import(f"{base}.{alias.name}", node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.Call) and (named := imported_by_name(node)) is not None:
            yield Import(named, node.lineno, lazy)
        yield from find_imports(node, place, lazy=lazy or is_put_off(node))


def base_of(node: ast.ImportFrom, place: str) -> str:
    package = ["joulediff", *Path(place).parent.parts]
    above = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def imported_by_name(node: ast.Call) -> str | None:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first = node.args[0] if node.args else None
    if name in ("import_module", "__import__") and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def is_put_off(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not node.orelse


def prints(tree: ast.AST) -> list[int]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]


def door_breach(place: str, each: Import) -> str | None:
    library = each.module.partition(".")[0]
    door = DOORS.get(library)
    if door is None:
        return None
    if not place.startswith((f"{door}/", f"{door}.py")):
        return f"{place}:{each.line}: imports {library}, which only {door} may"
    return None if each.lazy else f"{place}:{each.line}: imports {library} when loaded; do it inside a function"


def rank_breach(place: str, each: Import) -> str | None:
    words = each.module.split(".")
    if words[0] != "joulediff":
        return None
    room, target = room_of(place), words[1] if len(words) > 1 else "__init__"
    if target == room or RANK.get(target, len(RANKS)) < RANK.get(room, -1):
        return None
    if target not in RANK:
        return f"{place}:{each.line}: imports joulediff.{target}, which is no room with a rank"
    return f"{place}:{each.line}: {room} imports {target}, and imports point down only"


def test_the_package_keeps_its_fences() -> None:
    assert len(list(SOURCE.rglob("*.py"))) > len(RANK)
    breaches = broken_fences(SOURCE)
    assert not breaches, "\n" + "\n".join(breaches)


def test_every_door_exists() -> None:
    """A renamed file would leave its rule guarding nothing."""
    for library, door in DOORS.items():
        assert (SOURCE / door).is_dir() or (SOURCE / f"{door}.py").is_file(), f"{library}: there is no {door}"


def test_every_room_exists() -> None:
    """A rank for a room that is gone would allow a new room of that name anywhere."""
    for room in RANK:
        assert (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file(), f"there is no {room}"


def test_a_large_folder_is_a_breach(tmp_path: Path) -> None:
    for number in range(MOST_MODULES):
        package(tmp_path, f"report/x{number}.py", "")
    package(tmp_path, "cases/library/tf32/lean.py", "")
    assert broken_fences(tmp_path / "joulediff") == []
    assert broken_fences(package(tmp_path, "report/one_more.py", "")) == [
        f"report: {MOST_MODULES + 1} modules in one folder, which may hold {MOST_MODULES}"
    ]


@pytest.mark.parametrize(
    ("place", "text", "breach"),
    [
        ("model/units.py", "from joulediff.report import terminal", "model imports report"),
        ("model/units.py", "from joulediff.pysource import programs", "model imports pysource"),
        ("archive/x.py", "def f():\n    from joulediff.measuring import idle", "archive imports measuring"),
        ("archive/x.py", "import joulediff.cli", "archive imports cli"),
        ("archive/x.py", "from ..cli import main", "archive imports cli"),
        ("archive/x.py", "from .. import cli", "archive imports cli"),
        ("archive/x.py", "import importlib\nimportlib.import_module('joulediff.cli')", "archive imports cli"),
        ("report/x.py", "if True:\n    from joulediff.cases import y", "report imports cases"),
        ("measuring/x.py", "from joulediff import measure", "joulediff.measure, which is no room"),
        ("measuring/x.py", "import joulediff", "which is no room"),
        ("kitchen/x.py", "", "the room 'kitchen' has no rank"),
        ("attic.py", "", "the room 'attic' has no rank"),
        ("report/x.py", "print('hello')", "print( belongs to no room"),
        ("archive/x.py", "def f():\n    import torch", "imports torch, which only frameworks/torch may"),
        (
            "measuring/meters/nvml_more.py",
            "def f():\n    import pynvml",
            "imports pynvml, which only measuring/meters/nvml may",
        ),
        ("frameworks/jax/x.py", "def f():\n    import torch.cuda", "imports torch, which only"),
        ("frameworks/torch/x.py", "import torch", "imports torch when loaded"),
        ("frameworks/torch/x.py", "try:\n    import torch\nexcept ImportError: pass", "imports torch when loaded"),
        ("frameworks/torch/x.py", "class A:\n    from torch import nn", "imports torch when loaded"),
        ("measuring/meters/nvml.py", "import pynvml", "imports pynvml when loaded"),
        ("archive/x.py", "def f():\n    __import__('amdsmi')", "imports amdsmi, which only"),
        ("__init__.py", "import torch", "imports torch, which only"),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, place: str, text: str, breach: str) -> None:
    found = broken_fences(package(tmp_path, place, text))
    assert len(found) == 1
    assert breach in found[0]
    assert found[0].startswith(place)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("cli/x.py", "from joulediff.report import terminal\nfrom joulediff.model.errors import JoulediffError"),
        (
            "archive/x.py",
            "from joulediff.archive.codec import a\nfrom .codec import b\nfrom . import codec",
        ),
        ("frameworks/torch/x.py", "def f():\n    import torch"),
        ("frameworks/torch/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("frameworks/torch.py", "def f():\n    from torch import nn"),
        ("measuring/meters/nvml.py", "def f():\n    import pynvml"),
        ("cases/library/tf32/lean.py", "import torch\nprint(torch)"),
        ("__init__.py", "from joulediff.measuring.step import measure"),
        ("report/x.py", "def f(console):\n    console.print('hello')"),
    ],
)
def test_an_allowed_import_is_no_breach(tmp_path: Path, place: str, text: str) -> None:
    assert broken_fences(package(tmp_path, place, text)) == []


def package(folder: Path, place: str, text: str) -> Path:
    path = folder / "joulediff" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder / "joulediff"


def modules_after(code: str) -> set[str]:
    """Return what a fresh Python has loaded after running `code`, by first names."""
    tail = "\nimport json, sys\nsys.stderr.write('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=60, env=os.environ, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_after("import joulediff")
    assert "joulediff" in loaded
    assert loaded.isdisjoint({*DOORS, "numpy", "scipy", "rich", "click", "psutil"})


@pytest.mark.parametrize("words", [["--help"], [], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    call = (
        f"from joulediff.cli import main\ntry:\n    main({words!r})\nexcept SystemExit as end:\n    assert not end.code"
    )
    loaded = modules_after(call)
    assert "click" in loaded
    assert loaded.isdisjoint({*DOORS, "numpy", "scipy", "rich", "psutil"})


def test_help_of_a_command_loads_no_framework() -> None:
    call = "from joulediff.cli import main\ntry:\n    main(['measure', '--help'])\nexcept SystemExit:\n    pass"
    assert modules_after(call).isdisjoint({*DOORS, "numpy", "scipy", "rich"})


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "joulediff", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""
    for command in ("measure", "doctor"):
        assert command in done.stdout
