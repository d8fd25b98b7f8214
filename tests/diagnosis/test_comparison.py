"""Questions about two runs: the costliest operator, the operators that a region needs to run, places."""

from __future__ import annotations

from dataclasses import replace

from diagnosis_builders import comparison_of, costs, draw, frames, record, region_of
from invented import Tensor, sigmoid, silu, softmax, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import costliest, function_of, to_place
from joulediff.matching.rows import common_module
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


PATH = (("mine.py", 3, "step"), ("lib/model.py", 9, "Model.forward", "lib"), ("lib/norm.py", 5, "Norm.forward", "lib"))
NORM, MODEL = Place("lib/norm.py", 5, "Norm.forward"), Place("lib/model.py", 9, "Model.forward")


def placed(run: Run, at: dict[str, int], modules: dict[str, str] | None = None) -> Run:
    """Return a run whose operators are called at a frame of `PATH`, and in a module."""
    ops = tuple(
        replace(op, frame=at.get(name := op.name.removeprefix("aten::"), 2), module=(modules or {}).get(name))
        for op in run.ops
    )
    return replace(run, frames=frames(*PATH), ops=ops)


def normed() -> Tensor:
    return tanh(softmax(X) @ W)


def test_the_narrowest_function_contains_the_operators() -> None:
    run = placed(record(normed, costs({})), {"tanh": 1})
    sides = comparison_of(run, run)
    inner = [op_named(run, name) for name in ("_softmax", "mm")]
    assert function_of(sides, "a", inner) == NORM
    assert function_of(sides, "a", [*inner, op_named(run, "tanh")]) == MODEL
    assert function_of(sides, "a", []) is None


def test_an_operator_with_little_energy_does_not_widen_the_function() -> None:
    run = placed(record(normed, costs({"tanh": 0.01})), {"tanh": 1})
    sides = comparison_of(run, run)
    assert function_of(sides, "a", [op.id for op in run.ops]) == NORM


def test_the_module_is_the_narrowest_one_with_stars_for_numbers() -> None:
    run = placed(record(normed, costs({})), {}, {"_softmax": "layers.3.norm.a", "mm": "layers.3.norm"})
    ops = [op.id for op in run.ops]
    assert common_module(run, ops) == "layers.*.norm"
    assert common_module(run, ops[:0]) == ""


def test_a_finding_has_the_functions_of_both_sides() -> None:
    a = placed(record(normed, costs({"mm": 9.0}), kernel=lambda op: f"slow_{op.name}"), {}, {"mm": "layers.1.norm"})
    (found,) = diagnose(a, record(normed, costs({"mm": 2.0}))).findings
    assert found.work.function_a is not None and found.work.function_b is not None
    assert (found.work.function_a.place, found.work.function_a.module) == (NORM, "layers.*.norm")
    assert found.work.function_b.place.function == "normed"


def test_two_systems_are_compared_by_the_functions_that_do_the_work() -> None:
    def gated() -> Tensor:
        return X * sigmoid(X)

    def fused() -> Tensor:
        return silu(X)

    a = placed(record(gated, costs({"mul": 5.0, "sigmoid": 5.0})), {})
    path = (("mine.py", 7, "step"), ("fast/run.py", 2, "run", "fast"), ("fast/act.py", 4, "act", "fast"))
    b = record(fused, costs({"silu": 2.0}))
    b = replace(b, frames=frames(*path), ops=tuple(replace(op, frame=2) for op in b.ops))
    (found,) = diagnose(a, b).findings
    assert (found.cause.type, found.cause.key) == ("call_path", "Norm.forward")
    assert (found.cause.value_a, found.cause.value_b) == ("Norm.forward", "act")
    assert (found.cause.location_a, found.cause.location_b) == (NORM, Place("fast/act.py", 4, "act"))
    assert "lib/norm.py:5" in found.suggestion and "fast/act.py:4" in found.suggestion
