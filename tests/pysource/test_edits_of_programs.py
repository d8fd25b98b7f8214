"""Edits of whole programs: several files, classes, imports, two programs in one file, files that are hard to read."""

from __future__ import annotations

import ast
import time
from itertools import pairwise

import pytest

from joulediff.pysource.edits.edit import Edit, apply_edits, close_over_needs
from joulediff.pysource.edits.find_edits import MAX_EDITS, MAX_LINES, find_edits
from joulediff.pysource.source_files import SourceFile


def own(text: str, path: str = "a.py") -> SourceFile:
    return SourceFile("", path, text)


def named(edits: tuple[Edit, ...]) -> list[tuple[str, str, int]]:
    return [(each.kind, each.key, each.line) for each in edits]


def applied(files: list[SourceFile], edits: tuple[Edit, ...], *chosen: int) -> str:
    closed = close_over_needs(edits, chosen)
    return apply_edits(files, [edits[each] for each in closed])[0].text


def test_an_edit_needs_the_import_of_its_function() -> None:
    a = own("import math\n\ndef build():\n    return math.exp(1)\n")
    b = own("import math\nimport fast\n\ndef build():\n    return fast.exp(1)\n", "b.py")
    edits = find_edits([a], [b])
    assert named(edits) == [("support", "fast", 1), ("call", "math.exp", 4)]
    assert edits[1].needs == (0,)
    assert edits[0].context == "import"
    assert applied([a], edits, 1) == "import math\nimport fast\n\ndef build():\n    return fast.exp(1)\n"


def test_an_edit_needs_the_function_that_it_calls_and_what_that_one_needs() -> None:
    a = own("import m\n\ndef build(x):\n    return m.gelu(x)\n")
    b = own(
        "import m\nimport math\n\nHALF = 0.5\n\ndef gelu(x):\n    return HALF * x * math.erf(x)\n\n"
        "def build(x):\n    return gelu(x)\n",
        "b.py",
    )
    edits = find_edits([a], [b])
    assert [(each.kind, each.key) for each in edits] == [
        ("support", "math"),
        ("support", "HALF"),
        ("support", "gelu"),
        ("call", "m.gelu"),
    ]
    assert close_over_needs(edits, [3]) == (0, 1, 2, 3)


def test_two_programs_in_one_file() -> None:
    text = (
        "import m\n\ndef make_slow(n):\n    h = m.ones(n)\n    return m.inverse(h)\n\n"
        "def make_fast(n):\n    h = m.ones(n)\n    return m.solve(h)\n\n"
        "def slow():\n    model = make_slow(3)\n    return lambda: model(dim=1)\n\n"
        "def fast():\n    net = make_fast(3)\n    return lambda: net(dim=2)\n"
    )
    edits = find_edits([own(text)], [own(text)], entries=("slow", "fast"))
    assert named(edits) == [("call", "m.inverse", 5), ("argument", "dim", 13)]
    assert [each.function for each in edits] == ["make_slow", "slow"]
    assert [each.line_b for each in edits] == [9, 17]


def test_two_entries_of_one_file_that_share_a_helper() -> None:
    text = "def step(n, flag):\n    return n\n\ndef slow():\n    return step(3, True)\n\n"
    text += "def fast():\n    return step(3, False)\n"
    edits = find_edits([own(text)], [own(text)], entries=("slow", "fast"))
    assert named(edits) == [("argument", "flag", 5)]


@pytest.mark.parametrize("alias", ["slow", "fast"])
def test_another_name_of_an_entry_is_no_difference(alias: str) -> None:
    text = "def step(n, flag):\n    return n\n\ndef slow():\n    return step(3, True)\n\n"
    text += f"def fast():\n    return step(3, False)\n\nbuild = {alias}\n"
    edits = find_edits([own(text)], [own(text)], entries=("slow", "fast"))
    assert named(edits) == [("argument", "flag", 5)]
    assert named(find_edits([own(text)], [own(text)], entries=("fast", "slow"))) == [("argument", "flag", 8)]


def test_entries_of_two_files_have_other_names() -> None:
    a = own("def slow(x):\n    return x.f(dim=1)\n")
    b = own("def fast(x):\n    return x.f(dim=2)\n", "b.py")
    assert named(find_edits([a], [b], entries=("slow", "fast"))) == [("argument", "dim", 2)]


