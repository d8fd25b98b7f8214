"""A file runs as `__main__`, with what `python FILE.py` gives it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from cli_builders import write_program
from joulediff.model.errors import ProgramError
from joulediff.pysource.run_script import run_as_main

SHOW = """
    import json, sys
    import neighbour
    names = ("__name__", "__file__", "__package__", "__spec__", "__cached__", "__doc__")
    found = {name: globals()[name] for name in names}
    found["loader"] = [type(__loader__).__name__, __loader__.name, __loader__.path]
    found["builtins"] = __builtins__.__name__
    found["is_main"] = sys.modules["__main__"].__dict__ is globals()
    found["argv"], found["path"], found["neighbour"] = sys.argv, sys.path[0], neighbour.value
    found["code"] = (lambda: 0).__code__.co_filename
    text = json.dumps(found)
    print(text)
"""


@pytest.fixture(autouse=True)
def own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start in an empty folder, and restore what a script changes for good."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", list(sys.argv))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield
    sys.modules.pop("neighbour", None)


def test_a_script_finds_what_python_gives_it(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    write_program(folder / "neighbour.py", "value = 7")
    write_program(folder / "show.py", SHOW)
    (tmp_path / "link.py").symlink_to(folder / "show.py")
    for path in ("code/show.py", "link.py"):
        plain = subprocess.run(
            [sys.executable, path, "-x", "1"], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        found = json.loads(run_as_main(path, ("-x", "1")).text)
        assert found == json.loads(plain.stdout)


def test_exceptions_and_exits_pass(tmp_path: Path) -> None:
    failing = write_program(tmp_path / "failing.py", "import sys\n\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_as_main(failing)
    assert caught.traceback[-1].lineno == 2
    leaving = write_program(tmp_path / "leaving.py", "import sys\nsys.exit(5)\n")
    with pytest.raises(SystemExit) as left:
        run_as_main(leaving)
    assert left.value.code == 5
    with pytest.raises(SyntaxError):
        run_as_main(write_program(tmp_path / "wrong.py", "for x in:\n"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no such file"):
        run_as_main("absent.py")
    with pytest.raises(ProgramError, match="directory"):
        run_as_main(tmp_path)


def test_another_compiler_sees_the_file(tmp_path: Path) -> None:
    path = write_program(tmp_path / "two.py", "# -*- coding: latin-1 -*-\ntext = 'ü'\n")

    def rewritten(content: bytes, file: str) -> CodeType:
        tree = ast.parse(content, file)
        tree.body.append(ast.parse("text += '!'").body[0])
        return compile(tree, file, "exec", dont_inherit=True)

    assert run_as_main(path, compile=rewritten).text.endswith("!")


def test_our_own_future_imports_do_not_reach_the_script(tmp_path: Path) -> None:
    path = write_program(tmp_path / "typed.py", "def f(x: 1 + 1): pass\nfound = f.__annotations__['x']\n")
    assert run_as_main(path).found == 2


SPAWN = """
    import multiprocessing, sys
    def double(x):
        return 2 * x
    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.map(double, [1, 2])
"""


def test_spawned_processes_find_the_functions_of_the_script(tmp_path: Path) -> None:
    path = write_program(tmp_path / "spawning.py", SPAWN)
    assert run_as_main(path).found == [2, 4]
