"""Which calls of a text are measured, where the import stands, and that nothing else of the text changes."""

from __future__ import annotations

import ast
import random
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.instrument.patch.edits import TextEdit, apply_edits, to_characters
from joulediff.instrument.patch.own_names import find_own_names
from joulediff.model.errors import ProgramError
from joulediff.pysource.source_files import split_lines
from patch_builders import patch, undo, wrapped

STANDARD = Path(sysconfig.get_path("stdlib"))
OWN = "def own(x): return x\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.fit(x)", "measured(model.fit)(x)"),
        ("y = f(g(x))", "y = measured(f)(measured(g)(x))"),
        ("a.b(1).c(2)", "measured(measured(a.b)(1).c)(2)"),
        ("f (x)", "measured(f) (x)"),
        ("(f if x else g)(x)", "measured((f if x else g))(x)"),
        ("( f )(x)", "measured(( f ))(x)"),
        ("f(x)(y)", "measured(measured(f)(x))(y)"),
        ("f[0](x)", "measured(f[0])(x)"),
        ("f(*a, **b)", "measured(f)(*a, **b)"),
        ("f(é)  # é", "measured(f)(é)  # é"),
        ("z = 'é'; f(x)", "z = 'é'; measured(f)(x)"),
        ("k = lambda: f(x)", "k = lambda: measured(f)(x)"),
        ("(lambda: 1)()", "(lambda: 1)()"),
        ("[f(x) for x in g()]", "[measured(f)(x) for x in measured(g)()]"),
        ("print(f'{f(x)!r:>{w.g(1)}}')", "print(f'{measured(f)(x)!r:>{measured(w.g)(1)}}')"),
        ("print(f'{f(x)=} {f(x)}')", "print(f'{f(x)=} {measured(f)(x)}')"),
        ("x: List[f(1)] = f(2)", "x: List[f(1)] = measured(f)(2)"),
        ("def k(x: f(1) = f(2)) -> f(3): pass", "def k(x: f(1) = measured(f)(2)) -> f(3): pass"),
        ("class K(f(1)): a = f(2)", "class K(measured(f)(1)): a = measured(f)(2)"),
        ("with f(x) as z: pass", "with measured(f)(x) as z: pass"),
        ("async def k(): return await f(x)", "async def k(): return await measured(f)(x)"),
        ("for i in f(x): pass", "for i in measured(f)(x): pass"),
        ("', '.join(x), [].append(f), {}.get(1)", "', '.join(x), [].append(f), {}.get(1)"),
        ("print(len(x), dict.fromkeys(x))", "print(len(x), dict.fromkeys(x))"),
        ("locals(); globals(); exec(x); super()", "locals(); globals(); exec(x); super()"),
        ("getattr(m, 'f')(x)", "measured(getattr(m, 'f'))(x)"),
        ("match f(x):\n    case K(y=1): g(1)", "    case K(y=1): measured(g)(1)"),
    ],
)
def test_each_form_of_a_call(line: str, expected: str) -> None:
    assert wrapped(line) == expected


@pytest.mark.parametrize(
    ("before", "line", "is_wrapped"),
    [
        (OWN, "own(1)", False),
        (OWN + "own = m.f\n", "own(1)", True),
        (OWN + "def k(own): pass\n", "own(1)", True),
        (OWN + "from m import *\n", "own(1)", True),
        (OWN + "from math import *\n", "own(1)", False),
        ("@m.jit\n" + OWN, "own(1)", True),
        ("if x:\n    def own(): pass\nelse:\n    def own(): pass\n", "own()", False),
        ("class K: pass\n", "K()", False),
        ("class K(Exception): pass\n", "K()", False),
        ("import abc\nclass K(abc.ABC): pass\nclass L(K): pass\n", "L()", False),
        ("class K(m.Base): pass\nclass L(K): pass\n", "L()", True),
        ("class K(metaclass=m.Meta): pass\n", "K()", True),
        ("@m.decorated\nclass K: pass\n", "K()", True),
        ("import os\n", "os.path.join(x)", False),
        ("import os.path as p\n", "p.join(x)", False),
        ("from os import path\n", "path.join(x)", False),
        ("import os\nos = m\n", "os.path.join(x)", True),
        ("from . import os\n", "os.path.join(x)", True),
        ("import local\n", "local.f(x)", True),
        ("import random\n", "random.random()", True),
        ("import sympy\n", "sympy.f(x)", False),
        ("import argparse\np = argparse.ArgumentParser()\n", "p.add_argument(x)", False),
        ("import argparse\np = argparse.ArgumentParser()\np = m\n", "p.add_argument(x)", True),
        ("import argparse\np = argparse.Namespace()\n", "p.model(x)", True),
        ("from pathlib import Path\np = Path()\n", "p.exists()", False),
        ("print = m.show\n", "print(x)", True),
        ("def k(print): pass\n", "print(x)", True),
    ],
)
def test_names_that_cannot_be_of_a_library_stay(before: str, line: str, is_wrapped: bool) -> None:
    text = patch(f"{before}{line}\nother.call()\n", other=frozenset({"sympy"}), local=frozenset({"random"}))
    assert text.splitlines()[-2].startswith("measured(") is is_wrapped


