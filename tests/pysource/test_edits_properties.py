"""What holds for the edits of any two programs, tried on invented ones."""

from __future__ import annotations

import ast
import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.pysource.edits.edit import apply_edits, close_over_needs
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.source_files import SourceFile

NAMES = ("h", "k", "scores", "out")
VALUES = (
    "f(x, dim={n})",
    "m.g({v}, {n}, flag=True)",
    "{v}.t().contiguous()",
    "{v} @ (x @ {v})",
    "{v} + {n}",
    "m.h({v})",
    "[each * {n} for each in {v}]",
    "{{'a': {n}, 'b': {v}}}",
)
STATEMENTS = (
    "{t} = {value}",
    "{t} = {value}",
    "{t} = {value}",
    "m.sync()",
    "model.config.cache = {n}",
    "{v}.item()",
    "if {n}:\n    {t} = {value}",
    "for i in range({n}):\n    {t} = {value}\n    {v}.add(i)",
    "with m.no_grad():\n    {t} = {value}",
    "with m.no_grad():\n    {t} = {value}\n    {v}.item()",
    "# a comment\n{t} = {value}  # ü",
    "{t} = '''text\n  of lines'''",
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    value = draw(st.sampled_from(VALUES)).format(v=draw(st.sampled_from(NAMES)), n=draw(st.integers(1, 3)))
    target, name = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    return draw(st.sampled_from(STATEMENTS)).format(t=target, v=name, value=value, n=draw(st.integers(1, 3)))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Draw two programs of which the second one has some statements left out, added, changed or moved."""
    setup, step = draw(st.lists(statements(), max_size=5)), draw(st.lists(statements(), max_size=5))
    other_setup, other_step = list(setup), list(step)
    for _ in range(draw(st.integers(0, 4))):
        block = draw(st.sampled_from([other_setup, other_step]))
        at = draw(st.integers(0, len(block)))
        match draw(st.sampled_from(["out", "in", "change", "move"])):
            case "out":
                del block[at : at + 1]
            case "in":
                block.insert(at, draw(statements()))
            case "change":
                block[at : at + 1] = [draw(statements())]
            case _:
                moved = block[at : at + 1]
                del block[at : at + 1]
                draw(st.sampled_from([other_setup, other_step])).extend(moved)
    return program(setup, step), program(other_setup, other_step)


def program(setup: list[str], step: list[str]) -> str:
    def block(lines: list[str], indent: str) -> str:
        return "".join(indent + part.replace("\n", "\n" + indent) + "\n" for part in lines)

    head = "import m\n\ndef build(x, model):\n    h = k = scores = out = x\n"
    return f"{head}{block(setup, '    ')}    def run():\n{block(step, ' ' * 8)}        return out\n    return run\n"


class Plain(ast.NodeTransformer):
    """Removes what does not count: `pass`, and conditions that always hold."""

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        is_always = isinstance(node.test, ast.Constant) and node.test.value is True
        return node.body if is_always else node


def plain(text: str) -> str:
    return ast.unparse(Plain().visit(ast.parse(text)))


@settings(max_examples=150, deadline=None)
@given(pairs())
def test_all_edits_give_the_other_program(pair: tuple[str, str]) -> None:
    a, b = SourceFile("", "a.py", pair[0]), SourceFile("", "b.py", pair[1])
    edits = find_edits([a], [b])
    assert apply_edits([a], []) == (a,)
    (result,) = apply_edits([a], edits)
    assert plain(result.text) == plain(b.text)
    if plain(a.text) == plain(b.text):
        assert edits == ()


@settings(max_examples=150, deadline=None)
@given(pairs(), st.randoms(use_true_random=False))
def test_any_edits_with_their_needs_give_a_valid_program(pair: tuple[str, str], choice: random.Random) -> None:
    a, b = SourceFile("", "a.py", pair[0]), SourceFile("", "b.py", pair[1])
    edits = find_edits([a], [b])
    spans = sorted((patch.start, patch.end) for edit in edits for patch in edit.patches)
    for (_, end), (start, _) in pairwise(spans):
        assert end <= start
    chosen = [index for index in range(len(edits)) if choice.random() < 0.5]
    for each in ([index] for index in range(len(edits))):
        ast.parse(apply_edits([a], [edits[index] for index in close_over_needs(edits, each)])[0].text)
    ast.parse(apply_edits([a], [edits[index] for index in close_over_needs(edits, chosen)])[0].text)


@settings(max_examples=100, deadline=None)
@given(pairs(), st.permutations(["p", "q", "r", "s"]))
def test_other_names_of_variables_are_no_difference(pair: tuple[str, str], names: list[str]) -> None:
    text = pair[0]
    tree = ast.parse(text)
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    new = {old: name for old, name in zip(NAMES, names, strict=True) if old in used}
    for each in ast.walk(tree):
        if isinstance(each, ast.Name):
            each.id = new.get(each.id, each.id)
    a, b = SourceFile("", "a.py", text), SourceFile("", "b.py", ast.unparse(tree))
    assert find_edits([a], [b]) == ()
