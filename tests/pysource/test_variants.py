"""Variants of a program: built from changed text, beside the program, which stays as it is."""

from __future__ import annotations

import importlib.machinery
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from joulediff.model.errors import JoulediffError
from joulediff.pysource.programs import Step, load_step
from joulediff.pysource.source_files import SourceFile
from joulediff.pysource.variants import build_variant, read_own_files

PROGRAM = """
from variant_helper import scale

def build():
    def step():
        from variant_helper import offset
        return scale(2) + offset
    return step
"""
HELPER = "offset = 1\n\ndef scale(x):\n    return 10 * x\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "variant_program.py").write_text(PROGRAM)
    (tmp_path / "variant_helper.py").write_text(HELPER)
    yield str(tmp_path / "variant_program.py")
    for name in ("variant_program", "variant_helper"):
        sys.modules.pop(name, None)


def test_the_files_of_a_program_are_its_own_and_those_it_imports(program: str, tmp_path: Path) -> None:
    load_step(program)
    files = read_own_files(program, root=tmp_path)
    assert [(each.module, each.path) for each in files] == [
        ("", "variant_program.py"),
        ("variant_helper", "variant_helper.py"),
    ]
    assert [each.text for each in files] == [PROGRAM, HELPER]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("scale(2)", "scale(3)", 31), ("10 * x", "20 * x", 41), ("offset = 1", "offset = 5", 25)],
)
def test_a_variant_has_the_change_and_the_program_has_not(
    program: str, tmp_path: Path, old: str, new: str, expected: int
) -> None:
    step = load_step(program)
    before = dict(sys.modules)
    variant = build_variant(program, _changed(program, tmp_path, old, new), root=tmp_path)
    with variant.active():
        assert variant.step() == expected
        assert variant.step() == expected
    assert step() == 21
    assert dict(sys.modules) == before
    assert "get_code" not in vars(importlib.machinery.SourceFileLoader)


def test_changed_code_shows_its_own_lines(program: str, tmp_path: Path) -> None:
    load_step(program)
    variant = build_variant(program, _changed(program, tmp_path, "scale(2)", "scale(7)"), root=tmp_path)
    assert "scale(7)" in inspect.getsource(variant.step)


def test_a_builder_can_be_called_in_another_way(program: str, tmp_path: Path) -> None:
    load_step(program)
    made: list[Step] = []

    def build(make: object) -> Step:
        assert callable(make)
        made.append(make())
        return lambda: "other"

    variant = build_variant(program, read_own_files(program, root=tmp_path), root=tmp_path, build=build)
    assert variant.step() == "other" and len(made) == 1


@pytest.mark.parametrize("text", ["def build(:\n", "raise RuntimeError('no')\n", "build = 3\n"])
def test_a_variant_that_cannot_be_built_leaves_nothing_behind(program: str, tmp_path: Path, text: str) -> None:
    step = load_step(program)
    before, path = dict(sys.modules), list(sys.path)
    files = read_own_files(program, root=tmp_path)
    with pytest.raises(JoulediffError):
        build_variant(program, [replace(files[0], text=text)], root=tmp_path)
    assert dict(sys.modules) == before and sys.path == path
    assert step() == 21


def test_a_module_that_only_the_variant_has_can_be_imported(program: str, tmp_path: Path) -> None:
    load_step(program)
    files = _changed(program, tmp_path, "from variant_helper import scale", "from variant_extra import scale")
    extra = SourceFile("variant_extra", "variant_extra.py", "def scale(x):\n    return 100 * x\n")
    variant = build_variant(program, [*files, extra], root=tmp_path)
    with variant.active():
        assert variant.step() == 201
    assert "variant_extra" not in sys.modules


def test_a_file_of_another_program_is_refused(program: str, tmp_path: Path) -> None:
    load_step(program)
    with pytest.raises(JoulediffError, match="no file of this program"):
        build_variant(program, [SourceFile("", "other.py", "")], root=tmp_path)


def _changed(program: str, root: Path, old: str, new: str) -> list[SourceFile]:
    files = read_own_files(program, root=root)
    assert any(old in each.text for each in files)
    return [replace(each, text=each.text.replace(old, new)) for each in files]
