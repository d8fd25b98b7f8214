"""`%%joules --apis` in an IPython shell: its calls and their places, and that a cell runs as a plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from joulediff.integrations.cell_apis import loaded_libraries
from joulediff.model.apis.api_run import ApiRun

RunCell = Callable[[str], tuple[Any, str]]
APIS = "%%joules --apis --wait 0 --meter estimated"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(colors="nocolor")
    made.run_line_magic("load_ext", "joulediff")
    yield made
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell: InteractiveShell) -> RunCell:
    def run_cell(cell: str) -> tuple[Any, str]:
        with capture_output() as captured:
            done = shell.run_cell(cell, store_history=True)
        return done, captured.stdout + captured.stderr

    return run_cell


def sites(found: ApiRun) -> dict[tuple[str, int, str], int]:
    return {(each.file, each.line, api.api): each.calls for api in found.apis for each in api.sites}


def test_the_calls_of_a_cell_are_named_by_the_cell_and_the_line(shell: InteractiveShell, run: RunCell) -> None:
    run("import numpy as np")
    done, shown = run(f"{APIS} -o found -n load\n\nx = np.ones(9)\nfor _ in range(3):\n    y = np.sort(x)\nnp.sum(y)")
    found = shell.user_ns["found"]
    assert done.success
    assert done.result == 9
    assert isinstance(found, ApiRun)
    assert sites(found) == {
        ("In[2]", 3, "numpy.ones"): 1,
        ("In[2]", 5, "numpy.sort"): 3,
        ("In[2]", 6, "numpy.sum"): 1,
    }
    assert found.program == "In[2]"
    assert found.label == "load"
    assert found.ending == "end"
    assert {each.file for each in found.gaps} == {"In[2]"}
    (source,) = found.sources
    assert source.text.splitlines()[4] == "    y = np.sort(x)"
    assert "numpy.sort" in shown
    assert "joulediff apis --isolated" not in shown
    assert "numpy.sort" in found._repr_html_()


def test_names_stay_those_of_the_notebook(shell: InteractiveShell, run: RunCell) -> None:
    before = set(shell.user_ns)
    done, _ = run(f"{APIS} -q\nimport numpy as np\ndef total(n):\n    return np.ones(n).sum()\nm = total(4)")
    assert done.success
    assert done.result is None
    assert {name for name in set(shell.user_ns) - before if not name.startswith("_")} == {"np", "total", "m"}
    assert shell.user_ns["total"].__globals__ is shell.user_ns
    assert run("total(5)")[0].result == 5


def test_a_library_that_is_named_is_the_only_one(shell: InteractiveShell, run: RunCell) -> None:
    run("import numpy, json")
    run(f"{APIS} -q -o found --library json --library csv\nnumpy.ones(3)\njson.dumps([])")
    found = shell.user_ns["found"]
    assert found.libraries == ("json", "csv")
    assert [each.api for each in found.apis] == ["json.dumps"]


def test_libraries_are_by_default_those_that_are_imported_or_that_the_cell_imports() -> None:
    found = loaded_libraries("import jax.numpy as jnp")
    assert "jax" in found
    assert "numpy" in found
    assert "diffusers" not in found


def test_an_exception_passes_and_the_calls_before_it_are_stored(shell: InteractiveShell, run: RunCell) -> None:
    done, shown = run(f"{APIS} -o found\nimport numpy as np\nx = np.ones(2)\nraise ValueError('its own')")
    assert isinstance(done.error_in_exec, ValueError)
    found = shell.user_ns["found"]
    assert found.ending == "exception"
    assert found.error == "ValueError: its own (In[1]:4)"
    assert sites(found) == {("In[1]", 3, "numpy.ones"): 1}
    assert shown.count("Traceback") == 1
    assert "line 4\n" in shown
    assert "magics.py" not in shown
    assert "cell_apis.py" not in shown


def test_the_next_cell_is_not_measured(shell: InteractiveShell, run: RunCell) -> None:
    run(f"{APIS} -q -o first\nimport numpy as np\ndef make():\n    return np.ones(2)\nmake()")
    run("make()")
    run(f"{APIS} -q -o second\nmake()")
    assert sum(each.calls for each in shell.user_ns["first"].apis) == 1
    assert shell.user_ns["second"].apis == ()


def test_await_outside_of_a_function_works(shell: InteractiveShell, run: RunCell) -> None:
    run("import asyncio, numpy as np\nasync def later():\n    await asyncio.sleep(0)\n    return 2")
    done, shown = run(f"{APIS} -o found\nn = await later()\nnp.ones(n + await later()).sum()")
    assert done.success
    assert done.result == 4
    assert ("In[2]", 3, "numpy.ones") in sites(shell.user_ns["found"])
    assert "Out[" in shown
    assert "Out[" not in run(f"{APIS} -q\nawait later();")[1]


def test_names_that_hide_builtin_functions_in_other_cells_are_the_cells_own(run: RunCell) -> None:
    run("def list(x):\n    return x")
    assert run(f"{APIS} -q\nlist('ab')")[0].result == "ab"


def test_future_features_hold_for_the_cells_behind(run: RunCell) -> None:
    run(f"{APIS} -q\nfrom __future__ import annotations")
    assert run(f"{APIS} -q\ndef f(x: unknown): pass\nf.__annotations__")[0].result == {"x": "unknown"}


@pytest.mark.parametrize("body", ["x = (1", "return 1", "await x ="])
def test_a_syntax_error_is_that_of_the_cell(shell: InteractiveShell, run: RunCell, body: str) -> None:
    done, _ = run(f"{APIS} -o found\n{body}")
    assert isinstance(done.error_in_exec or done.error_before_exec, SyntaxError)
    assert "found" not in shell.user_ns


@pytest.mark.parametrize("line", ["--library numpy", "--apis --meter nonsense", "--apis --wait soon"])
def test_wrong_options_say_what_is_wrong_and_nothing_runs(shell: InteractiveShell, run: RunCell, line: str) -> None:
    done, shown = run(f"%%joules {line}\nx = 1")
    assert not done.success
    assert "UsageError" in shown
    assert "x" not in shell.user_ns


def test_a_line(shell: InteractiveShell, run: RunCell) -> None:
    run("import numpy as np")
    done, _ = run("%joules --apis -q --wait 0 --meter estimated -o found np.ones(3).sum()")
    assert done.result == 3
    assert ("In[2]", 1, "numpy.ones") in sites(shell.user_ns["found"])
