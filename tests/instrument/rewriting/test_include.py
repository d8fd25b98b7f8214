"""Modules of a program that are rewritten when they are imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from instrument_builders import watching
from joulediff.instrument.rewriting.include import included


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files = {
        "jd_pack/__init__.py": "from .inner import f\nfrom . import other\nSIZE = len('abc')\n",
        "jd_pack/inner.py": "import numpy as np\nfrom .other import g\ndef f(): return np.ones(g())\n",
        "jd_pack/other.py": "import numpy as np\ndef g(): return int(np.sqrt(4))\n",
        "jd_alone.py": "from jd_pack import f\nimport numpy as np\ndef h(): return np.add(f(), 1)\n",
        "jd_wrong.py": "def f(:\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("jd_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["jd_pack"], ["ones", "sqrt"]),
        (["jd_pack.*"], ["ones", "sqrt"]),
        (["jd_pack.inner"], ["ones"]),
        (["jd_pack/*.py"], ["ones", "sqrt"]),
        (["jd_pack/other.py"], ["sqrt"]),
        (["jd_*"], ["add", "ones", "sqrt"]),
        (["nothing"], []),
        ([], []),
    ],
)
def test_modules_that_match_are_rewritten(project: Path, patterns: list[str], expected: list[str]) -> None:
    before = list(sys.meta_path)
    with watching(["numpy"]) as (watcher, recorder):
        with included(watcher, patterns, project):
            alone = importlib.import_module("jd_alone")
        assert list(alone.h()) == [2.0, 2.0]
    assert sorted(name.removeprefix("numpy.") for name in recorder.names) == expected
    assert sys.meta_path == before


def test_an_included_module_is_like_any_other(project: Path) -> None:
    with watching(["numpy"]) as (watcher, recorder), included(watcher, ["jd_pack"], project):
        inner = importlib.import_module("jd_pack.inner")
        package = sys.modules["jd_pack"]
        assert package.SIZE == 3 and package.__path__ == [str(project / "jd_pack")]
        assert inner.__file__ == str(project / "jd_pack/inner.py") and inner.__package__ == "jd_pack"
        assert inspect.getsource(inner.f) == "def f(): return np.ones(g())\n"
        assert inner.__loader__.get_source("jd_pack.inner") == (project / "jd_pack/inner.py").read_text("utf-8")
        (project / "jd_pack/other.py").write_text("def g(): return 7\n", encoding="utf-8")
        importlib.reload(sys.modules["jd_pack.other"])
        importlib.reload(inner)
        assert inner.f().shape == (7,)
        assert recorder.names == ["numpy.ones"]
    assert not list((project / "jd_pack").glob("__pycache__/*"))


def test_code_that_is_there_already_is_not_used(project: Path) -> None:
    importlib.import_module("jd_pack")
    for name in [each for each in sys.modules if each.startswith("jd_")]:
        del sys.modules[name]
    with watching(["numpy"]) as (watcher, recorder), included(watcher, ["jd_pack"], project):
        importlib.import_module("jd_pack").f()
    assert recorder.names == ["numpy.sqrt", "numpy.ones"]


def test_a_syntax_error_is_that_of_the_file(project: Path) -> None:
    with watching() as (watcher, _), included(watcher, ["jd_wrong"], project), pytest.raises(SyntaxError) as raised:
        importlib.import_module("jd_wrong")
    assert (raised.value.filename, raised.value.lineno) == (str(project / "jd_wrong.py"), 1)
