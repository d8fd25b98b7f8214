"""Calls of one library function with other literals are found in code that is written differently."""

from __future__ import annotations

import pytest

from joulediff.pysource.edits.edit import Edit, apply_edits
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.edits.same_calls import find_call_edits
from joulediff.pysource.source_files import SourceFile

CLASS = """\
class Trainer:
    def __init__(self, model):
        self.optimizer = SGD(model.parameters(), lr=0.1)

    def train(self, batch):
        self.optimizer.zero_grad({arguments})
        loss = self.model(batch).mean()
        loss.backward()
        self.optimizer.step()
"""
FUNCTION = """\
def learn(net, data, opt):
    error = net(data).mean()
    opt.zero_grad({arguments})
    error.backward()
    opt.step()
"""


def between(a: str, b: str) -> tuple[Edit, ...]:
    return find_call_edits((SourceFile("", "a.py", a),), (SourceFile("", "b.py", b),))


@pytest.mark.parametrize(
    ("mine", "other", "changed"),
    [
        ("set_to_none=False", "", ""),
        ("", "set_to_none=True", "set_to_none=True"),
        ("set_to_none=False", "set_to_none=True", "set_to_none=True"),
        ("(1, 2), set_to_none=False", "(1, 2)", "(1, 2)"),
    ],
)
def test_an_argument_is_changed_in_place(mine: str, other: str, changed: str) -> None:
    text = CLASS.format(arguments=mine)
    (edit,) = between(text, FUNCTION.format(arguments=other))
    assert (edit.kind, edit.key, edit.call) == ("argument", "set_to_none", "self.optimizer.zero_grad")
    assert (edit.line, edit.line_b, edit.function) == (6, 3 if other.count("set_to_none") else None, "Trainer.train")
    (file,) = apply_edits((SourceFile("", "a.py", text),), [edit])
    assert file.text == CLASS.format(arguments=changed)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("dim=-1", "dim=1"),
        ("self.size", "7"),
        ("False", ""),
        ("set_to_none=flag", "set_to_none=True"),
        ("set_to_none=True", "set_to_none=True"),
    ],
    ids=["axis", "variable", "position", "variable by keyword", "same"],
)
def test_what_a_person_does_not_choose_is_no_edit(mine: str, other: str) -> None:
    assert between(CLASS.format(arguments=mine), FUNCTION.format(arguments=other)) == ()


def test_functions_of_the_program_and_texts_for_people_are_left_out() -> None:
    a, b = "def f(x=1):\n    pass\n\nf(x=2)\n", "def f(x=1):\n    pass\n\nf(x=3)\n"
    assert between(a, b) == ()
    assert between("print(x, flush=True)\n", "print(x)\n") == ()


def test_other_numbers_of_calls_are_compared_if_each_program_passes_one_value() -> None:
    loop = "for size in sizes:\n    tables.append(EmbeddingBag(size, 8))\n"
    twice = "one = EmbeddingBag(3, 8, sparse=True)\nother = EmbeddingBag(5, 8, sparse=True)\n"
    (edit,) = between(loop, twice)
    assert (edit.key, edit.value_a, edit.value_b, edit.line) == ("sparse", None, "True", 2)
    (file,) = apply_edits((SourceFile("", "a.py", loop),), [edit])
    assert "EmbeddingBag(size, 8, sparse=True)" in file.text
    (back,) = between(twice, loop)
    (file,) = apply_edits((SourceFile("", "a.py", twice),), [back])
    assert "sparse" not in file.text, "both calls are changed"
    assert between(loop, twice.replace("5, 8, sparse=True", "5, 8")) == ()
    assert between(loop, "x = 3\n") == ()


def test_calls_with_the_same_change_are_one_edit() -> None:
    a, b = (f"y = sort(x{more})\nz = sort(y{more})\n" for more in (", stable=True", ""))
    (edit,) = between(a, b)
    assert len(edit.patches) == 2
    assert apply_edits((SourceFile("", "a.py", a),), [edit])[0].text == b


def test_known_edits_and_broken_files_are_left_out() -> None:
    a, b = (SourceFile("", f"{name}.py", f"y = sort(x{more})\n") for name, more in (("a", ", stable=True"), ("b", "")))
    assert find_call_edits((a,), (b,), find_edits((a,), (b,))) == ()
    assert find_call_edits((a,), (SourceFile("", "b.py", "def ("),)) == ()
