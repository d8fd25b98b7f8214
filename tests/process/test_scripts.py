"""A script runs as under python, and its calls are in the record, however it ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from pathlib import Path

import pytest

from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.options import ApisOptions
from joulediff.process.interpreter import find_interpreter
from joulediff.process.scripts.parent import run_script
from joulediff.process.scripts.request import ScriptRequest, from_text, to_text
from joulediff.pysource.run_script import find_module

# Waiting for a quiet machine is not what is tested.
OPTIONS = ApisOptions(meter="estimated", cpu_watts=10.0, wait_s=0.0)


def write(folder: Path, source: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def run(path, *arguments: str, libraries=("numpy",), include=(), options=OPTIONS, keep=None, is_module=False):
    request = ScriptRequest(
        str(path),
        Path(path).stem,
        options,
        arguments,
        libraries=tuple(libraries),
        include=tuple(include),
        is_module=is_module,
    )
    return run_script(request, interpreter=find_interpreter(), keep=keep)


def apis_of(found):
    return {each.api: each for each in found.apis}


def test_the_request_survives_the_command_line():
    request = ScriptRequest("a.py", "a", OPTIONS, ("--x", "é"), libraries=("torch",), include=("lib.*",))
    assert from_text(to_text(request)) == request


def test_calls_have_their_lines_counts_and_bytes(tmp_path):
    path = write(
        tmp_path,
        """
        import numpy as np

        def work(x):
            return np.dot(x, x)

        a = np.ones((100, 100))
        for _ in range(3):
            work(a)
        """,
    )
    found = run(path)
    dot = apis_of(found)["numpy.dot"]
    assert (dot.calls, dot.sites[0].line, dot.sites[0].function) == (3, 5, "work")
    assert dot.input_bytes == 3 * 2 * 80_000
    assert apis_of(found)["numpy.ones"].calls == 1
    assert (found.ending, found.exit_code) == ("end", 0)
    assert found.sources[0].text == path.read_text()
    assert found.ledger["cpu"].closure == pytest.approx(1.0, abs=0.02)


def test_a_script_sees_what_it_sees_under_python(tmp_path, capfd):
    path = write(
        tmp_path,
        """
        import __main__, inspect, os, sys
        import numpy as np
        print(__name__, os.path.basename(__file__), sys.argv[1:], os.path.basename(sys.path[0]))
        print(__main__.__dict__ is globals(), inspect.getsource(inspect.currentframe()).splitlines()[1][:14])
        print(sorted(name for name in globals() if not name.startswith("__")), threading_count())
        """.replace("threading_count()", "__spec__"),
    )
    run(path, "--flag", "value")
    shown = capfd.readouterr().out
    plain = subprocess.run(
        [sys.executable, str(path), "--flag", "value"], capture_output=True, text=True, check=True
    ).stdout
    assert shown == plain


def test_an_exception_keeps_the_record_and_its_own_traceback(tmp_path, capfd):
    path = write(
        tmp_path,
        """
        import numpy as np
        def invert(x):
            return np.linalg.inv(x)
        np.ones(3)
        invert(np.zeros((2, 2)))
        """,
    )
    found = run(path)
    assert (found.ending, found.exit_code) == ("exception", 1)
    assert found.error.startswith("LinAlgError: Singular matrix")
    assert apis_of(found)["numpy.linalg.inv"].calls == 1
    trace = capfd.readouterr().err
    assert "joulediff" not in trace
    assert f'File "{path}", line 6, in <module>' in trace
    assert "in invert" in trace


def test_an_exit_code_and_exit_handlers_are_the_scripts_own(tmp_path, capfd):
    path = write(
        tmp_path,
        """
        import atexit, sys
        import numpy as np
        atexit.register(lambda: print("bye", np.ones(3).sum()))
        sys.exit(3)
        """,
    )
    found = run(path)
    assert (found.ending, found.exit_code) == ("exit", 3)
    assert capfd.readouterr().out == "bye 3.0\n"
    assert apis_of(found)["numpy.ndarray.sum"].calls == 1


def test_a_forked_copy_runs_to_its_end_and_is_not_measured_twice(tmp_path, capfd):
    path = write(
        tmp_path,
        """
        import os
        import numpy as np
        pid = os.fork()
        np.ones(10)
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        print("parent" if pid else "child", flush=True)
        """,
    )
    found = run(path)
    assert apis_of(found)["numpy.ones"].calls == 1
    assert sorted(capfd.readouterr().out.split()) == ["child", "parent"]


def test_worker_processes_are_in_the_books(tmp_path):
    path = write(
        tmp_path,
        """
        import multiprocessing, time
        import numpy as np

        def work(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end:
                np.ones(1000).sum()
            return seconds

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [0.7, 0.7]))
        """,
    )
    found = run(path)
    account = found.ledger["cpu"]
    assert account.children.joules > 10
    assert account.closure == pytest.approx(1.0, abs=0.02)


def test_calls_of_threads_are_measured(tmp_path):
    path = write(
        tmp_path,
        """
        import threading
        import numpy as np

        def work():
            for _ in range(20):
                np.linalg.svd(np.ones((60, 60)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        """,
    )
    found = run(path)
    assert apis_of(found)["numpy.linalg.svd"].calls == 60
    assert found.ledger["cpu"].closure == pytest.approx(1.0, abs=0.02)


def test_a_killed_script_leaves_the_record_so_far(tmp_path):
    path = write(
        tmp_path,
        """
        import os, time
        import numpy as np
        begin = time.time()
        while time.time() < begin + 2.5:
            np.ones(100_000).sum()
        os.kill(os.getpid(), 9)
        """,
    )
    found = run(path)
    assert found.ending == "killed"
    assert not found.trustworthy
    assert apis_of(found)["numpy.ones"].calls > 0
    assert "SIGKILL" in found.error


def test_a_script_that_replaces_its_process_at_once_is_an_error(tmp_path):
    path = write(tmp_path, "import os\nos._exit(7)\n")
    with pytest.raises(JoulediffError, match="exit code 7"):
        run(path)


def test_a_script_without_a_call_of_a_library_has_only_its_own_code(tmp_path):
    found = run(write(tmp_path, "sum(range(2_000_000))\n"))
    assert found.apis == ()
    assert found.ledger["cpu"].between.joules > 0


def test_modules_of_the_program_are_measured_if_they_are_included(tmp_path):
    (tmp_path / "helpers").mkdir()
    write(tmp_path / "helpers", "", "__init__.py")
    write(tmp_path / "helpers", "import numpy as np\ndef make():\n    return np.ones(5)\n", "arrays.py")
    path = write(tmp_path, "from helpers.arrays import make\nmake()\n")
    assert run(path).apis == ()
    (ones,) = run(path, include=("helpers",)).apis
    assert (ones.api, Path(ones.sites[0].file).name, ones.sites[0].line) == ("numpy.ones", "arrays.py", 3)


def test_by_default_the_libraries_that_the_script_imports_are_watched(tmp_path):
    path = write(tmp_path, "import numpy as np\nimport json\nnp.ones(3)\njson.dumps([])\n")
    found = run(path, libraries=())
    assert found.libraries == ("numpy",)
    assert set(apis_of(found)) == {"numpy.ones"}


def test_a_module_runs_as_under_python(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    write(tmp_path / "app", "print('package')\n", "__init__.py")
    write(tmp_path / "app", "import numpy as np\ndef make(): return np.ones(5)\n", "arrays.py")
    source = """
        import sys
        from .arrays import make
        print(__name__, __package__, __spec__.name, __file__, sys.argv, sys.path[0], make().sum())
    """
    write(tmp_path / "app", source, "main.py")
    write(tmp_path / "app", "from . import main\n", "__main__.py")
    for name in ("app.main", "app"):
        subprocess.run([sys.executable, "-m", name, "--x"], check=True)
        plain = capfd.readouterr().out
        found = run(name, "--x", include=("app",), is_module=True)
        assert plain.startswith("package") and capfd.readouterr().out == plain
        assert apis_of(found)["numpy.ones"].sites[0].file == str(tmp_path / "app" / "arrays.py")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("app.other", "there is no module app.other"),
        ("nothing", "there is no module nothing"),
        ("app", "app is a package without __main__.py"),
        ("native", "the module native has no source file"),
        ("", "there is no module "),
    ],
)
def test_a_module_that_cannot_run_is_named(tmp_path, monkeypatch, name, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    write(tmp_path, "", f"native{EXTENSION_SUFFIXES[0]}")
    write(tmp_path / "app", "raise RuntimeError('is not imported to look')\n", "__init__.py")
    with pytest.raises(ProgramError) as raised:
        find_module(name)
    assert raised.value.what == what and raised.value.fix


def test_with_modules_of_the_program_only_what_the_script_imports_is_missed(tmp_path):
    path = write(tmp_path, "import sys\nif not sys.argv[1:]:\n    import jax\nimport numpy as np\nnp.ones(3)\n")
    found = run(path, "-", libraries=(), include=("helpers",))
    assert "torch" in found.libraries
    assert [each for each in found.warnings if "did not import" in each] == [
        "the program did not import jax: no call of it was measured"
    ]


def test_isolated_calls_are_measured_from_rest_to_rest(tmp_path):
    path = write(
        tmp_path,
        """
        import numpy as np
        x = np.ones((300, 300))
        for _ in range(3):
            np.linalg.svd(x)
        """,
    )
    options = ApisOptions(meter="estimated", cpu_watts=10.0, wait_s=0.0, isolated=1)
    found = run(path, options=options)
    svd = apis_of(found)["numpy.linalg.svd"]
    assert (svd.calls, svd.isolated_calls) == (3, 1)
    assert found.ledger["cpu"].measuring is not None
    assert found.ledger["cpu"].closure == pytest.approx(1.0, abs=0.02)


def test_the_record_is_kept_while_the_script_runs(tmp_path):
    kept = []
    path = write(
        tmp_path,
        """
        import time
        import numpy as np
        begin = time.time()
        while time.time() < begin + 2.5:
            np.ones(100_000).sum()
        """,
    )
    last = run(path, keep=kept.append)
    assert len(kept) > 1
    assert kept[-1] == last
    assert all(a.calls <= b.calls for a, b in pairwise(kept))


def test_functions_of_the_script_go_to_other_processes(tmp_path, capfd):
    path = write(
        tmp_path,
        """
        import numpy as np
        from joblib import Parallel, delayed

        def work(n):
            return float(np.ones(n).sum())

        print(Parallel(n_jobs=2)(delayed(work)(n) for n in range(4)))
        """,
    )
    found = run(path)
    assert capfd.readouterr().out == "[0.0, 1.0, 2.0, 3.0]\n"
    assert found.exit_code == 0
