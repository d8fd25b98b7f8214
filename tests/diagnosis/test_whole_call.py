"""Several regions as one: the calls of the user's own code, padding between regions, and one trial for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import Answer, LiveProgram, comparison_of, costs, draw, frames, record, sums
from invented import Tensor, reciprocal, sqrt
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.calls.deviation import library_call
from joulediff.diagnosis.trials import whole_call as wholes
from joulediff.diagnosis.trials.whole_call import add_padded, join_regions, regions_of_call
from joulediff.frameworks.jobs import Job
from joulediff.model.diff import Diff
from joulediff.model.finding import Region
from joulediff.model.run import Frame, Run
from run_builders import RunBuilder

X, W = draw(16, 32), draw(32, 32, seed=1)
FILE = "fancy/norms.py"


def unit_length(x: Tensor) -> Tensor:
    """Stands for a library's function."""
    squares = x * x
    return x / sqrt(squares.sum(-1, keepdim=True))


def called() -> Tensor:
    return unit_length(X @ W)


def by_hand() -> Tensor:
    x = X @ W
    return x * reciprocal(x.square().sum(-1, keepdim=True).pow(0.5))


def in_library(run: Run) -> Run:
    """Return a run in which `unit_length` is no code of the user's own."""
    moved = (replace(f, file=FILE, owner="fancy") if f.function == "unit_length" else f for f in run.frames)
    return replace(run, frames=tuple(moved))


DEAR = in_library(record(called, costs({"mul": 4.0, "sqrt": 4.0, "div": 4.0})))
LEAN = record(by_hand, costs({}))
NAMES = ("mul", "sum", "sqrt", "div")


def path_run(*path: Any) -> Run:
    """Return a run of one operator at the end of a call path."""
    builder = RunBuilder()
    builder.op("aten::mm", frame=len(path) - 1)
    return builder.build(frames=frames(*path))


STEP = ("mine.py", 3, "step")
WRAPPER = ("fancy/deprecation.py", 9, "renamed.<locals>.inner", "fancy")
NORM = (FILE, 20, "normalize", "fancy")
KERNEL = ("torch/functional.py", 7, "norm", "torch")


@pytest.mark.parametrize(
    ("path", "line", "function"),
    [
        ((STEP, NORM), STEP, NORM),
        ((STEP, NORM, KERNEL), STEP, NORM),
        ((STEP, WRAPPER, NORM, KERNEL), STEP, NORM),
        ((STEP, WRAPPER), STEP, WRAPPER),
        ((STEP, NORM, ("mine.py", 9, "callback"), KERNEL), ("mine.py", 9, "callback"), KERNEL),
    ],
    ids=["alone", "the outermost", "wrapped", "only a wrapper", "called back"],
)
def test_the_function_that_the_users_line_calls(path: Any, line: Any, function: Any) -> None:
    found = library_call(path_run(*path), 0)
    assert found is not None
    assert [(each.file, each.line, each.function) for each in found] == [line[:3], function[:3]]


@pytest.mark.parametrize("path", [(), (STEP,), (STEP, ("mine.py", 9, "work")), (NORM, KERNEL)], ids=str)
def test_no_function_of_a_library_is_called(path: Any) -> None:
    run = path_run(*path)
    run = run if path else replace(run, ops=(replace(run.ops[0], frame=None),))
    assert library_call(run, 0) is None


def op_named(run: Run, name: str) -> int:
    return next(op.id for op in run.ops if op.name == f"aten::{name}")


def names_of(sides: Comparison, regions: Sequence[Region]) -> tuple[str, ...]:
    """Return the operators of A in some regions."""
    return tuple(sides.a.ops[op].name.removeprefix("aten::") for region in regions for op in region.a)


def test_a_call_has_all_regions_of_its_operators() -> None:
    sides = comparison_of(DEAR, LEAN)
    for name, other in (("mul", 1), ("sqrt", 3)):
        assert names_of(sides, regions_of_call(sides, "a", op_named(DEAR, name), other)) == NAMES
    swapped = comparison_of(LEAN, DEAR)
    found = regions_of_call(swapped, "b", 1, op_named(DEAR, "mul"))
    assert [DEAR.ops[op].name for region in found for op in region.b] == [f"aten::{name}" for name in NAMES]


def test_operators_of_the_users_own_line_are_not_a_call() -> None:
    sides = comparison_of(DEAR, LEAN)
    assert regions_of_call(sides, "a", op_named(DEAR, "mm"), op_named(LEAN, "mm")) == []
    assert regions_of_call(sides, "b", op_named(DEAR, "mul"), 1) == []


@pytest.mark.parametrize("ops", [(None, 1), (1, None)])
def test_work_that_one_side_lacks_is_no_call(ops: tuple[int | None, int | None]) -> None:
    assert regions_of_call(comparison_of(DEAR, LEAN), "a", *ops) == []


