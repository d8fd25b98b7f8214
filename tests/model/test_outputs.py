"""Results of a step: what it returns, and what it changes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import invented
import paths
from invented import Tensor, tanh
from joulediff import load
from joulediff.model.outputs import result_distance, rounding_share
from joulediff.model.run import Run

FOLDER = paths.GOLDEN / "cases" / "h200" / "vllm-10811"


def test_a_buffer_that_only_one_program_fills_is_no_result() -> None:
    """The expensive program of this case copies the result of its attention into a buffer."""
    filling, direct = load(FOLDER / "a.jd"), load(FOLDER / "b.jd")
    assert result_distance(filling, direct, is_read=lambda _: False) == 1.0
    found = result_distance(filling, direct, is_read=lambda _: False, needed=direct)
    assert found is not None and found < 1e-2
    assert result_distance(filling, direct, is_read=lambda _: False, needed=filling) == 1.0


@pytest.mark.parametrize(("case", "share"), [("transformers-rms-norm", 2**-5), ("sd-279", 0.0)])
def test_results_in_bfloat16_move_by_four_of_its_roundings(case: str, share: float) -> None:
    assert rounding_share(load(paths.GOLDEN / "cases" / "h200" / case / "a.jd")) == share


def program(change: float | None, *, start: float = 0.0) -> Run:
    """Return a step that may scale a gradient, and returns a tensor."""
    name = "unused.weight.grad"
    grad = Tensor(np.full((4, 8), start, dtype=np.float32), name=name, kind="buffer")
    x = Tensor(invented.draw(4, 8), name="x")

    def step() -> Any:
        if change is not None:
            grad.mul_(change)
        return tanh(x)

    run = invented.record(step)
    written = {op.writes[0] for op in run.ops if op.writes}
    return replace(run, values=tuple(replace(v, name=name) if v.id in written else v for v in run.values))


@pytest.mark.parametrize(
    ("change", "start", "distance"),
    [(0.5, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.5, 1.0, 1.0)],
    ids=["zeros that stay", "filled with zeros", "kept", "changed"],
)
def test_a_tensor_that_one_step_alone_leaves_as_it_was_is_no_result(
    change: float, start: float, distance: float
) -> None:
    a, b = program(change, start=start), program(None)
    assert result_distance(a, b, is_read=lambda _: False) == distance
    assert result_distance(b, a, is_read=lambda _: False) == distance


def test_a_tensor_that_the_other_step_makes_anew_is_no_other_result() -> None:
    a = program(0.5, start=1.0)
    x = Tensor(invented.draw(4, 8), name="x")

    def anew(value: float) -> Run:
        return invented.record(lambda: (tanh(x), invented.full((4, 8), value))[0])

    assert result_distance(a, anew(0.5), is_read=lambda _: False) == 0.0
    assert result_distance(a, anew(0.4), is_read=lambda _: False) == 1.0


def test_a_returned_tensor_that_is_zero_is_a_result() -> None:
    a, b = program(None), program(None)
    values = tuple(replace(value, name="output.more") if value.name == "x" else value for value in a.values)
    assert result_distance(replace(a, values=values), b, is_read=lambda _: False) == 1.0


def writing(rows: np.ndarray, *, kind: str = "input", is_given: bool = True, is_named: bool = True) -> Run:
    """Return a step that writes rows to a tensor of the program's own, and returns something else."""
    x, given = Tensor(invented.draw(4, 8), name="x"), Tensor(np.zeros((4, 8), dtype=np.float32), name="line", kind=kind)

    def step() -> Any:
        line = given if is_given else tanh(given)
        line.copy_(Tensor(rows))
        return tanh(x)

    run = invented.record(step)
    written = {value for op in run.ops for value in op.writes}
    name = "line" if is_named else None
    return replace(run, values=tuple(replace(v, name=name) if v.id in written else v for v in run.values))


def test_storage_of_the_programs_own_may_be_as_the_other_program_leaves_it() -> None:
    rows = invented.draw(4, 8, seed=3)
    rolled, other = np.roll(rows, 1, axis=0), invented.draw(4, 8, seed=4)
    a, b = writing(rows), writing(rolled)

    def distance(changed: Run, needed: Run | None = b) -> float:
        found = result_distance(a, changed, is_read=lambda _: False, needed=needed)
        assert found is not None
        return found

    assert distance(b) == 0.0 == distance(a)
    assert distance(b, needed=None) > 0.5 and distance(writing(other)) > 0.5
    trained_otherwise = writing(other)
    assert distance(trained_otherwise, needed=trained_otherwise) > 0.5, "weights may be outside of modules"
    weight = writing(rows, kind="parameter")
    trained = result_distance(weight, writing(rolled, kind="parameter"), is_read=lambda _: False, needed=b)
    assert trained is not None and trained > 0.5, "a weight is a result"


def test_what_a_step_makes_and_changes_is_no_result() -> None:
    """Whether it has a name depends on the modules that read it."""
    rows = invented.draw(4, 8, seed=3)
    a, b = writing(rows, is_given=False), writing(rows, is_given=False, is_named=False)
    assert result_distance(a, b, is_read=lambda _: False) == 0.0
    given = writing(rows), writing(rows, is_named=False)
    assert result_distance(*given, is_read=lambda _: False) == 1.0
