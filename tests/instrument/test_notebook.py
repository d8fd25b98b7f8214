"""Notebooks: what is refused, which lines are no Python, and how cells run."""

from __future__ import annotations

import ast
import json
import sys
import traceback
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.instrument.notebook.magics import to_plain
from joulediff.instrument.notebook.read import parse_notebook, raw_offsets, read_notebook
from joulediff.instrument.notebook.run import NotebookProgram, compile_plain
from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.model.errors import ProgramError
from notebook_builders import code, notebook, write
from patch_builders import Noted


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep what a program changes for good: its process is its own."""
    argv, path, main = list(sys.argv), list(sys.path), sys.modules["__main__"]
    monkeypatch.chdir(".")
    yield
    sys.argv[:], sys.path[:] = argv, path
    sys.modules["__main__"] = main


def run(path: str, *arguments: str, notes: list[str] | None = None, **options: Any) -> Any:
    note = None if notes is None else notes.append
    return NotebookProgram(path, note=note, use_ipython=False).run(arguments=arguments, **options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[]", "its outermost value is no object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"nbformat": 4, "cells": 1e400}', "its cells are no list"),
        ('{"nbformat": 9' + "9" * 5000 + "}", "it is not JSON"),
        ('{"cells": []}', "it has no nbformat"),
        ('{"nbformat": true, "cells": []}', "it has no nbformat"),
        ('{"nbformat": "4", "cells": []}', "it has no nbformat"),
        ('{"nbformat": 3, "worksheets": []}', "old notebook format 3"),
        ('{"nbformat": 4, "cells": {}}', "its cells are no list of objects"),
        ('{"nbformat": 4, "cells": [1]}', "its cells are no list of objects"),
        ('{"nbformat": 4, "cells": []}', "has no code cells"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "the source of a code cell is no text"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}', "the source of a code cell is no text"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["a", 1]}]}', "the source of a code cell is no"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": "\\ud800"}]}', "cell 1 holds half a character"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": "a"}], "cells": []}', "occurs twice"),
        (json.dumps(notebook(code("x"), metadata={"language_info": {"name": "R"}})), "is a notebook of R"),
    ],
)
def test_a_file_that_is_no_notebook_of_python_is_refused(text: str, said: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse_notebook(text, "train.ipynb")
    assert said in raised.value.what and raised.value.fix


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="cannot read"):
        read_notebook(str(tmp_path / "none.ipynb"))
    (tmp_path / "b.ipynb").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ProgramError, match="it is not UTF-8"):
        read_notebook(str(tmp_path / "b.ipynb"))


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_is_read_or_refused(content: Any) -> None:
    for each in (content, notebook(content), notebook(code(source=content)), notebook(code("x"), cells=content)):
        try:
            parse_notebook(json.dumps(each), "train.ipynb")
        except ProgramError:
            continue
        assert isinstance(each, dict)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.booleans(), st.none() | st.just(1))
def test_each_character_of_a_source_is_found_in_the_file(lines: list[str], is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(notebook(code(*lines)), ensure_ascii=is_ascii, indent=indent)
    (cell,) = parse_notebook(text, "train.ipynb").cells
    assert cell.source == "".join(lines)
    for token in cell.tokens:
        offsets = raw_offsets(text, token)
        raw = [text[begin:end] for begin, end in pairwise(offsets)]
        assert [json.loads(f'"{each}"') for each in raw] == list(token.value)


@pytest.mark.parametrize(
    ("source", "plain", "magics"),
    [
        ("%matplotlib inline\nx = 1", "0                 \nx = 1", [(1, True)]),
        ("x = (3\n % 4)\n%cd it's", "x = (3\n % 4)\n0       ", [(3, False)]),
        ("!pip install \\\n   foo\ny", "0             \n      \ny", [(1, False)]),
        ("if x:\n    !echo é\n", "if x:\n    0      \n", [(2, False)]),
        ("files = !ls\nz = %time f()", "0          \n0            ", [(1, False), (2, False)]),
        ("x?\n?y\n", "0 \n0 \n", [(1, False), (2, False)]),
        ("'''\n%no\n'''", "'''\n%no\n'''", []),
        ("await f()", "await f()", []),
    ],
)
def test_lines_that_are_no_python_are_found(source: str, plain: str, magics: list[tuple[int, bool]]) -> None:
    found = to_plain(source, "cell")
    assert found.source == plain and len(plain) == len(source)
    assert [(each.line, each.is_harmless) for each in found.magics] == magics


@pytest.mark.parametrize(
    ("source", "plain", "is_harmless"),
    [
        ("\n%%time\nf()", "\n      \nf()", True),
        ("%%bash\nls", "", False),
        ("%%capture out\nf()", "             \nf()", False),
    ],
)
def test_cell_magics(source: str, plain: str, is_harmless: bool) -> None:
    found = to_plain(source, "cell")
    assert found.source == plain
    assert found.cell_magic is not None and found.cell_magic.is_harmless is is_harmless


@pytest.mark.parametrize("source", ["x = = 3", "x = 1 +\n%time y", "def f():\n%time x", "%time y = f(\n  3)", "a\0b"])
def test_a_cell_that_python_cannot_read_is_refused(source: str) -> None:
    with pytest.raises(ProgramError) as raised:
        to_plain(source, "train.ipynb#cell-1")
    assert "train.ipynb#cell-1" in raised.value.what and raised.value.fix


def test_cells_run_in_order_as_one_program(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        code("from __future__ import annotations\n", "import sys, os, __main__"),
        {"cell_type": "markdown", "metadata": {}, "source": ["x = 2"]},
        code("x = 1\n", "def f(a: unknown): return __main__.x + a"),
        code(source="y = f(2)\nseen = __name__, sys.argv, os.getcwd()\n'last'; last = 5"),
    )
    main = run(path, "--epochs", "2")
    assert (main.x, main.y, main.last) == (1, 3, 5)
    assert main.seen == ("__main__", [path, "--epochs", "2"], str(tmp_path.resolve()))
    assert not hasattr(main, "__file__")


def test_await_works_between_cells(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        code("import asyncio\n", "async def f(): return asyncio.get_running_loop()\n", "first = await f()"),
        code("second = await f()"),
    )
    main = run(path)
    assert main.first is main.second


def test_an_exception_passes_through_and_names_cell_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, code("def f():\n", "    raise KeyError(1)  # here"), code("\n", "f()\n"), code("after = 1"))
    with pytest.raises(KeyError) as raised:
        run(path)
    frames = traceback.extract_tb(raised.value.__traceback__)[-2:]
    assert [(each.filename, each.lineno, each.line) for each in frames] == [
        (f"{path}#cell-2", 2, "f()"),
        (f"{path}#cell-1", 2, "raise KeyError(1)  # here"),
    ]
    assert not hasattr(sys.modules["__main__"], "after")


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt()"])
def test_other_ends_pass_through(tmp_path: Path, error: str) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        run(write(tmp_path, code(f"raise {error}")))


def test_harmless_magics_are_left_out_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, code("%matplotlib inline\n", "x = 1"), code("%%time\n", "y = 2"))
    notes: list[str] = []
    main = run(path, notes=notes)
    assert (main.x, main.y) == (1, 2)
    assert [each.rpartition("#")[2] for each in notes] == [
        "cell-1, line 1: left out %matplotlib inline (it needs IPython)",
        "cell-2, line 1: left out %%time (it needs IPython)",
    ]


@pytest.mark.parametrize("line", ["!touch made", "%cd /", "%%bash\ntouch made", "x = !touch made", "len?"])
def test_without_ipython_a_notebook_that_needs_it_does_not_begin(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, code("open('begun', 'w').close()"), code(line))
    with pytest.raises(ProgramError, match="IPython is not installed") as raised:
        run(path)
    assert "cell-2, line 1" in raised.value.what and "pip install ipython" in (raised.value.fix or "")
    assert [each.name for each in tmp_path.iterdir()] == ["train.ipynb"]


def test_no_cell_runs_if_one_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, code("open('begun', 'w').close()"), code("x = = 1"))
    for use_ipython in (False, True):
        with pytest.raises(ProgramError, match="cell-2, line 1"):
            NotebookProgram(path, use_ipython=use_ipython).run()
    assert [each.name for each in tmp_path.iterdir()] == ["train.ipynb"]


MAGICS = (
    code("\n", "%precision 3\n", "import json\n", "a = json.dumps(1)"),
    code("\n", "%%time\n", "b = json.dumps(2)\n", "c = b"),
    code("d = %time json.dumps('é' and 3)\n", "%time e = json.loads(d)\n", "f = [json.loads(d) for _ in (1, 2)]"),
    code("g = get_ipython().execution_count\n", "json.dumps(4)"),
)


def run_with_ipython(path: str, noted: Noted) -> Any:
    def compile_cell(tree: ast.Module, source: str, name: str, flags: int) -> CodeType:
        return compile_rewritten(tree, name, noted.watcher, flags=flags, text=source)

    return NotebookProgram(path, use_ipython=True).run(compile_cell)


def test_magics_work_with_ipython_and_their_code_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = Noted(every=False, libraries=("json",))
    main = run_with_ipython(write(tmp_path, *MAGICS), noted)
    assert (main.a, main.b, main.c, main.d, main.e, main.f, main.g) == ("1", "2", "2", "3", 3, [3, 3], 4)
    sites = [site for kind, site in noted.calls if kind == "begin"]
    assert [(each.file.rpartition("-")[2], each.line, each.column, each.text) for each in sites] == [
        ("1", 4, 4, "json.dumps"),
        ("2", 3, 4, "json.dumps"),
        ("3", 1, 10, "json.dumps"),
        ("3", 2, 10, "json.loads"),
        ("3", 3, 5, "json.loads"),
        ("3", 3, 5, "json.loads"),
        ("4", 2, 0, "json.dumps"),
    ]
    assert capsys.readouterr().out.count("Wall time") == 3


@pytest.mark.live
def test_shell_lines_work_with_ipython(tmp_path: Path) -> None:
    main = run_with_ipython(write(tmp_path, code("found = !echo hello\n", "!touch made")), Noted())
    assert list(main.found) == ["hello"] and (tmp_path / "made").exists()


def test_ipython_leaves_no_files_and_no_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "home" / "ipython"))
    hook, display = sys.excepthook, sys.displayhook
    main = run_with_ipython(write(tmp_path, code("x = 1")), Noted())
    assert main.x == 1
    assert (sys.excepthook, sys.displayhook) == (hook, display)
    assert list((tmp_path / "home").iterdir()) == []


def test_a_plain_cell_compiles_as_python_does() -> None:
    found = compile_plain(ast.parse("x = 1"), "x = 1", "cell", 0)
    assert found.co_filename == "cell"
