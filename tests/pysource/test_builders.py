"""Functions that build no step are refused before anything of the program runs; unclear ones are run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_builders import forget_programs, write_program
from joulediff.model.errors import ProgramError
from joulediff.pysource.builders import check_builder
from joulediff.pysource.programs import check_program, load_step


@pytest.fixture(autouse=True)
def own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)
    yield
    forget_programs(tmp_path, before)


def why(text: str, name: str = "build", *, is_step: bool = False) -> str | None:
    """Return the error for a function of a file; None if it may build a step."""
    try:
        check_builder(text.encode(), name, "train.py", is_step=is_step)
    except ProgramError as error:
        assert error.fix
        return str(error)
    return None


# Trains when it is called, and marks when its file and its function run.
TRAINS = """
    from pathlib import Path
    Path("imported").touch()
    def main():
        Path("trained").touch()
        for epoch in range(3):
            print(epoch)
    if __name__ == "__main__":
        main()
"""


def test_a_function_that_trains_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = write_program(tmp_path / "train.py", TRAINS)
    for refuse in (check_program, load_step):
        with pytest.raises(ProgramError) as caught:
            refuse(f"{path}:main")
        assert caught.value.what == f"main() in {path} returns nothing, so it builds no step; it was not called"
        assert "return lambda: model(x)" in str(caught.value.fix)
        assert f"{path}:main --step" in str(caught.value.fix)
    assert not Path("trained").exists()
    assert not Path("imported").exists()


def test_a_function_that_trains_can_be_the_step(tmp_path: Path) -> None:
    path = write_program(tmp_path / "train.py", TRAINS)
    check_program(f"{path}:main", is_step=True)
    step = load_step(f"{path}:main", is_step=True)
    assert not Path("trained").exists()
    assert step() is None
    assert Path("trained").exists()


def test_a_module_is_refused_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    write_program(tmp_path / "lab" / "__init__.py", "")
    write_program(tmp_path / "lab" / "train.py", TRAINS)
    with pytest.raises(ProgramError) as caught:
        load_step("lab.train:main")
    assert caught.value.what == "main() in lab.train returns nothing, so it builds no step; it was not called"
    with pytest.raises(ProgramError, match=r"lab\.train has no build"):
        load_step("lab.train")
    assert not Path("imported").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(): train()", "returns nothing"),
        ("def build():\n    return", "returns nothing"),
        ("def build():\n    if x: return\n    return None", "returns nothing"),
        ("def build():\n    def step(): return 1\n    step()", "returns nothing"),
        ("def build():\n    return 3", "returns an int"),
        ("def build():\n    if x: return\n    return f'{x}'", "returns a str"),
        ("def build():\n    return 1, 2", "returns a tuple"),
        ("def build():\n    return [f for f in x]", "returns a list"),
        ("def build():\n    return (f for f in x)", "returns a generator"),
        ("def build():\n    return float(train())", "returns a float"),
        ("def build():\n    return 1 if x else {}", "so it builds no step"),
        ("def build():\n    return x and []  if y else ()", None),
        ("def build():\n    losses = []\n    train(losses)\n    return losses", "returns a list"),
        ("async def build(): return print", "only makes a coroutine or generator"),
        ("def build():\n    yield 1\n    return print", "only makes a coroutine or generator"),
        ("def build():\n    x = yield from y", "only makes a coroutine or generator"),
        ("def build(size, *, device, seed=0): return print", "build() in train.py needs arguments (size, device)"),
        ("def build():\n    return lambda batch: batch", "the step that build() in train.py returns needs arguments"),
        ("def build():\n    def step(): yield 1\n    return step", "the step that build() in train.py returns only"),
        ("async def step(): pass\ndef build(): return step", "the step that build() in train.py returns only"),
        ("class build: pass", "makes an object whose class has no __call__"),
        ("class build(object):\n    def run(self): pass", "makes an object whose class has no __call__"),
        ("class build:\n    def __init__(self, n): pass\n    def __call__(self): pass", "needs arguments (n)"),
        ("class build:\n    def __call__(self, x): pass", "build.__call__() in train.py needs arguments (x)"),
        ("class build:\n    async def __call__(self): pass", "build.__call__() in train.py only makes"),
    ],
)
def test_what_the_source_settles_is_refused(text: str, said: str | None) -> None:
    found = why(text)
    assert found is None if said is None else said in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "def build():\n    return lambda: 1",
        "def build():\n    def step(): return 1\n    return step",
        "def build():\n    def step(x=1, *y, **z): return 1\n    return step",
        "def build():\n    step = lambda: 1\n    return step",
        "def build():\n    return (step := lambda: 1)",
        "def build():\n    return make_step()",
        "def build():\n    model = load()\n    return model",
        "def build():\n    return Step()\nclass Step:\n    def __call__(self): pass",
        "def build():\n    return self.step",
        "def step(): pass\ndef build(): return step",
        "def build():\n    if fast: return lambda: 1\n    train()",
        "def build():\n    if fast: return None\n    return lambda: 1",
        "def build():\n    return lambda x: x if y else 1\n    return lambda: 1",
        "def build():\n    step = None\n    if x: step = lambda: 1\n    return step",
        "def build():\n    step = None\n    def other():\n        nonlocal step\n        step = print\n    return step",
        "def build(step=print): return step",
        "def build(size=3, *rest, **more): return print",
        "def build():\n    for step in steps: pass\n    return step",
        "def build():\n    return dict",
        "def build():\n    raise ValueError('no data')",
        "def build():\n    'Doc.'\n    raise ValueError('no data')",
        "def float(x): return print\ndef build(): return float(1)",
        "from lab import *\ndef build(): train()",
        "@decorated\ndef build(): train()",
        "@decorated\nclass build: pass",
        "class build(Base): pass",
        "class build(metaclass=Meta): pass",
        "class build:\n    def __new__(cls): return print",
        "class build:\n    __call__ = run",
        "def build(): train()\nbuild = wrap(build)",
        "def build(): train()\ndef other():\n    global build\n    build = 1",
        "if x:\n    def build(): return print\nelse:\n    def build(): pass",
        "try:\n    from a import build\nexcept ImportError:\n    def build(): pass",
        "build = partial(make, 3)",
        "build = 3",
        "from lab import build",
        "import build.lab",
        "from lab import *",
        "exec(text)",
        "globals()['build'] = print",
        "def __getattr__(name): return print",
        "import sys\nsetattr(sys.modules[__name__], 'build', print)",
        "match x:\n    case {'build': 1, **build}: pass",
        "def build(:",
        "x = '\0'",
        "def build():\n    return " + " + ".join(["x"] * 3000),
    ],
)
def test_what_the_source_leaves_open_is_run(text: str) -> None:
    assert why(text) is None


def test_a_warning_about_the_source_is_left_to_the_program(recwarn: pytest.WarningsRecorder) -> None:
    assert why("def build():\n    return lambda: '\\d'") is None
    assert not recwarn.list


SCRIPT = """
def load(path): return path
def make():
    return lambda: 1