def test_a_neighbour_that_differs() -> None:
    text = "from shared import f\n\ndef build():\n    return f(1)\n"
    a = [own(text), SourceFile("shared", "a/shared.py", "def f(n):\n    return n + 1\n")]
    b = [own(text, "b.py"), SourceFile("shared", "b/shared.py", "def f(n):\n    return n + 2\n")]
    (edit,) = find_edits(a, b)
    assert (edit.kind, edit.path, edit.path_b) == ("value", "a/shared.py", "b/shared.py")
    assert (edit.line, edit.function) == (2, "f")


def test_a_neighbour_that_only_one_program_has_comes_with_its_import() -> None:
    a = [own("def build():\n    return 1 + 1\n")]
    b = [own("from fast import add\n\ndef build():\n    return add(1, 1)\n", "b.py")]
    b.append(SourceFile("fast", "fast.py", "def add(x, y):\n    return x + y\n"))
    edits = find_edits(a, b)
    index = next(number for number, edit in enumerate(edits) if edit.kind == "call")
    files = apply_edits(a, [edits[each] for each in close_over_needs(edits, [index])])
    assert [file.module for file in files] == ["", "fast"]
    assert files[1] == b[1]


def test_neighbours_with_other_names_are_compared() -> None:
    text = "def f(n):\n    total = n * n\n    return total + {}\n"
    a = [own("import slow\n\ndef build():\n    return slow.f(1)\n"), SourceFile("slow", "slow.py", text.format(1))]
    b = [own("import fast\n\ndef build():\n    return fast.f(1)\n"), SourceFile("fast", "fast.py", text.format(2))]
    (edit,) = find_edits(a, b)
    assert (edit.kind, edit.path, edit.path_b, edit.line) == ("value", "slow.py", "fast.py", 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("    y = f(g(x), 1)\n    return y\n", "    t = g(x)\n    y = f(t, 1)\n    return y\n"),
        ("    return f(x)\n", "    y = f(x)\n    return y\n"),
        ("    return f(g(x) + 1).t()\n", "    y = g(x)\n    z = f(y + 1)\n    return z.t()\n"),
    ],
)
def test_a_value_that_only_gets_a_name_is_no_difference(one: str, other: str) -> None:
    a, b = own(f"def build(x):\n{one}"), own(f"def build(x):\n{other}", "b.py")
    assert find_edits([a], [b]) == ()
    assert find_edits([b], [a]) == ()


def test_a_change_beside_a_value_that_gets_a_name() -> None:
    a = own("def build(x):\n    y = f(x, dim=1, dtype=double)\n    sync()\n    return y\n")
    b = own("def build(x):\n    return f(x, dim=1)\n", "b.py")
    assert named(find_edits([a], [b])) == [("argument", "dtype", 2), ("left_out", "sync", 3)]


def test_classes_are_compared_method_by_method() -> None:
    text = (
        "class Net(Base):\n    def __init__(self, n):\n        self.a = Linear(n, {bias})\n\n"
        "    def forward(self, x):\n        return self.a(x){end}\n\n\ndef build():\n    net = Net(4)\n    return net\n"
    )
    a, b = own(text.format(bias="bias=True", end=".float()")), own(text.format(bias="bias=False", end=""), "b.py")
    edits = find_edits([a], [b])
    assert named(edits) == [("argument", "bias", 3), ("call", "float", 6)]
    assert [each.function for each in edits] == ["Net.__init__", "Net.forward"]


def test_an_attribute_that_is_new_is_needed_where_it_is_read() -> None:
    text = "class N:\n    def __init__(self):\n        self.n = 1\n{new}\n"
    text += "    def f(self, x):\n        return x + {value}\n\ndef build():\n    return N().f\n"
    a = own(text.format(new="", value="g(1)"))
    b = own(text.format(new="        self.t = g(1)\n", value="self.t"), "b.py")
    edits = find_edits([a], [b])
    (user,) = [edit for edit in edits if edit.line == 6]
    assert [edits[index].value_b for index in user.needs] == ["self.t = g(1)"]


