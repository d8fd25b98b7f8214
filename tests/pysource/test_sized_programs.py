"""Programs whose builder takes the size of the input: what is loaded, and what is refused before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_builders import forget_programs, write_program
from joulediff.model.errors import ProgramError
from joulediff.pysource.programs import UserCodeFailed, load_sized


@pytest.fixture(autouse=True)
def own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)
    yield
    forget_programs(tmp_path, before)


@pytest.mark.parametrize(
    "text",
    [
        "def build(size):\n    return lambda: 2 * size\n",
        "def build(size, factor=2):\n    return lambda: factor * size\n",
        "def build(*sizes):\n    return lambda: 2 * sizes[0]\n",
        "build = lambda size: lambda: 2 * size\n",
        "class build:\n    def __init__(self, n): self.n = n\n    def __call__(self): return 2 * self.n\n",
    ],
)
def test_a_builder_gets_the_size(tmp_path: Path, text: str) -> None:
    build = load_sized(write_program(tmp_path / "p.py", text))
    assert build(21)() == 42
    assert build(1000)() == 2000


def test_a_step_gets_the_size(tmp_path: Path) -> None:
    path = write_program(tmp_path / "p.py", "def sort(size):\n    return list(range(size))\n")
    assert load_sized(f"{path}:sort", is_step=True)(3)() == [0, 1, 2]


@pytest.mark.parametrize("is_step", [False, True])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def build(): return lambda: 1", "build() in p.py takes no argument, and it is called with the size"),
        ("def build(*, size): return lambda: 1", "build() in p.py takes no argument, and it is called with the size"),
        (
            "def build(n, m, k=3): return lambda: 1",
            "build() in p.py needs more arguments than the size (m), and it is called with the size alone",
        ),
        (
            "def build(n, *, m): return lambda: 1",
            "build() in p.py needs more arguments than the size (m), and it is called with the size alone",
        ),
        ("async def build(n): return lambda: 1", "build() in p.py only makes a coroutine"),
    ],
)
def test_a_function_that_cannot_take_a_size_is_refused_before_it_runs(
    tmp_path: Path, text: str, what: str, is_step: bool
) -> None:
    write_program(tmp_path / "p.py", f"raise ValueError('it ran')\n{text}\n")
    with pytest.raises(ProgramError) as caught:
        load_sized("p.py:build", is_step=is_step)
    assert caught.value.what.startswith(what)
    assert caught.value.fix


def test_a_function_that_the_source_leaves_open_is_refused_after_it_is_loaded(tmp_path: Path) -> None:
    write_program(tmp_path / "p.py", "build = [lambda: 1][0]\nother = [lambda n, m: 1][0]\n")
    with pytest.raises(ProgramError, match="takes no argument"):
        load_sized("p.py")
    with pytest.raises(ProgramError, match=r"more arguments than the size \(m\)"):
        load_sized("p.py:other")


def test_the_errors_show_a_builder_of_a_size(tmp_path: Path) -> None:
    write_program(tmp_path / "p.py", "def build(n):\n    return 3\n\ndef other(n):\n    return lambda: n\n")
    for target in ("p.py", "p.py:nothing"):
        with pytest.raises(ProgramError) as caught:
            load_sized(target)
        assert "def build(size):" in str(caught.value)


def test_what_a_builder_returns_is_checked(tmp_path: Path) -> None:
    write_program(
        tmp_path / "p.py",
        "steps = {1: lambda: 1, 2: 5}\ndef build(n):\n    return steps[n]\nstep = type('S', (int,), {})\n",
    )
    build = load_sized("p.py")
    assert build(1)() == 1
    with pytest.raises(ProgramError, match="returned an int, and a step must be callable"):
        build(2)
    with pytest.raises(UserCodeFailed, match="KeyError: 3"):
        build(3)
    with pytest.raises(ProgramError, match="is a class"):
        load_sized("p.py:step", is_step=True)