@pytest.mark.parametrize("name", ["jit", "njit", "x.function", "x.script", "x.compile(mode=1)", "partial(x.jit, a=1)"])
def test_functions_whose_source_is_read_stay(name: str) -> None:
    text = patch(f"@{name}\ndef k(x):\n    return f(x)\n\n\nf(1)\n")
    assert "    return f(x)\n" in text and "\nmeasured(f)(1)\n" in text


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        ("", "f()\n"),
        ("#!/usr/bin/python\n# -*- coding: latin-1 -*-\n", "f()\n"),
        ("\n# coding: latin-1\n", "f()\n"),
        ("# License\n\n", "# about f\nf()\n"),
        ('"""Doc."""\n\n', "f()\n"),
        ('# one\n\n"""Doc\nof two lines."""\nfrom __future__ import annotations\n\n', "import os\nf()\n"),
        ("from __future__ import (\n    annotations,\n)\n", "f()\n"),
        ('"""Doc."""; import os\n', "f()\n"),
        ("\x0c\n", "f()\n"),
    ],
)
def test_the_import_stands_behind_the_begin(begin: str, rest: str) -> None:
    text = patch(begin + rest)
    added = text.removeprefix(begin).splitlines()
    assert text.startswith(begin)
    assert added[:4] == [
        "# Added by `joulediff patch`; `joulediff patch --undo FILE` removes it and each `measured(...)`.",
        "from joulediff.patched import measured",
        'measured.start("train.py", "numpy")',
        "",
    ]
    assert undo(text) == begin + rest
    ast.parse(text)


def test_the_name_is_one_that_the_program_does_not_use() -> None:
    text = patch("measured = 1\nx.measured_call(measured)\n")
    assert "from joulediff.patched import measured as joulediff_measured\n" in text
    assert 'joulediff_measured.start("train.py", "numpy")' in text
    assert undo(text) == "measured = 1\nx.measured_call(measured)\n"


def test_the_whole_program_needs_the_import_alone() -> None:
    text = patch("f(x)\n", level="project")
    assert text.endswith('from joulediff.patched import measured\nmeasured.start("train.py")\n\nf(x)\n')
    assert undo(text) == "f(x)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f(\n", "train.py, line 1: '(' was never closed"),
        ("x = 1\ny = = 2\n", "train.py, line 2: invalid syntax: y = = 2"),
        ("x = 1\n", "no call in train.py can be one of numpy"),
        ("print(1)\n", "no call in train.py can be one of numpy"),
        ('"""Doc."""\n', "train.py has no code to measure"),
        ("# comment\n\n", "train.py has no code to measure"),
        ("f(\0)", "train.py"),
        ("f" * 10 + "(" * 3000 + ")" * 3000, "train.py"),
    ],
)
def test_what_cannot_be_patched_is_refused(text: str, said: str) -> None:
    with pytest.raises(ProgramError) as raised:
        patch(text)
    assert said in raised.value.what
    assert raised.value.fix


def test_a_patched_text_is_refused() -> None:
    with pytest.raises(ProgramError, match="is patched already"):
        patch(patch("f(x)\n"))


def test_edits_count_characters_behind_others() -> None:
    text = "é😀x"
    edits = [TextEdit(6, 6, "("), TextEdit(7, 7, ")")]  # around the x, in UTF-8
    assert apply_edits(text, to_characters(text, edits)) == "é😀(x)"


def test_no_line_but_those_of_the_import_is_added() -> None:
    text = "a = (x\n     # comment\n     .f(1)\n     .g(2))\r\n\x0cb = f(\\\n  1)\n"
    after = patch(text)
    assert len(split_lines(after)) == len(split_lines(text)) + 4
    assert "     # comment\n" in after and "\x0cb = measured(f)(\\\n" in after


def test_lines_that_end_as_on_an_old_system_stay() -> None:
    after = patch("f(1)\rg(2)\r")
    assert after.endswith("\n\nmeasured(f)(1)\rmeasured(g)(2)\r") and undo(after) == "f(1)\rg(2)\r"


def test_a_backslash_in_the_last_comment_is_no_end_of_a_line() -> None:
    assert undo(patch("f(1)  # \\\n")) == "f(1)  # \\\n"


def standard_files() -> list[Path]:
    """Return files of the standard library with calls, the same ones each time."""
    found = sorted(each for each in STANDARD.glob("*.py") if 2_000 < each.stat().st_size < 40_000)
    assert len(found) > 50
    return random.Random(20).sample(found, 12)


@pytest.mark.parametrize("path", standard_files(), ids=lambda path: path.name)
def test_undo_gives_back_each_byte_of_real_files(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    after = patch(text)
    assert after != text and undo(after) == text
    assert len(split_lines(after)) == len(split_lines(text)) + 4


PIECES = st.sampled_from(
    ["f(x)", "a.b(1).c(2)", "(f)(x)", "f'{g(x)} é'", "'😀'.join(x)", "[f(i) for i in g()]", "m(f(g(1))(2))", "k = 1"]
)
ENDS = st.sampled_from(["\n", "\r\n", "  # é\n", "; f(1)\n", "\n\n\x0c\n"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(PIECES, ENDS), min_size=1, max_size=8),
    st.sampled_from(["", '"""é."""\n', "# c\n", "#!x\n\n"]),
    st.booleans(),
)
def test_undo_gives_back_each_byte(parts: list[tuple[str, str]], begin: str, has_end: bool) -> None:
    text = begin + "f(0)\n" + "".join(piece + end for piece, end in parts)
    text = text if has_end else text + "f(9)"
    after = patch(text)
    assert undo(after) == text
    ast.parse(after)


def test_names_of_magics_may_be_bound_by_them() -> None:
    trees = [ast.parse("def own(): pass\nimport os\n")]
    plain = find_own_names(trees, other=())
    assert {"own", "os", "print"} <= plain.callees
    timed = find_own_names(trees, other=(), magics=["%time own = build()"])
    assert "own" not in timed.callees and "os" in timed.callees
    assert not find_own_names(trees, other=(), magics=["%run other.py"]).callees
