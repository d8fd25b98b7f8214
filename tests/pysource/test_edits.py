"""Differences of two programs as edits: which edit each class of difference becomes, and what every edit keeps."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise

import pytest

from joulediff.pysource.edits.edit import Edit, apply_edits, close_over_needs, leave_out
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.source_files import SourceFile

HEAD = "import gc\nimport torch\nimport torch.nn.functional as F\n\n\n"


@dataclass(frozen=True)
class Example:
    """Two bodies of `build`, and the edits expected beside support: kind, key, line, value_a, value_b."""

    name: str
    a: str
    b: str
    expected: tuple[tuple[str, str, int, str | None, str | None], ...]


def program(body: str, path: str = "a.py") -> list[SourceFile]:
    if "def build" in body:
        return [SourceFile("", path, body)]
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").split("\n"))
    return [SourceFile("", path, f"{HEAD}def build(x, y, model, w):\n{lines}")]


# The first line of a body.
FIRST = HEAD.count("\n") + 2

EXAMPLES = [
    Example(
        "an argument of one side",
        "return F.softmax(x, dim=-1, dtype=torch.float64)",
        "return F.softmax(x, dim=-1)",
        (("argument", "dtype", FIRST, "torch.float64", None),),
    ),
    Example(
        "an argument of the other side",
        "opt = torch.optim.AdamW(model.parameters())\nreturn opt",
        "opt = torch.optim.AdamW(model.parameters(), fused=True)\nreturn opt",
        (("argument", "fused", FIRST, None, "True"),),
    ),
    Example(
        "the only argument",
        "return torch.optim.SGD(foreach=False)",
        "return torch.optim.SGD()",
        (("argument", "foreach", FIRST, "False", None),),
    ),
    Example(
        "the first argument of a call without any",
        "return torch.optim.SGD()",
        "return torch.optim.SGD(foreach=False)",
        (("argument", "foreach", FIRST, None, "False"),),
    ),
    Example(
        "an argument with another value",
        "return torch.linalg.lstsq(x, y, driver='gelss')",
        "return torch.linalg.lstsq(x, y, driver='gels')",
        (("argument", "driver", FIRST, "'gelss'", "'gels'"),),
    ),
    Example(
        "two arguments are two edits",
        "opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, eps=1e-8)\nreturn opt",
        "opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True, eps=1e-6)\nreturn opt",
        (("argument", "foreach", FIRST, "False", "True"), ("argument", "eps", FIRST, "1e-8", "1e-6")),
    ),
    Example(
        "by position and by name",
        "return F.softmax(x, 1)",
        "return F.softmax(x, dim=-1)",
        (("argument", "dim", FIRST, "1", "-1"),),
    ),
    Example("by position and by name, the same", "return F.softmax(x, -1)", "return F.softmax(x, dim=-1)", ()),
    Example(
        "a variable that is passed on",
        "flag = True\nreturn model(x, x, x, need_weights=flag)",
        "flag = False\nreturn model(x, x, x, need_weights=flag)",
        (("value", "flag", FIRST, "True", "False"),),
    ),
    Example(
        "a constant",
        "n = 1000\nreturn torch.randn(n, n) @ x",
        "n = 1024\nreturn torch.randn(n, n) @ x",
        (("value", "n", FIRST, "1000", "1024"),),
    ),
    Example(
        "an attribute",
        "model.config.use_cache = False\nreturn model(x)",
        "model.config.use_cache = True\nreturn model(x)",
        (("value", "use_cache", FIRST, "False", "True"),),
    ),
    Example(
        "an entry of a dictionary",
        "options = {'use_cache': False, 'n': 3}\nreturn model(x, **options)",
        "options = {'use_cache': True, 'n': 3}\nreturn model(x, **options)",
        (("value", "use_cache", FIRST, "False", "True"),),
    ),
    Example(
        "the order of products",
        "h = x.relu()\nreturn h @ (w @ y)",
        "h = x.relu()\nreturn (h @ w) @ y",
        (("code", "@", FIRST + 1, "h @ (w @ y)", "(h @ w) @ y"),),
    ),
    Example(
        "another function",
        "return torch.inverse(x) @ y",
        "return torch.linalg.solve(x, y)",
        (("call", "torch.inverse", FIRST, "torch.inverse(x) @ y", "torch.linalg.solve(x, y)"),),
    ),
    Example(
        "another function with the same arguments",
        "h = torch.matmul(x, w)\nreturn h",
        "h = torch.mm(x, w)\nreturn h",
        (("call", "torch.matmul", FIRST, "torch.matmul", "torch.mm"),),
    ),
    Example(
        "a method and a function",
        "h = x.softmax(-1)\nreturn h",
        "h = F.softmax(x, -1)\nreturn h",
        (("call", "softmax", FIRST, "x.softmax(-1)", "F.softmax(x, -1)"),),
    ),
    Example(
        "a function around a value",
        "return model(x.contiguous(), y)",
        "return model(x, y)",
        (("call", "contiguous", FIRST, "x.contiguous()", "x"),),
    ),
    Example(
        "a method in a chain",
        "net = model.float().to('cuda').eval()\nreturn net(x)",
        "net = model.to('cuda').eval()\nreturn net(x)",
        (("call", "float", FIRST, "model.float()", "model"),),
    ),
    Example(
        "a call is left out",
        "h = model(x)\ntorch.cuda.synchronize()\nreturn h",
        "h = model(x)\nreturn h",
        (("left_out", "torch.cuda.synchronize", FIRST + 1, "torch.cuda.synchronize()", None),),
    ),
    Example(
        "two calls are left out",
        "h = model(x)\ntorch.cuda.synchronize()\ngc.collect()\nreturn h",
        "h = model(x)\nreturn h",
        (
            ("left_out", "torch.cuda.synchronize", FIRST + 1, "torch.cuda.synchronize()", None),
            ("left_out", "gc.collect", FIRST + 2, "gc.collect()", None),
        ),
    ),
    Example(
        "a result that nobody reads",
        "h = model(x)\nunused = w(h)\nreturn h",
        "h = model(x)\nreturn h",
        (("left_out", "unused", FIRST + 1, "unused = w(h)", None),),
    ),
    Example(
        "a method's result that nobody reads",
        "h = model(x)\nh.item()\nreturn h",
        "h = model(x)\nreturn h",
        (("left_out", "item", FIRST + 1, "h.item()", None),),
    ),
    Example(
        "a call is added",
        "h = model(x)\nreturn h",
        "model.eval()\nh = model(x)\nreturn h",
        (("added", "eval", FIRST, None, "model.eval()"),),
    ),
    Example(
        "a setting is added",
        "return model(x)",
        "torch.backends.cuda.matmul.allow_tf32 = True\nreturn model(x)",
        (("added", "allow_tf32", FIRST, None, "torch.backends.cuda.matmul.allow_tf32 = True"),),
    ),
    Example(
        "an update is added",
        "w = w.t()\nreturn x @ w",
        "w = w.t()\nw = w.contiguous()\nreturn x @ w",
        (("added", "contiguous", FIRST, None, "w = w.contiguous()"),),
    ),
    Example(
        "one call is left out and another one added",
        "h = model(x)\ntorch.cuda.synchronize()\nreturn h",
        "h = model(x)\nmodel.eval()\nreturn h",
        (
            ("added", "eval", FIRST, None, "model.eval()"),
            ("left_out", "torch.cuda.synchronize", FIRST + 1, "torch.cuda.synchronize()", None),
        ),
    ),
    Example(
        "a table moves out of the step",
        "def step():\n    table = torch.arange(9)\n    return x[table]\nreturn step",
        "table = torch.arange(9)\ndef step():\n    return x[table]\nreturn step",
        (("moved", "table", FIRST + 1, "table = torch.arange(9)", "table = torch.arange(9)"),),
    ),
    Example(
        "a value moves out of the step and gets a name",
        "def step():\n    return x[torch.arange(9)]\nreturn step",
        "table = torch.arange(9)\ndef step():\n    return x[table]\nreturn step",
        (("moved", "torch.arange", FIRST + 1, "torch.arange(9)", "table"),),
    ),
    Example(
        "a statement moves out of a loop",
        "for i in range(3):\n    mask = torch.ones(4)\n    x = x * mask\nreturn x",
        "mask = torch.ones(4)\nfor i in range(3):\n    x = x * mask\nreturn x",
        (("moved", "mask", FIRST + 1, "mask = torch.ones(4)", "mask = torch.ones(4)"),),
    ),
    Example(
        "a context is added",
        "def step():\n    return model(x)\nreturn step",
        "def step():\n    with torch.no_grad():\n        return model(x)\nreturn step",
        (("added", "torch.no_grad", FIRST + 1, None, "with torch.no_grad()"),),
    ),
    Example(
        "a context is left out",
        "def step():\n    with torch.autocast('cuda'):\n        h = model(x)\n        return h\nreturn step",
        "def step():\n    h = model(x)\n    return h\nreturn step",
        (("left_out", "torch.autocast", FIRST + 1, "with torch.autocast('cuda')", None),),
    ),
    Example(
        "another context",
        "with torch.no_grad():\n    return model(x)",
        "with torch.inference_mode():\n    return model(x)",
        (("call", "torch.no_grad", FIRST, "torch.no_grad", "torch.inference_mode"),),
    ),
    Example(
        "an argument of a context",
        "with torch.autocast('cuda', enabled=False):\n    return model(x)",
        "with torch.autocast('cuda', enabled=True):\n    return model(x)",
        (("argument", "enabled", FIRST, "False", "True"),),
    ),
    Example(
        "a decorator is added",
        "def step():\n    return model(x)\nreturn step",
        "@torch.no_grad()\ndef step():\n    return model(x)\nreturn step",
        (("added", "torch.no_grad", FIRST, None, "torch.no_grad()"),),
    ),
    Example(
        "another decorator",
        "@torch.no_grad()\ndef step():\n    return model(x)\nreturn step",
        "@torch.inference_mode()\ndef step():\n    return model(x)\nreturn step",
        (("call", "torch.no_grad", FIRST, "torch.no_grad", "torch.inference_mode"),),
    ),
    Example(
        "a chain of calls around a value",
        "return model(x.double().float(), y)",
        "return model(x, y)",
        (("call", "double", FIRST, "x.double().float()", "x"),),
    ),
    Example(
        "work that is repeated",
        "for _ in range(3):\n    h = model(x)\nreturn h",
        "h = model(x)\nreturn h",
        (("left_out", "for", FIRST, "for _ in range(3)", None),),
    ),
    Example(
        "statements that move together",
        "def step():\n    n = torch.arange(9)\n    table = n.cos()\n    return x[table]\nreturn step",
        "n = torch.arange(9)\ntable = n.cos()\ndef step():\n    return x[table]\nreturn step",
        (
            (
                "moved",
                "table",
                FIRST + 1,
                "n = torch.arange(9); table = n.cos()",
                "n = torch.arange(9); table = n.cos()",
            ),
        ),
    ),
    Example(
        "an element of a sequence of layers",
        "return torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Dropout(0.1), torch.nn.Linear(2, 1))",
        "return torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 1))",
        (("argument", "torch.nn.Dropout", FIRST, "torch.nn.Dropout(0.1)", None),),
    ),
    Example(
        "another version of a value moves out of the step",
        "def step():\n    h = torch.tensor([1, 2]).cuda()\n    return model(h)\nreturn step",
        "h = torch.tensor([1, 2], device='cuda')\ndef step():\n    return model(h)\nreturn step",
        (
            (
                "moved",
                "h",
                FIRST + 1,
                "h = torch.tensor([1, 2]).cuda()",
                "h = torch.tensor([1, 2], device='cuda')",
            ),
        ),
    ),
    Example(
        "values have the names of their own program",
        "first = x @ w\nsecond = first.relu()\nreturn second + first",
        "p = w @ x\nq = p.relu()\nreturn q + p",
        (("code", "@", FIRST, "x @ w", "w @ x"),),
    ),
    Example(
        "a loop becomes one call",
        "parts = []\nfor row in x:\n    parts.append(row @ w)\nreturn torch.stack(parts)",
        "return x @ w",
        (
            (
                "code",
                "for",
                FIRST,
                "parts = []; for row in x: parts.append(row @ w); return torch.stack(parts)",
                "return x @ w",
            ),
        ),
    ),
    Example(
        "a rewritten block",
        "h = model(x)\ns = h @ h.T\ns = s / 8\np = s.softmax(-1)\nreturn p @ h",
        "h = model(x)\nreturn F.scaled_dot_product_attention(h, h, h)",
        (
            (
                "code",
                "F.scaled_dot_product_attention",
                FIRST + 1,
                "s = h @ h.T; s = s / 8; p = s.softmax(-1); return p @ h",
                "return F.scaled_dot_product_attention(h, h, h)",
            ),
        ),
    ),
    Example(
        "other names and one change",
        "hidden = model(x)\nscores = torch.relu(hidden)\nout = scores.sum(dim=1)\nreturn out",
        "h = model(x)\ns = torch.relu(h)\nresult = s.sum(dim=0)\nreturn result",
        (("argument", "dim", FIRST + 2, "1", "0"),),
    ),
    Example(
        "nothing but other names, comments and a documentation string",
        "hidden = model(x)\ndef step():\n    return hidden + 1\nreturn step",
        '# b\nh = model(x)\ndef run():\n    """Run."""\n    return h + 1  # one\nreturn run',
        (),
    ),
    Example(
        "a lambda as the step",
        "return lambda: model(x.double())",
        "return lambda: model(x)",
        (("call", "double", FIRST, "x.double()", "x"),),
    ),
    Example(
        "a default of a parameter",
        "def step(flag=True):\n    return model(x, flag)\nreturn step",
        "def step(flag=False):\n    return model(x, flag)\nreturn step",
        (("value", "flag", FIRST, "True", "False"),),
    ),
    Example(
        "characters of several bytes before the change",
        "return model('äöü€𝔘', x, dim=1)",
        "return model('äöü€𝔘', x, dim=2)",
        (("argument", "dim", FIRST, "1", "2"),),
    ),
    Example(
        "an f-string",
        "model.log(f'{x} {y!r}', level=1)\nreturn x",
        "model.log(f'{x} {y!r}', level=2)\nreturn x",
        (("argument", "level", FIRST, "1", "2"),),
    ),
    Example(
        "arguments in parentheses",
        "return model((x), (y), dim=(1))",
        "return model((x), dim=(1))",
        (("argument", "y", FIRST, "y", None),),
    ),
    Example(
        "an element of a condition",
        "if x.shape[0] > 1000:\n    return model(x)\nreturn x",
        "if x.shape[0] > 10:\n    return model(x)\nreturn x",
        (("value", "if", FIRST, "1000", "10"),),
    ),
]


def facts(edits: tuple[Edit, ...]) -> list[tuple[str, str, int, str | None, str | None]]:
    return [(each.kind, each.key, each.line, each.value_a, each.value_b) for each in edits if each.kind != "support"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_class_of_difference_is_one_edit(example: Example) -> None:
    a, b = program(example.a), program(example.b, "b.py")
    edits = find_edits(a, b)
    assert facts(edits) == list(example.expected)
    check_invariants(a, b, edits)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_way_back_keeps_the_invariants(example: Example) -> None:
    a, b = program(example.b), program(example.a, "b.py")
    check_invariants(a, b, find_edits(a, b))


def check_invariants(a: list[SourceFile], b: list[SourceFile], edits: tuple[Edit, ...]) -> None:
    assert apply_edits(a, ()) == tuple(a)
    spans = sorted((patch.path, patch.start, patch.end) for edit in edits for patch in edit.patches)
    for (path, _, end), (other, start, _) in pairwise(spans):
        assert path != other or end <= start
    for index in range(len(edits)):
        chosen = close_over_needs(edits, [index])
        for file in apply_edits(a, [edits[each] for each in chosen]):
            ast.parse(file.text)
    again = find_edits(apply_edits(a, edits), b)
    assert [edit for edit in again if edit.kind != "support"] == []


def test_equal_programs_have_no_edits() -> None:
    for example in EXAMPLES:
        assert find_edits(program(example.a), program(example.a, "b.py")) == ()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("def f():\n    g()\n    return 1\n", 2, "def f():\n    pass\n    return 1\n"),
        ("def f():\n    g(\n        1,\n    )\n", 3, "def f():\n    pass\n"),
        ("unused = g()\nx = 1\nprint(x)\n", 1, "pass\nx = 1\nprint(x)\n"),
        ("x = g()\nprint(x)\n", 1, None),
        ("def f():\n    return g()\n", 2, None),
        ("x = 1\n", 5, None),
        ("x = (\n", 1, None),
        ("with mode(a=1):\n    g()\n", 1, "if True:\n    g()\n"),
        ("with (\n    mode(),\n):  # on\n    g()\n", 1, "if True:  # on\n    g()\n"),
        ("with mode() as m:\n    g()\n", 1, "if True:\n    g()\n"),
        ("with mode():\n    g()\n    h()\n", 2, "with mode():\n    pass\n    h()\n"),
        ("with mode() as m:\n    g(m)\n", 1, None),
        ("with mode(), no_grad():\n    g()\n", 1, None),
    ],
)
def test_leave_out_takes_statements_whose_value_is_not_used(text: str, line: int, expected: str | None) -> None:
    found = leave_out(SourceFile("", "a.py", text), line)
    assert (found.text if found else None) == expected