def test_a_function_that_both_sides_call_is_no_whole() -> None:
    sides = comparison_of(DEAR, DEAR)
    at = op_named(DEAR, "mul")
    assert regions_of_call(sides, "a", at, at) == []


def test_a_function_that_parts_inside_is_no_whole() -> None:
    other = replace(DEAR, frames=tuple(replace(f, line=f.line + 9) if f.owner else f for f in DEAR.frames))
    at = op_named(DEAR, "mul")
    assert regions_of_call(comparison_of(DEAR, other), "a", at, at) == []


def test_a_call_in_another_line_is_another_one() -> None:
    def twice() -> Tensor:
        x = unit_length(X @ W)
        return unit_length(x + 1)

    def twice_by_hand() -> Tensor:
        x = X @ W
        x = x * reciprocal(x.square().sum(-1, keepdim=True).pow(0.5)) + 1
        return x * reciprocal(x.square().sum(-1, keepdim=True).pow(0.5))

    a, b = in_library(record(twice, costs({}))), record(twice_by_hand, costs({}))
    sides = comparison_of(a, b)
    assert names_of(sides, regions_of_call(sides, "a", op_named(a, "mul"), op_named(b, "pow"))) == NAMES


def test_too_many_regions_are_no_single_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholes, "MAX_REGIONS", 3)
    assert regions_of_call(comparison_of(DEAR, LEAN), "a", op_named(DEAR, "mul"), 1) == []


class Chain:
    """Two runs of four operators in a row: values 0 to 4, each of another length in the two runs."""

    def __init__(self, lengths_a: Sequence[int], lengths_b: Sequence[int]) -> None:
        self.a, self.b = (self._run(lengths) for lengths in (lengths_a, lengths_b))
        self.regions = [Region(at, "equal", (at,), (at,), ((at, at),), ((at + 1, at + 1),)) for at in range(4)]

    @staticmethod
    def _run(lengths: Sequence[int]) -> Run:
        builder = RunBuilder()
        for at, length in enumerate(lengths):
            builder.value((length,), producer=at - 1 if at else None)
        for at in range(4):
            builder.op("aten::work", inputs=[at], outputs=[at + 1])
        return builder.build()

    @property
    def sides(self) -> Comparison:
        return Comparison(self.a, self.b, self.regions)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((6, 6, 6, 6, 6), [1]),
        ((6, 8, 6, 6, 6), [0, 1]),
        ((6, 6, 8, 6, 6), [1, 2]),
        ((6, 8, 8, 8, 6), [0, 1, 2, 3]),
        ((6, 6, 8, 8, 6), [1, 2, 3]),
        ((6, 6, 6, 8, 6), [1]),
    ],
)
def test_regions_between_which_padding_lies_belong_together(lengths: tuple[int, ...], expected: list[int]) -> None:
    chain = Chain((6, 6, 6, 6, 6), lengths)
    assert sorted(region.id for region in add_padded(chain.sides, [chain.regions[1]])) == expected


def test_other_shapes_of_as_many_elements_are_no_padding() -> None:
    chain = Chain((6, 6, 6, 6, 6), (6, 6, 6, 6, 6))
    values = tuple(replace(value, shape=(2, 3)) for value in chain.b.values)
    sides = Comparison(chain.a, replace(chain.b, values=values), chain.regions)
    assert add_padded(sides, [chain.regions[1]]) == [chain.regions[1]]


def test_widening_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholes, "MAX_REGIONS", 1)
    chain = Chain((6, 6, 6, 6, 6), (8, 8, 8, 8, 8))
    assert [region.id for region in add_padded(chain.sides, [chain.regions[1]])] == [1, 0, 2]


def test_a_whole_reads_what_comes_from_without_and_makes_what_leaves() -> None:
    sides = comparison_of(DEAR, LEAN)
    members = regions_of_call(sides, "a", op_named(DEAR, "mul"), 1)
    whole = join_regions(sides, reversed(members))
    assert (whole.kind, whole.a, whole.b) == ("equal", (1, 2, 3, 4), (1, 2, 3, 4, 5))
    assert whole.inputs == sides.regions[0].outputs, "the product is read by two of its regions"
    assert whole.outputs == sides.regions[-1].outputs


def test_what_others_read_leaves_a_whole() -> None:
    chain = Chain((6, 6, 6, 6, 6), (6, 6, 6, 6, 6))
    found = join_regions(chain.sides, chain.regions[1:3])
    assert (found.inputs, found.outputs) == (((1, 1),), ((3, 3),))
    assert join_regions(chain.sides, chain.regions).outputs == ((4, 4),), "what nothing reads, the step returns"


@pytest.mark.parametrize("side", ["a", "b"])
def test_what_one_side_alone_reads_elsewhere_leaves_too(side: str) -> None:
    chain = Chain((6, 6, 6, 6, 6), (6, 6, 6, 6, 6))
    run = getattr(chain, side)
    ops = (*run.ops[:3], replace(run.ops[3], inputs=(3, 2)))
    setattr(chain, side, replace(run, ops=ops))
    assert join_regions(chain.sides, chain.regions[1:3]).outputs == ((2, 2), (3, 3))


