"""Suspects that bring functions of the other program replace code, and test no cause that their text could name."""

from __future__ import annotations

import pytest

from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.source_files import SourceFile

STEP = "def build():\n    def step():\n{}\n    return step\n"
CLASS = """\
class Publisher:
    def __init__(self, size):
        self.size = size
        self.outbox = []

    def publish(self, state):
        self.outbox.append(pack(state[: self.size]))


""" + STEP.format("        publisher = Publisher(8)\n        publisher.publish(x)\n        return publisher.outbox\n")
FUNCTION = """\
def publish(state, outbox):
    outbox.append(pack(state[:8].clone()))


""" + STEP.format("        outbox = []\n        publish(x, outbox)\n        return outbox\n")
WRITTEN_OUT = STEP.format("        return 2 * x * 1\n")
CALLED = "def scaled(x):\n    return 2 * x\n\n\n" + STEP.format("        return scaled(x)\n")


def differences(a: str, b: str) -> Differences:
    left, right = ((SourceFile("", "p.py", text),) for text in (a, b))
    edits = find_edits(left, right)
    suspects = tuple(Suspect(each.key, each.key, edit=at) for at, each in enumerate(edits) if each.kind != "support")
    return Differences(suspects, left, right, edits)


@pytest.mark.parametrize(
    ("a", "b", "brings"),
    [
        (CLASS, FUNCTION, True),
        (FUNCTION, CLASS, True),
        (WRITTEN_OUT, CALLED, False),
        (CALLED, WRITTEN_OUT, False),
        (WRITTEN_OUT, WRITTEN_OUT.replace("2 *", "3 *"), False),
    ],
    ids=["class to function", "function to class", "one call", "one expression", "a number"],
)
def test_functions_of_the_other_program_in_the_place_of_this_ones(a: str, b: str, brings: bool) -> None:
    found = differences(a, b)
    assert found.suspects
    assert found.brings_code(range(len(found.suspects))) == brings
