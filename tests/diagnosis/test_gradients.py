"""Gradients that one side alone computes are named by the call whose work both sides do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis_builders import costs, draw, record
from invented import Tensor, call, tanh
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.gradients import find_gradients
from joulediff.diagnosis.lead import Lead, make_subject
from joulediff.model.finding import Region
from joulediff.model.run import Frame, Run, SourceText

X, W, V = draw(16, 32), draw(32, 32, seed=1), draw(32, 32, seed=2)
SOURCE = """\
def update():
    fake = generator(noise)
    loss = critic(fake).mean()
    loss.backward()


def generator(noise):
    return activate(noise @ weight)
"""
# The frames of the generator, of the critic, and of the backward pass.
FRAMES = (
    Frame("gan.py", 2, "update", None, None),
    Frame("gan.py", 8, "generator", None, 0),
    Frame("gan.py", 3, "update", None, None),
    Frame("gan.py", 4, "update", None, None),
)
COSTS = {"tanh_backward": 4.0, "mm_backward": 6.0, "critic_backward": 5.0}


def training(*, is_detached: bool, each_j: dict[str, float] | None = None) -> Run:
    """Return a step: the generator (operators 0 and 1), the critic (2), and their backward operators."""

    def step() -> Tensor:
        judged = tanh(X @ W) @ V
        gradient = call("critic_backward", judged.array * 2, judged)
        if is_detached:
            return gradient
        return call("mm_backward", gradient.array * 3, call("tanh_backward", gradient.array + 1, gradient))

    run = record(step, costs({**COSTS, **(each_j or {})}))
    forward = {3: 2, 4: 1, 5: 0}
    places = {0: 1, 1: 1, 2: 2, 3: 3, 4: 3, 5: 3}
    ops = tuple(
        replace(
            op, frame=places[op.id], forward=forward.get(op.id), phase="backward" if op.id in forward else "forward"
        )
        for op in run.ops
    )
    return replace(run, frames=FRAMES, ops=ops, sources=(SourceText("gan.py", 1, SOURCE),))


def leads_of(a: Run, b: Run, *, both: tuple[int, ...] = (0, 1, 2, 3)) -> list[Lead]:
    """Return the leads of the operators that only a has; `both` are those with a counterpart."""
    equal = [Region(at, "equal", (at,), (at,), (), ()) for at in both]
    rest = Region(99, "unused", tuple(op.id for op in a.ops if op.id not in both), (), (), ())
    return find_gradients(make_subject(Comparison(a, b, [*equal, rest]), rest, "a"))


def test_gradients_of_work_that_both_sides_do_are_named_by_its_call() -> None:
    (lead,) = leads_of(training(is_detached=False), training(is_detached=True))
    assert (lead.kind, lead.cause.key, lead.cause.value_a) == ("redundant", "detach", "gradients of generator")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "fake = generator(noise)"
    assert lead.cause.evidence[0].startswith("2 operators compute gradients of generator, whose work both sides do")
    assert lead.suggestion.startswith("Call detach on the result of generator (gan.py:2")


def test_gradients_of_work_that_one_side_does_alone_follow_from_that_work() -> None:
    assert leads_of(training(is_detached=False), training(is_detached=True), both=(2, 3)) == []


@pytest.mark.parametrize("dear", ["critic_backward", "mm"])
def test_a_call_whose_other_work_is_needed_is_not_named(dear: str) -> None:
    """Extra operators that are no gradients, or gradients of the same call that the other side computes as well."""
    a, b = (training(is_detached=each, each_j={dear: 50.0}) for each in (False, True))
    leads = leads_of(a, b, both=(1, 2, 3) if dear == "mm" else (0, 1, 2, 3))
    assert [lead.cause.value_a for lead in leads] == ([] if dear == "mm" else ["gradients of generator"])


def test_both_sides_compute_them() -> None:
    run = training(is_detached=False)
    assert leads_of(run, run, both=(0, 1, 2, 3, 4, 5)) == []