def test_a_definition_goes_only_with_its_use() -> None:
    a = own("def build(x):\n    t = f(x)\n    u = x + 1\n    g(u, t)\n    return u\n")
    b = own("def build(x):\n    u = x + 1\n    g(u, x)\n    return u\n", "b.py")
    edits = find_edits([a], [b])
    (gone,) = [index for index, edit in enumerate(edits) if edit.kind == "left_out"]
    (use,) = [index for index, edit in enumerate(edits) if edit.kind == "argument"]
    assert edits[gone].needs == (use,)
    assert edits[use].needs == ()


def test_a_changed_signature_and_its_calls_belong_together() -> None:
    a = own("def f(x):\n    return x\n\ndef build(y):\n    return f(y)\n")
    b = own("def f(x, mask):\n    return x\n\ndef build(y):\n    return f(y, None)\n", "b.py")
    edits = find_edits([a], [b])
    assert named(edits) == [("code", "f", 1), ("argument", "mask", 5)]
    assert [each.needs for each in edits] == [(1,), (0,)]


def test_the_same_name_from_another_module() -> None:
    a = own("from slow import gelu\n\ndef build(x):\n    return gelu(x)\n")
    b = own("from fast import gelu\n\ndef build(x):\n    return gelu(x)\n", "b.py")
    (edit,) = find_edits([a], [b])
    assert (edit.kind, edit.key, edit.line, edit.value_a) == ("code", "gelu", 1, "slow.gelu")


def test_definitions_that_are_not_used_do_not_count() -> None:
    a = own("def other():\n    return 1\n\ndef build():\n    return 1\n\nif __name__ == '__main__':\n    print(1)\n")
    b = own("def other():\n    return 2\n\ndef more():\n    return 2\n\ndef build():\n    return 1\n", "b.py")
    assert find_edits([a], [b]) == ()


def test_module_constants() -> None:
    a = own("SIZE = 1000\n\ndef build():\n    return SIZE\n")
    b = own("N = 1024\n\ndef build():\n    return N\n", "b.py")
    (edit,) = find_edits([a], [b])
    assert (edit.kind, edit.key, edit.value_a, edit.value_b, edit.function) == ("value", "SIZE", "1000", "1024", "")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("def build(:\n", "def build():\n    return 1\n"),
        ("def build():\n    return 1\n", "def build(:\n"),
        ("\x00", "def build():\n    return 1\n"),
        ("", "def build():\n    return 1\n"),
        ("def build():\n    return 1\n", ""),
        ("x = '\udcff'\n", "x = 1\n"),
        ("x = " + "(" * 150 + ")" * 150 + "\n", "x = 1\n"),
        ("x = " + "+".join(["1"] * 5000) + "\n", "x = 1\n"),
        ("x = 1; y = 2; z = 3\n", "x = 1; w = 5; y = 3; z = 3\n"),
        ("if x: y = 1; z = 2\n", "if x: y = 1; q = 3; z = 2\n"),
        ("if x: y = 1\nelif z: y = 2\n", "if x: y = 1\nelif z: y = 3; w = 4\nelse: y = 5\n"),
        ("def f(): pass\nf()\n", "def f(): return 1\nf()\n"),
        ("try:\n    a()\nexcept E:\n    b()\n", "try:\n    a(1)\nexcept E as e:\n    c()\nfinally:\n    d()\n"),
        ("match x:\n    case 1:\n        a()\n", "match x:\n    case 1:\n        b()\n    case y:\n        c(y)\n"),
        ("x = f(a for a in b)\n", "x = f(a for a in c)\n"),
        ("x = f(a for a in b)\n", "x = f((a for a in b), 1)\n"),
        ("x[1:2, 3] = y[::2, a]\n", "x[1:2, 4] = y[::3, b]\n"),
        ("print(f'{x!r:>{w}}')\n", "print(f'{y!r:>{w}} {z}')\n"),
        ("x = 'a' \\\n  'b'\n", "x = ('a'\n  'c')\n"),
        ("async def build():\n    async with a() as b:\n        await b\n", "async def build():\n    await b\n"),
        ("f(*a, b, **c)\n", "f(*a, *d, b, **c, **e)\n"),
        ("f(x)(y)(z)\n", "f(x)(w)(z, k=1)\n"),
        ("@a\n@b(1)\nclass C(D):\n    x = 1\nC()\n", "@b(2)\n@c\nclass C(E, m=1):\n    x = 2\n    y = 3\nC()\n"),
        ("lambda x, y=1: x\n", "lambda x, y=2: y\n"),
        ("x: int = 1\ny = 1\n", "x: str = 1\ny: int = 1\n"),
        ("def build():\n    '''A'''\n", "def build():\n    '''B'''\n    return 1\n"),
        ("for i in a:\n    f(i)\nelse:\n    g()\n", "for i in a:\n    f(i, 1)\n"),
        ("while a:\n    if b: break\n", "if b: c()\n"),
        ("with a: b()\n", "b()\n"),
        ("b()\n", "with a: b()\n"),
        ("b()\nc()\n", "with a:\n    b(\n'''x\ny''')\n    c()\n"),
    ],
)
def test_no_file_is_too_hard(a: str, b: str) -> None:
    for x, y in ((a, b), (b, a)):
        files = [own(x)]
        check(files, [own(y, "b.py")], find_edits(files, [own(y, "b.py")]))


