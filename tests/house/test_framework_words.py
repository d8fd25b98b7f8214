"""A framework's names stand in its own folder alone: a new one changes nothing elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import joulediff
from joulediff.frameworks.framework import Framework, frameworks

SOURCE = Path(joulediff.__file__).parent
# Programs that joulediff is tried on: they use whatever they are about.
PROGRAMS = "cases/library/"
# Names that people call the frameworks by, besides those of their modules.
PRODUCTS = {"PyTorch": "torch", "TensorFlow": "tensorflow", "JAX": "jax"}
# The folder for programs that use none.
NO_FRAMEWORK = "plain"
# Places that may say a framework's name, and why.
ALLOWED: dict[tuple[str, str], str] = {}


def framework_words() -> dict[str, str]:
    """Return the words that belong to a framework, and the folder that may use each."""
    found = dict(PRODUCTS)
    for framework in frameworks():
        found |= dict.fromkeys(_words_of(framework), framework.name)
    return found


def _words_of(framework: Framework) -> Iterator[str]:
    operators = framework.operators
    yield framework.name
    yield from framework.libraries
    yield from operators.namespaces
    yield from (name for name in operators.reads | operators.copies)
    if operators.engine_call is not None:
        yield operators.engine_call


def find_words(source: Path) -> list[str]:
    """Return a sentence for each framework word in a file outside of the framework's folder."""
    words = framework_words()
    any_word = re.compile("|".join(map(re.escape, words)))
    found = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).as_posix()
        if place.startswith(PROGRAMS):
            continue
        for line, text in texts_of(ast.parse(path.read_text(encoding="utf-8"))):
            if any_word.search(text) is None:
                continue
            for word, home in words.items():
                is_home = place.startswith(f"frameworks/{home}/")
                if not is_home and (place, word) not in ALLOWED and has_word(text, word):
                    found.append(f"{place}:{line}: {word!r} belongs to frameworks/{home}: {text.strip()[:60]!r}")
    return found


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text) is not None


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield identifiers and string constants with their lines; docstrings may name an example."""
    docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.lineno, node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)


def test_framework_words_stand_in_their_folder_alone() -> None:
    found = find_words(SOURCE)
    assert not found, "\n" + "\n".join(found)


def test_every_folder_of_a_framework_describes_it() -> None:
    folders = {path.parent.name for path in (SOURCE / "frameworks").glob("*/__init__.py")}
    assert folders >= {"torch", "jax", "tensorflow"}
    assert folders - {NO_FRAMEWORK} <= {framework.name for framework in frameworks()}


@pytest.mark.parametrize(
    ("place", "text", "word"),
    [
        ("diagnosis/x.py", 'name.removeprefix("aten::")', "aten"),
        ("model/run.py", 'CALL = "_engine_run_backward"', "_engine_run_backward"),
        ("frameworks/settings.py", 'if "torch" in sys.modules: pass', "torch"),
        ("frameworks/jax/x.py", "def f():\n    import torch", "torch"),
        ("report/x.py", 'text = "PyTorch ran it"', "PyTorch"),
        ("pysource/x.py", "def put_torch(): pass", "torch"),
        ("cli/x.py", "from joulediff.frameworks.torch import recorder", "torch"),
        ("cli/x.py", "open_jax()", "jax"),
    ],
)
def test_a_word_elsewhere_is_found(tmp_path: Path, place: str, text: str, word: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    found = find_words(tmp_path)
    assert found and all(each.startswith(place) for each in found)
    assert any(f"{word!r} belongs to" in each for each in found)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("frameworks/torch/x.py", "def f():\n    import torch"),
        ("model/run.py", '"""An operator: `aten::addmm`."""'),
        ("model/x.py", 'class A:\n    name: str\n    """As in `torch.add`."""'),
        ("cases/library/tf32/lean.py", "import torch"),
        ("report/x.py", 'concatenate("concatenate")'),
    ],
)
def test_examples_and_other_words_are_no_breach(tmp_path: Path, place: str, text: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert find_words(tmp_path) == []