def tuned():
    step = lambda: 2
    return step
def train(): print("training")
def _hidden(): return print
"""
GUARD = 'if __name__ == "__main__":\n    build = make()\n'


def test_a_missing_builder_is_reported_with_those_that_look_like_one() -> None:
    found = str(why(SCRIPT))
    assert found.startswith(
        "train.py has no build()\n  it defines: load, make, tuned, train; say which with train.py:NAME"
    )
    assert "look like a builder: make, tuned" in found
    assert "does not run" not in found


def test_a_script_without_a_builder_is_told_what_one_is() -> None:
    found = str(why(f"def train(): print(1)\n{GUARD}"))
    assert "train.py has no build()" in found
    assert "    def build():" in found
    assert "train.py:NAME --step" in found
    assert 'code under if __name__ == "__main__" is not run' in found


def test_a_name_after_the_guard_of_a_script_is_bound() -> None:
    assert why(f"{GUARD}else:\n    build = 1\n") is None


def test_a_function_that_returns_nothing_names_the_builders_beside_it() -> None:
    assert "these look like a builder: make, tuned" in str(why(SCRIPT, "train"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def step(): return 3", None),
        ("def step(): pass", None),
        ("step = Step()", None),
        ("@torch.no_grad()\ndef step(): pass", None),
        ("def step(x): pass", "step() in train.py needs arguments (x)"),
        ("async def step(): pass", "step() in train.py only makes a coroutine"),
        ("def step(): yield", "step() in train.py only makes a coroutine"),
        ("class step: pass", "step in train.py is a class"),
        ("def other(): pass", "train.py has no step()"),
    ],
)
def test_a_function_that_is_the_step(text: str, said: str | None) -> None:
    found = why(text, "step", is_step=True)
    assert found is None if said is None else said in str(found)


def test_a_step_needs_a_name(tmp_path: Path) -> None:
    path = write_program(tmp_path / "train.py", "def build(): pass\n")
    with pytest.raises(ProgramError) as caught:
        check_program(path, is_step=True)
    assert caught.value.what == f"--step needs the name of a function, and {path} names none"
    assert caught.value.fix == f"give {path}:NAME"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step = int", "step in {} is a class"),
        ("step = eval('lambda x: x')", "step() in {} needs arguments (x)"),
        ("step = 3", "step in {} is an int, not a function"),
        ("from os import *", "{} has no step()"),
    ],
)
def test_a_step_is_looked_at_once_its_file_has_run(tmp_path: Path, text: str, said: str) -> None:
    path = write_program(tmp_path / "train.py", text)
    with pytest.raises(ProgramError) as caught:
        load_step(f"{path}:step", is_step=True)
    assert said.format(path) in caught.value.what


def test_an_object_with_call_is_a_step(tmp_path: Path) -> None:
    path = write_program(tmp_path / "a.py", "class Step:\n    def __call__(self): return 7\nstep = Step()\n")
    assert load_step(f"{path}:step", is_step=True)() == 7