def check(a: list[SourceFile], b: list[SourceFile], edits: tuple[Edit, ...]) -> None:
    """Check that patches are apart, that each edit leaves valid files, and that all edits leave no difference."""
    spans = sorted((patch.path, patch.start, patch.end) for edit in edits for patch in edit.patches)
    for (path, _, end), (other, start, _) in pairwise(spans):
        assert path != other or end <= start
    for index in range(len(edits)):
        for file in apply_edits(a, [edits[each] for each in close_over_needs(edits, [index])]):
            ast.parse(file.text.removeprefix("\ufeff"))
    if edits:
        assert [each for each in find_edits(apply_edits(a, edits), b) if each.kind != "support"] == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["    ", "\t", " "])
def test_other_newlines_and_indents(newline: str, indent: str) -> None:
    lines = ["\ufeffdef build(x):", "{i}if x:", "{i}{i}f(x, 'ä', {arg})", "{i}{i}g(x)", "{i}return x", ""]
    a = newline.join(lines).replace("{i}", indent).replace("{arg}", "1")
    b = "def build(x):\n    model.eval()\n    if x:\n        with y:\n            f(x, 'ä', 2)\n            g(x)\n"
    b += "        h('''\n x''')\n    return x\n"
    edits = find_edits([own(a)], [own(b, "b.py")])
    keys = {(each.kind, each.key) for each in edits}
    assert keys == {("added", "eval"), ("added", "y"), ("argument", "argument 3"), ("added", "h")}
    check([own(a)], [own(b, "b.py")], edits)


def test_many_edits_become_one_for_each_function() -> None:
    lines = "".join(f"    g(x, {i}, 'A')\n" for i in range(MAX_EDITS // 2))
    text = "".join(f"def f{n}(x):\n{lines}\n" for n in range(4))
    text += "def build():\n    return [f0, f1, f2, f3]\n"
    edits = find_edits([own(text)], [own(text.replace("'A'", "'B'"), "b.py")])
    assert [each.function for each in edits] == ["f0", "f1", "f2", "f3"]
    assert applied([own(text)], edits, 0, 1, 2, 3) == text.replace("'A'", "'B'")


def test_a_large_file_is_compared_in_a_second() -> None:
    function = "def f{n}(x):\n    y = g(x, {n})\n    if y:\n        y = y + {n}\n    return y\n\n"
    body = "".join(function.format(n=n) for n in range(MAX_LINES // 5))
    calls = "".join(f"    f{n}(1)\n" for n in range(MAX_LINES // 5))
    text = f"{body}def build():\n{calls}"
    other = text.replace("y + 77\n", "y - 77\n").replace("g(x, 5)", "g(x, 6)")
    start = time.perf_counter()
    edits = find_edits([own(text)], [own(other, "b.py")])
    # A second alone on a machine; the tests of others may run beside.
    assert time.perf_counter() - start < 5
    assert [each.function for each in edits] == ["f5", "f77"]