def test_a_view_between_joined_regions_is_not_an_input() -> None:
    """A view of a region's output is a region of its own, and no input of the joined region."""
    chain = Chain((6, 6, 6, 6, 6), (6, 6, 6, 6, 6))
    chain.regions[1] = replace(chain.regions[1], kind="movement")
    found = join_regions(chain.sides, [chain.regions[0], chain.regions[2]])
    assert (found.a, found.inputs, found.outputs) == ((0, 2), ((0, 0),), ((3, 3),))


class Piecemeal(LiveProgram):
    """A program that can run only a few operators of the other one at once."""

    def _answer(self, key: str, job: Job) -> Answer:
        return "too many" if key == "calls" and len(job.ops) > 2 else super()._answer(key, job)


def diff_of(program: LiveProgram) -> Diff:
    diff = diagnose(DEAR, LEAN, live={"a": program, "b": LiveProgram(LEAN)})
    assert sums(diff) == pytest.approx([14.0, 6.0])
    return diff


def rows_of(diff: Diff) -> dict[str, str | None]:
    return {row.name: row.finding for row in diff.rows if row.kind == "equal"}


def test_a_call_is_one_finding_with_one_trial() -> None:
    program = LiveProgram(DEAR, {"calls": 5.0})
    diff = diff_of(program)
    (found,) = diff.findings
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("api_misuse", "unit_length", True)
    assert found.cost.delta_j == pytest.approx(8.0) and len(found.regions) == 3
    assert found.proof.confirmation is not None and program.asked.count("calls") == 1
    (trial,) = found.proof.confirmation.trials
    assert trial.change == "the calls of the other side, for all of unit_length"
    assert [each.joules for each in (trial.before, trial.other) if each] == pytest.approx([13.0, 5.0])
    assert found.proof.confirmation.saved_j == pytest.approx(8.0)
    assert rows_of(diff) == {
        "mm": None,
        "mul ↔ pow": "1",
        "sum": None,
        "sqrt ↔ pow": "1",
        "div ↔ reciprocal, mul": "1",
    }


def test_the_sides_may_be_exchanged() -> None:
    (found,) = diagnose(LEAN, DEAR, live={"a": LiveProgram(LEAN), "b": LiveProgram(DEAR, {"calls": 5.0})}).findings
    assert (found.expensive, found.proof.confirmed) == ("b", True)
    assert found.cost.delta_j == pytest.approx(8.0)


def test_a_row_of_the_call_that_costs_the_other_side_more_is_no_part_of_it() -> None:
    lean = record(by_hand, costs({"reciprocal": 6.0}))
    diff = diagnose(DEAR, lean, live={"a": LiveProgram(DEAR, {"calls": 10.0}), "b": LiveProgram(lean)})
    found = next(each for each in diff.findings if each.expensive == "a")
    assert found.proof.confirmed and len(found.regions) == 2
    assert rows_of(diff)["div ↔ reciprocal, mul"] != found.id


def test_a_whole_that_cannot_be_run_leaves_the_regions() -> None:
    diff = diff_of(Piecemeal(DEAR, {"calls": 1.0}))
    assert [(each.cost.delta_j, each.proof.confirmed) for each in diff.findings] == [
        (3.0, True),
        (3.0, True),
        (2.0, True),
    ]
    assert len(set(rows_of(diff).values()) - {None}) == 3
    for found in diff.findings:
        assert found.proof.confirmation is not None
        assert [trial.change for trial in found.proof.confirmation.trials] == ["the calls of the other side"]


def test_a_failed_trial_of_the_whole_call_is_reported_beside_the_region() -> None:
    diff = diff_of(LiveProgram(DEAR, {"calls": 30.0}))
    assert not any(found.proof.confirmed for found in diff.findings)
    assert diff.findings[0].proof.confirmation is not None
    changes = [trial.change for trial in diff.findings[0].proof.confirmation.trials]
    assert changes == ["the calls of the other side, for all of unit_length", "the calls of the other side"]


def test_offline_each_row_is_reported_separately() -> None:
    diff = diagnose(DEAR, LEAN)
    assert [found.regions for found in diff.findings] == [(1,), (3,), (4,)]
    assert not any(found.proof.confirmed for found in diff.findings)


def test_a_call_and_itself() -> None:
    assert diagnose(DEAR, DEAR, live={"a": LiveProgram(DEAR), "b": LiveProgram(DEAR)}).findings == ()


def test_frames_of_the_library_are_frames() -> None:
    """The stand-in for a library counts as a library: the tests above depend on it."""
    path: tuple[Frame, ...] = DEAR.call_path(op_named(DEAR, "mul"))
    assert [frame.owner for frame in path] == [None, "fancy"]
