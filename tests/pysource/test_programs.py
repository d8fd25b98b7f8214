from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_builders import forget_programs, write_program
from joulediff.model.errors import ProgramError
from joulediff.pysource.programs import UserCodeFailed, describe, label_of, load_builder, load_step

GOOD = """
    def build():
        return lambda: 42
"""
GOOD_TEXT = "def build():\n    return lambda: 42\n"


@pytest.fixture(autouse=True)
def own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start in an empty folder, and forget what the programs of a test have imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)
    yield
    forget_programs(tmp_path, before)


def refuse(target: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        load_step(target)
    return caught.value


def test_a_file_means_its_build(tmp_path: Path) -> None:
    assert load_step(write_program(tmp_path / "train.py", GOOD))() == 42


def test_a_file_in_the_folder_we_are_in(tmp_path: Path) -> None:
    write_program(tmp_path / "train.py", GOOD)
    assert load_step("train.py")() == 42
    assert load_step("./train.py")() == 42


def test_another_name(tmp_path: Path) -> None:
    path = write_program(tmp_path / "train.py", "def lean():\n    return lambda: 'lean'\n")
    assert load_step(f"{path}:lean")() == "lean"


def test_a_class_or_a_partial_builds_too(tmp_path: Path) -> None:
    text = """
        from functools import partial
        class Build:
            def __call__(self): return 7
        build = partial(Build)
    """
    path = write_program(tmp_path / "train.py", text)
    assert load_step(path)() == 7
    assert load_step(f"{path}:Build")() == 7


def test_a_step_with_defaults_or_written_in_c(tmp_path: Path) -> None:
    path = write_program(tmp_path / "a.py", "def build():\n    return lambda x=3, *rest, **more: x\n")
    assert load_step(path)() == 3
    path = write_program(tmp_path / "b.py", "def build():\n    return dict\n")
    assert load_step(path)() == {}


def test_a_program_imports_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write_program(tmp_path / "deep" / "neighbour_of_train.py", "VALUE = 5\n")
    text = "from neighbour_of_train import VALUE\ndef build():\n    return lambda: VALUE\n"
    assert load_step(write_program(tmp_path / "deep" / "train.py", text))() == 5


def test_a_program_may_define_dataclasses(tmp_path: Path) -> None:
    text = """
        from __future__ import annotations
        from dataclasses import dataclass, KW_ONLY
        @dataclass
        class Config:
            _: KW_ONLY
            size: int = 3
        def build():
            return lambda: Config(size=4).size
    """
    assert load_step(write_program(tmp_path / "configured.py", text))() == 4


def test_a_module_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    write_program(tmp_path / "lab" / "__init__.py", "def build():\n    return lambda: 'package'\n")
    write_program(tmp_path / "lab" / "run.py", "def build():\n    return lambda: 'module'\n")
    assert load_step("lab.run:build")() == "module"
    assert load_step("lab.run")() == "module"
    assert load_step("lab:build")() == "package"


def test_a_missing_file_lists_its_neighbours(tmp_path: Path) -> None:
    write_program(tmp_path / "lean.py", GOOD)
    write_program(tmp_path / "hf.py", GOOD)
    error = refuse(str(tmp_path / "laen.py"))
    assert f"there is no file {tmp_path / 'laen.py'}" in error.what
    assert "hf.py, lean.py" in str(error.fix)


@pytest.mark.parametrize("target", ["nowhere/train.py", "train.py", "C:\\work\\train.py", "C:\\work\\train.py:build"])
def test_a_missing_file_without_neighbours(target: str) -> None:
    error = refuse(target)
    assert "there is no file" in error.what
    assert target.removesuffix(":build") in error.what
    assert error.fix


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for target in ("models", "models/", str(tmp_path / "models")):
        error = refuse(target)
        assert "is a folder, not a program" in error.what
        assert "FILE.py" in str(error.fix)


@pytest.mark.parametrize("name", ["notes.txt", "Makefile", "data.json"])
def test_a_file_that_is_not_python(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello")
    assert "not a Python file" in refuse(name).what


@pytest.mark.parametrize("target", ["nosuchmodule", "nosuchmodule:build", "json.nosuch:build", ".rel", "a..b"])
def test_no_such_module(target: str) -> None:
    error = refuse(target)
    assert "no file and no module" in error.what
    assert "FILE.py[:name]" in str(error.fix)


@pytest.mark.parametrize("target", ["", ":build", ":"])
def test_no_name_at_all(target: str) -> None:
    assert refuse(target).fix


@pytest.mark.parametrize("target", ["train.py:", "train.py:my-step", "train.py:1"])
def test_a_name_that_is_none(tmp_path: Path, target: str) -> None:
    write_program(tmp_path / "train.py", GOOD)
    assert target in refuse(target).what


def test_a_missing_name_lists_the_defined_ones(tmp_path: Path) -> None:
    text = "from textwrap import dedent\ndef make(): ...\ndef other(): ...\ndef _private(): ...\nX = 1\n"
    write_program(tmp_path / "train.py", text)
    error = refuse("train.py:biuld")
    assert error.what == "train.py has no biuld()"
    assert "it defines: make, other;" in str(error.fix)
    assert "it defines no function" in str(refuse(write_program(tmp_path / "empty.py", "")).fix)


def test_a_name_that_is_no_function(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", "build = [1, 2]\n"))
    assert "build in" in error.what
    assert "is a list, not a function" in error.what


def test_build_that_needs_arguments(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", "def build(size, *, device): ...\n"))
    assert "build() in" in error.what
    assert "needs arguments (size, device)" in error.what


@pytest.mark.parametrize(("returned", "said"), [("None", "nothing"), ("3", "an int"), ("[1]", "a list")])
def test_build_that_returns_no_step(tmp_path: Path, returned: str, said: str) -> None:
    """What the source does not show is found once the function has been called."""
    error = refuse(write_program(tmp_path / "train.py", f"def build():\n    return eval('{returned}')\n"))
    assert f"returned {said}, and a step must be callable" in error.what
    assert "return lambda" in str(error.fix)


def test_a_step_that_needs_arguments(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", "def build():\n    return lambda batch: batch\n"))
    assert "the step that build()" in error.what
    assert "needs arguments (batch)" in error.what


@pytest.mark.parametrize("step", ["async def step(): ...", "def step(): yield 1"])
def test_a_step_that_would_not_run(tmp_path: Path, step: str) -> None:
    error = refuse(write_program(tmp_path / "train.py", f"{step}\ndef build():\n    return step\n"))
    assert "nothing runs" in error.what


def test_build_that_raises(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", "def build():\n    raise ValueError('no data')\n"))
    assert isinstance(error, UserCodeFailed)
    assert error.what.endswith("raised ValueError: no data (train.py:2)")
    assert isinstance(error.__cause__, ValueError)


def test_build_that_exits(tmp_path: Path) -> None:
    error = refuse(
        write_program(tmp_path / "train.py", "import sys\ndef build():\n    sys.exit(3)\n    return print\n")
    )
    assert "raised SystemExit: 3 (train.py:3)" in error.what


def test_a_file_that_raises_or_exits_when_loaded(tmp_path: Path) -> None:
    assert "ZeroDivisionError" in refuse(write_program(tmp_path / "a.py", "x = 1\nbuild = x / 0\n")).what
    assert "(b.py:1)" in refuse(write_program(tmp_path / "b.py", "raise SystemExit\nbuild = 1\n")).what


def test_a_file_that_imports_a_missing_module(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", f"import nosuchlibrary\n{GOOD_TEXT}"))
    assert "ModuleNotFoundError: No module named 'nosuchlibrary' (train.py:1)" in error.what


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    error = refuse(write_program(tmp_path / "train.py", "def build():\n    return (\n"))
    assert "SyntaxError" in error.what
    assert "line 2" in error.what


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xff\xfe\x00\x01")
    assert refuse("train.py").what.startswith(("train.py raised SyntaxError", "train.py raised ValueError"))  # 3.10


def test_a_module_that_raises_is_not_a_missing_module(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    write_program(tmp_path / "broken" / "__init__.py", "1 / 0\n")
    write_program(tmp_path / "broken" / "run.py", GOOD)
    assert "ZeroDivisionError" in refuse("broken.run:build").what
    write_program(tmp_path / "needy.py", f"import nosuchlibrary\n{GOOD_TEXT}")
    assert "No module named 'nosuchlibrary'" in refuse("needy:build").what


@pytest.mark.parametrize(
    "text", ["raise KeyboardInterrupt\nbuild = 1\n", "def build():\n    raise KeyboardInterrupt\n"]
)
def test_ctrl_c_passes_through(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_step(write_program(tmp_path / "train.py", text))


NOTED = """
    from pathlib import Path
    def note(word):
        with Path("noted").open("a") as file:
            file.write(word)
    note("file ")
    def build():
        note("build ")
        return lambda: note("step ")
"""


def test_a_builder_has_run_its_file_and_builds_when_called(tmp_path: Path) -> None:
    build = load_builder(write_program(tmp_path / "train.py", NOTED))
    assert Path("noted").read_text() == "file "
    step = build()
    assert Path("noted").read_text() == "file build "
    step()
    build()
    assert Path("noted").read_text() == "file build step build "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("build = 1 / 0\n", "raised ZeroDivisionError"),
        ("def lean():\n    return print\n", "has no build()"),
        ("build = 3\n", "is an int, not a function"),
        ("def build(size):\n    return print\n", "needs arguments (size)"),
    ],
)
def test_an_error_in_a_file_is_reported_before_anything_is_built(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProgramError) as caught:
        load_builder(write_program(tmp_path / "train.py", text))
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build():\n    raise ValueError('no')\n", "build() in train.py raised ValueError: no"),
        ("def build():\n    return eval('3')\n", "returned an int, and a step must be callable"),
        ("def build():\n    return eval('lambda x: x')\n", "needs arguments (x)"),
        ("async def step(): pass\ndef build():\n    return globals()['step']\n", "only makes a coroutine"),
    ],
)
def test_an_error_in_a_step_is_reported_when_it_is_built(tmp_path: Path, text: str, said: str) -> None:
    write_program(tmp_path / "train.py", text)
    build = load_builder("train.py")
    with pytest.raises(ProgramError) as caught:
        build()
    assert said in caught.value.what


def test_a_file_with_a_colon_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "run:3").mkdir()
    path = write_program(tmp_path / "run:3" / "train.py", GOOD)
    assert load_step(path)() == 42
    assert load_step(f"{path}:build")() == 42
    write_program(tmp_path / "odd:name.py", GOOD)
    assert load_step("odd:name.py")() == 42


@pytest.mark.parametrize(
    ("target", "label"),
    [
        ("hf.py", "hf"),
        ("hf.py:build", "hf"),
        ("/models/hf.py:lean", "hf:lean"),
        ("lab.models.gpt2:build", "gpt2"),
        ("lab.models.gpt2", "gpt2"),
        ("lab.gpt2:small", "gpt2:small"),
        ("my.model.py", "my.model"),
        ("run:3/train.py", "train"),
    ],
)
def test_label(target: str, label: str) -> None:
    assert label_of(target) == label


def test_a_long_message_is_one_short_line() -> None:
    try:
        raise RuntimeError("first\n  second\n" + "x" * 5000)
    except RuntimeError as error:
        text = describe(error)
    assert text.startswith("RuntimeError: first second x")
    assert "(test_programs.py:" in text
    assert len(text) < 600


def test_an_exception_without_words_is_its_name() -> None:
    assert describe(StopIteration()) == "StopIteration"
    assert describe(KeyboardInterrupt()) == "stopped with Ctrl-C"
