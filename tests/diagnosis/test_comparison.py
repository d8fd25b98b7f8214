"""Questions about two runs: the costliest operator, the operators that a region needs to run, places."""

from __future__ import annotations

from diagnosis_builders import comparison_of, costs, draw, record, region_of
from invented import Tensor, softmax, tanh
from joulediff.diagnosis.comparison import costliest, to_place
from joulediff.model.place import Place
from joulediff.model.run import Run, SourceText
from run_builders import RunBuilder


def test_a_place_has_its_line_where_the_run_holds_it() -> None:
    made = RunBuilder()
    at = made.frame("p.py", 7, "step")
    made.sources.append(SourceText("p.py", 6, "def step():\n    return x\n"))
    run = made.build()
    assert to_place(run, run.frames[at]) == Place("p.py", 7, "step", "return x")
    assert run.line_text("p.py", 8) is None and run.line_text("q.py", 7) is None
    assert to_place(run, None) is None


X, W, FEW = draw(16, 32), draw(32, 32, seed=1), draw(16, 32, seed=2)


def op_named(run: Run, name: str) -> int:
    return next(op.id for op in run.ops if op.name == f"aten::{name}")


def test_the_costliest_operator_and_those_without_kernels() -> None:
    def step() -> Tensor:
        return tanh(X @ W.t())

    sides = comparison_of(*(record(step, costs({"mm": 5.0})) for _ in range(2)))
    run = sides.a
    assert costliest(sides, "a", range(len(run.ops))) == op_named(run, "mm")
    assert costliest(sides, "a", [op_named(run, "t")]) == op_named(run, "t")
    assert costliest(sides, "a", []) is None


def test_runnable_operators_reach_from_shared_tensors_to_the_outputs() -> None:
    def copied() -> Tensor:
        return softmax(X.t().contiguous()) @ FEW

    def plain() -> Tensor:
        return softmax(X.t()) @ FEW

    sides = comparison_of(record(copied, costs({})), record(plain, costs({})))
    region = region_of(sides, "_softmax")
    names = [sides.a.ops[op].name for op in sides.runnable_ops(region, "a")]
    assert names == ["aten::t", "aten::clone", "aten::_softmax"]
    assert [sides.b.ops[op].name for op in sides.runnable_ops(region, "b")] == ["aten::t", "aten::_softmax"]
    copy = region_of(sides, "clone", "movement")
    assert region in sides.readers_of(copy.a, "a")
