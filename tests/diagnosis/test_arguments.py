"""Arguments that differ between two calls of one operator, and the keyword in the source that sets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import LiveProgram, comparison_of, costs, draw, record
from invented import Tensor, call, exp, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.arguments import (
    arguments_of,
    differing_arguments,
    find_arguments,
    find_other_arguments,
)
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.lead import Lead, Subject, make_subject
from joulediff.frameworks.jobs import JobCost
from run_builders import RunBuilder, energy

X = draw(16, 32)
WIDE = Tensor(X.array.astype(np.float64), name="WIDE")


def solve(x: Tensor, *, driver: str = "plain", keep: bool = False, mask: Tensor | None = None) -> Tensor:
    given = [x] if mask is None else [x, mask]
    return call("toy::solve", np.cos(x.array), *given, {"driver": driver, "keep": keep})


def smooth(x: Tensor, *, careful: bool = False) -> Tensor:
    """Another operator where it is careful."""
    return call("toy::smooth_carefully" if careful else "toy::smooth", np.cos(x.array), x)


def reduce(x: Tensor, dtype: str | None = None) -> Tensor:
    """An operator that reads another type: a cast comes before it."""
    read = x if dtype is None else x.to(dtype)
    return call("toy::reduce", np.cos(read.array), read)


class Solver:
    def __init__(self, *, driver: str) -> None:
        self.driver = driver

    def __call__(self, x: Tensor) -> Tensor:
        return solve(x, driver=self.driver)


def slow() -> Tensor:
    return exp(solve(tanh(X), driver="slow"))


def fast() -> Tensor:
    return exp(solve(tanh(X), driver="fast"))


def by_default() -> Tensor:
    return exp(solve(tanh(X)))


Step = Callable[[], Any]


def subject_of(a: Step, b: Step, op: str = "toy::solve", settings: tuple[Any, Any] = ({}, {})) -> Subject:
    runs = [record(step, costs({op: 4.0}), settings=each) for step, each in zip((a, b), settings, strict=True)]
    sides = comparison_of(*runs)
    region = next(
        each
        for each in sides.regions
        if each.kind == "equal"
        and op in [sides.a.ops[at].name for at in each.a] + [sides.b.ops[at].name for at in each.b]
    )
    return make_subject(sides, region, "a")


def only(leads: list[Lead]) -> Lead:
    (lead,) = leads
    return lead


def test_an_argument_is_named_by_its_keyword_with_both_values_and_lines() -> None:
    lead = only(find_arguments(subject_of(slow, fast)))
    cause = lead.cause
    assert (lead.kind, cause.type, cause.key) == ("api_misuse", "argument", "driver")
    assert (cause.value_a, cause.value_b) == ("slow", "fast")
    assert cause.location_a is not None and cause.location_a.text == 'return exp(solve(tanh(X), driver="slow"))'
    assert cause.location_b is not None and cause.location_b.text == 'return exp(solve(tanh(X), driver="fast"))'
    assert cause.evidence == ("driver of toy::solve is 'slow' in A and 'fast' in B",)
    assert lead.suggestion.startswith("Set driver to 'fast'; it is 'slow' (")


@pytest.mark.parametrize("step", [slow, fast, by_default])
def test_a_program_and_itself_have_no_argument_that_differs(step: Step) -> None:
    subject = subject_of(step, step)
    assert find_arguments(subject) == find_other_arguments(subject) == []


def test_a_default_that_one_side_does_not_write_is_named_by_the_other_sides_keyword() -> None:
    lead = only(find_arguments(subject_of(by_default, fast)))
    assert (lead.cause.key, lead.cause.value_a, lead.cause.value_b) == ("driver", "plain", "fast")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "return exp(solve(tanh(X)))"


def test_an_argument_of_a_constructor_is_a_misconfiguration_at_its_line() -> None:
    def build_slow() -> Step:
        solver = Solver(driver="slow")
        return lambda: exp(solver(tanh(X)))

    def build_fast() -> Step:
        solver = Solver(driver="fast")
        return lambda: exp(solver(tanh(X)))

    lead = only(find_arguments(subject_of(build_slow(), build_fast())))
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "driver")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == 'solver = Solver(driver="slow")'


def test_an_argument_that_chooses_another_operator_is_found_in_the_lines() -> None:
    def careful() -> Tensor:
        return exp(
            smooth(tanh(X), careful=True),
        )

    def careless() -> Tensor:
        return exp(smooth(tanh(X)))

    subject = subject_of(careful, careless, "toy::smooth_carefully")
    assert find_arguments(subject) == []
    lead = only(find_other_arguments(subject))
    assert (lead.cause.type, lead.cause.key) == ("argument", "careful")
    assert (lead.cause.value_a, lead.cause.value_b) == (True, None)
    assert lead.cause.evidence == ("careful of smooth is True in A and not given in B",)
    assert lead.suggestion.startswith("Leave out careful (")


def test_an_argument_that_asks_for_a_cast_comes_before_the_layout_of_what_was_cast() -> None:
    def wide() -> Tensor:
        return exp(reduce(tanh(X), dtype="float64"))

    def narrow() -> Tensor:
        return exp(reduce(tanh(X)))

    leads = find_leads(subject_of(wide, narrow, "toy::reduce"))
    assert [(lead.cause.type, lead.cause.key) for lead in leads[:2]] == [("argument", "dtype"), ("layout", "dtype")]


def test_a_tensor_that_was_given_wide_is_no_argument() -> None:
    def wide() -> Tensor:
        return exp(reduce(WIDE))

    def narrow() -> Tensor:
        return exp(reduce(X))

    assert find_arguments(subject_of(wide, narrow, "toy::reduce")) == []


def test_an_argument_of_another_call_in_the_line_is_not_named() -> None:
    def mine() -> Tensor:
        return exp(smooth(tanh(X), careful=True)) + solve(X).sum()

    def other() -> Tensor:
        return exp(smooth(tanh(X))) + solve(X).sum()

    subject = subject_of(mine, other)
    assert find_arguments(subject) == find_other_arguments(subject) == []


def test_a_variable_in_a_keyword_has_the_recorded_values() -> None:
    def make(driver: str) -> Step:
        return lambda: exp(solve(tanh(X), driver=driver))

    lead = only(find_arguments(subject_of(make("slow"), make("fast"))))
    assert (lead.cause.key, lead.cause.value_a, lead.cause.value_b) == ("driver", "slow", "fast")


@pytest.mark.parametrize(("name", "keys"), [("driver", ["driver"]), ("beta", [])])
def test_another_formula_has_arguments_that_nobody_chose(name: str, keys: list[str]) -> None:
    """The operators of the two sides differ, so an argument counts only if a line writes it: none writes `beta`."""

    def at_once() -> Tensor:
        if name == "driver":
            return exp(solve(tanh(X), driver="slow"))
        return exp(call("toy::solve", np.cos(np.tanh(X.array)), tanh(X), {name: "slow"}))

    def by_opposite() -> Tensor:
        opposite = call("toy::solve", -np.cos(np.tanh(X.array)), tanh(X), {name: "fast"})
        return exp(call("neg", -opposite.array, opposite))

    found = subject_of(at_once, by_opposite)
    assert found.relation == "other_operators"
    assert [lead.cause.key for lead in find_arguments(found)] == keys


def test_a_setting_that_differs_as_well_comes_first() -> None:
    subject = subject_of(slow, fast, settings=({"torch.x": 1}, {"torch.x": 2}))
    assert find_arguments(subject) == []
    leads = find_leads(subject)
    assert [lead.cause.type for lead in leads] == ["setting", "argument"]
    assert not leads[1].changes[0].is_cause


def test_the_argument_itself_is_tried_where_nothing_else_differs() -> None:
    a, b = record(slow, costs({"toy::solve": 4.0})), record(fast, costs({}))
    answer = JobCost(energy(1.0, 0.005, "replayed"), 1e-3, ("changed_kernel",), 0.0)
    (found,) = diagnose(a, b, live={"a": LiveProgram(a, {"calls": answer}), "b": LiveProgram(b)}).findings
    assert found.proof.word == "cause confirmed"
    assert found.proof.trials[0].change == "driver = 'fast'"


def test_two_arguments_that_differ_are_a_replacement() -> None:
    def keeping() -> Tensor:
        return exp(solve(tanh(X), driver="slow", keep=True))

    a, b = record(keeping, costs({"toy::solve": 4.0})), record(fast, costs({}))
    answer = JobCost(energy(1.0, 0.005, "replayed"), 1e-3, ("changed_kernel",), 0.0)
    (found,) = diagnose(a, b, live={"a": LiveProgram(a, {"calls": answer}), "b": LiveProgram(b)}).findings
    assert (found.cause.key, found.proof.word) == ("driver", "replacement confirmed")


def ops_with(*arguments: str, shapes: tuple[tuple[int, ...], ...] = ((4,), (4,))) -> list[str]:
    runs = []
    for text, shape in zip(arguments, shapes, strict=True):
        made = RunBuilder()
        made.op("toy::f", inputs=[made.value(shape)], outputs=[], arguments=text)
        runs.append(made.build())
    return [each.name for each in differing_arguments(runs[0], 0, runs[1], 0)]


def test_arguments_without_a_schema_are_known_by_position() -> None:
    one, two = '{"args":[{"tensor":0},1],"kwargs":{}}', '{"args":[{"tensor":0},2],"kwargs":{}}'
    assert ops_with(one, two) == ["argument 2"]


def test_rounding_and_generators_are_no_difference() -> None:
    one = '{"args":[{"tensor":0},0.1],"kwargs":{"generator":{"generator":"cpu"}}}'
    assert ops_with(one, '{"args":[{"tensor":0},0.10000000001],"kwargs":{"generator":null}}') == []


def test_sizes_follow_the_shapes_of_the_inputs() -> None:
    one, two = '{"args":[{"tensor":0},[4,2]],"kwargs":{}}', '{"args":[{"tensor":0},[8,2]],"kwargs":{}}'
    assert ops_with(one, two) == ["argument 2"]
    assert ops_with(one, two, shapes=((4,), (8,))) == []


def test_a_tensor_against_none_is_a_difference_and_two_tensors_are_none() -> None:
    with_mask, without = '{"args":[{"tensor":0}],"kwargs":{"mask":{"tensor":0}}}', '{"args":[{"tensor":0}],"kwargs":{}}'
    assert ops_with(with_mask, without) == ["mask"]
    assert ops_with(with_mask, '{"args":[{"tensor":0}],"kwargs":{"mask":{"tensor":1}}}') == []


def test_damaged_arguments_are_none() -> None:
    made = RunBuilder()
    for text in ("", "[]", "3", '{"args":3,"kwargs":{}}'):
        made.op("toy::f", inputs=[], outputs=[], arguments=text)
    assert [arguments_of(op) for op in made.build().ops] == [{}] * 4


@pytest.mark.parametrize(
    ("mine", "other", "shape", "differ"),
    [("-1", "1", (4, 8), []), ("-1", "0", (4, 8), ["dim"]), ("[-2,-1]", "[0,1]", (4, 8), []), ("3", "-1", (), ["dim"])],
)
def test_dimensions_are_counted_from_the_first_one(
    mine: str, other: str, shape: tuple[int, ...], differ: list[str]
) -> None:
    texts = [f'{{"args":[{{"tensor":0}}],"kwargs":{{"dim":{each}}}}}' for each in (mine, other)]
    assert ops_with(*texts, shapes=(shape, shape)) == differ
