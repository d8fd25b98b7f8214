"""Another Python: which are refused, which packages are provided, and that nothing else changes there."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from joulediff.model.errors import JoulediffError
from joulediff.process import import_hook as finder
from joulediff.process.interpreter import PROVIDED_BINARY, find_interpreter

SOURCE = Path(finder.__file__).parents[2]
ALIKE = [sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_platform()]
OTHER = [".cpython-310-riscv64-linux-gnu.so", "linux-riscv64"]


def write_python(path: Path, *, version: tuple[int, ...], binary: list[str], has: tuple[str, ...]) -> str:
    """Write a script that answers the probe like a Python of this kind."""
    answer = json.dumps({"version": version, "binary": binary, "has": has})
    return write_executable(path, f"#!/bin/sh\necho greetings from a startup file\necho '{answer}'\n")


def write_executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def refused(path: str) -> str:
    with pytest.raises(JoulediffError) as caught:
        find_interpreter(path)
    return str(caught.value)


def test_our_own_python_is_the_default() -> None:
    found = find_interpreter()
    assert found.path == sys.executable
    assert set(found.provided) >= {"psutil", "scipy"}


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert f"there is no Python at {tmp_path}/nope" in refused(f"{tmp_path}/nope")
    assert "there is no Python at no-such-python" in refused("no-such-python")


def test_a_folder_names_the_python_in_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert str(tmp_path / "bin" / "python") in refused(str(tmp_path))


def test_a_file_that_cannot_be_executed(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")
    assert "cannot be executed" in refused(str(tmp_path / "python"))


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n", "#!/bin/sh\necho '[]'\n", "\x7fELF"]
)
def test_a_file_that_is_not_a_python(tmp_path: Path, text: str) -> None:
    assert "is not a Python" in refused(write_executable(tmp_path / "python", text))


def test_a_python_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.process.interpreter.PROBE_S", 0.1)
    path = write_executable(tmp_path / "python", "#!/bin/sh\nexec sleep 60\n")
    assert "did not answer" in refused(path)


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 9, 18)])
def test_the_error_for_an_old_python_names_its_version(tmp_path: Path, version: tuple[int, ...]) -> None:
    path = write_python(tmp_path / "python", version=version, binary=[], has=())
    assert f"is Python {'.'.join(map(str, version))}, and recording needs 3.10 or newer" in refused(path)


def test_the_packages_that_are_missing_are_named_with_the_command(tmp_path: Path) -> None:
    path = write_python(tmp_path / "python", version=(3, 12, 1), binary=OTHER, has=("psutil",))
    said = refused(path)
    assert "(Python 3.12.1) lacks packages that recording needs: numpy, scipy" in said
    assert f"{path} -m pip install numpy scipy" in said


def test_numpy_is_never_provided(tmp_path: Path) -> None:
    path = write_python(tmp_path / "python", version=sys.version_info[:3], binary=ALIKE, has=())
    assert "lacks packages that recording needs: numpy\n" in refused(path)


def test_only_missing_packages_that_fit_are_provided(tmp_path: Path) -> None:
    path = write_python(tmp_path / "python", version=sys.version_info[:3], binary=ALIKE, has=("numpy", "psutil"))
    assert set(find_interpreter(path).provided) == {"scipy", "pynvml"}


def test_only_pure_python_packages_are_provided_to_another_build(tmp_path: Path) -> None:
    path = write_python(tmp_path / "python", version=(3, 12, 1), binary=OTHER, has=("numpy", *PROVIDED_BINARY))
    assert set(find_interpreter(path).provided) == {"pynvml"}


def test_a_name_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_python(tmp_path / "python-of-mine", version=(3, 12, 1), binary=OTHER, has=("numpy", *PROVIDED_BINARY))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_interpreter("python-of-mine").path == str(tmp_path / "python-of-mine")


def test_the_finder_offers_joulediff_alone() -> None:
    """In an environment without packages: `-I -S` leaves the standard library only."""
    code = """
        import sys
        before = list(sys.path)
        place = {}
        with open(sys.argv[1]) as file:
            exec(compile(file.read(), sys.argv[1], "exec"), place)
        place["install"](sys.argv[2])
        import joulediff.process.main
        import psutil
        assert sys.path == before
        for name in ("click", "numpy", "rich", "pyarrow", "pytest"):
            try:
                __import__(name)
            except ImportError:
                continue
            raise AssertionError(name)
        sys.path[:] = []
        import mmap, statistics
    """
    packages = {"first": {"joulediff": [str(SOURCE)]}, "fallback": {"psutil": [find_interpreter().provided["psutil"]]}}
    words = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code), finder.__file__, json.dumps(packages)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_child_needs_neither_our_command_line_nor_our_file_format() -> None:
    code = """
        import sys
        from joulediff.process.main import _load_joulediff
        _load_joulediff()
        assert not {"click", "rich", "pyarrow", "pynvml", "torch"} & set(sys.modules), sorted(sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_forked_copies_end_where_they_come_back() -> None:
    """`programs._call` stands for any code of ours that calls the program's."""
    code = """
        import multiprocessing, os, sys
        from joulediff.process.main import end_forked_copies
        from joulediff.pysource.programs import _call

        def say(text):
            os.write(1, f"{text}\\n".encode())

        def fork():
            if (copy := os.fork()) == 0:
                say("copy works")
                return
            os.waitpid(copy, 0)

        def fork_and_fail():
            if (copy := os.fork()) == 0:
                raise ValueError
            os.waitpid(copy, 0)

        def use_a_worker():
            context = multiprocessing.get_context("fork")
            results = context.Queue()
            worker = context.Process(target=lambda: results.put(sys.gettrace()))
            worker.start()
            say(f"worker is traced by {results.get()}")
            worker.join()

        end_forked_copies()
        for function in (fork, fork_and_fail, use_a_worker):
            _call(function, "the test")
            say("back")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["copy works", "back", "back", "worker is traced by None", "back"]
