"""Support of anchors: inputs of the step stay inputs, and equal tensors are computed from equal tensors."""

from __future__ import annotations

from typing import Any

import pytest

from invented import Tensor, call_many, exp, log_softmax, softmax, tanh
from joulediff.matching.anchor_support import Origin, Origins, _is_supported
from joulediff.matching.joint_graph import JointGraph
from joulediff.matching.regions import _list_read
from matching_builders import Step, V, W, X, given, matched, names, shown

MEAN = given("MEAN", 32, seed=9)
NO_SIDES: Any = (None, None)


def hands_on() -> Tensor:
    """A step whose operator returns its input beside its result, as a batch norm does with its mean."""
    x = X @ W
    return tanh(call_many("jdtest::center", [x.array - MEAN.array, MEAN.array.copy()], x, MEAN)[0])


def by_hand() -> Tensor:
    return tanh(X @ W - MEAN)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_input_of_the_step_is_read_even_if_an_operator_returns_it(is_first: bool) -> None:
    a, b, regions = matched(*((hands_on, by_hand) if is_first else (by_hand, hands_on)))
    (center,) = [each for each in regions if "jdtest::center" in names(a, each.a) + names(b, each.b)]
    assert center.kind == "equal"
    assert sorted(names(a, center.a) + names(b, center.b)) == ["jdtest::center", "sub"]
    assert ("MEAN", "MEAN") in [(a.values[x].name, b.values[y].name) for x, y in center.inputs]


@pytest.mark.parametrize(
    ("makers", "anchor", "read"),
    [([1], 0, []), ([], 0, [0]), ([1], 1, [0]), ([1], -1, [0])],
    ids=["made before", "given", "another", "without an anchor"],
)
def test_a_group_does_not_read_a_tensor_equal_to_one_it_makes(makers: list[int], anchor: int, read: list[int]) -> None:
    """One operator reads a tensor and makes another one with anchor 0."""
    tables: dict[str, Any] = {
        "reads": [[0], []],
        "makes": [[1], [0]],
        "makers": [makers, [0]],
        "anchor_of": [anchor, 0],
    }
    assert list(_list_read(JointGraph(NO_SIDES, 2, 2, **tables), [0], {1: None})) == read


def test_a_tensor_without_an_anchor_equals_no_input() -> None:
    tables: dict[str, Any] = {"reads": [[0], []], "makes": [[1], [0]], "makers": [[1], [0]], "anchor_of": [-1, -1]}
    assert list(_list_read(JointGraph(NO_SIDES, 2, 2, **tables), [0], {1: None})) == [0]


def apart(dtype: str) -> Step:
    x, w, v = (Tensor(each.array.astype(dtype)) for each in (X, W, V))

    def step() -> Any:
        y = x @ w
        return log_softmax(y), softmax(y) @ v

    return step


def on_the_way(dtype: str) -> Step:
    x, w, v = (Tensor(each.array.astype(dtype)) for each in (X, W, V))

    def step() -> Any:
        logs = log_softmax(x @ w)
        return logs, exp(logs) @ v

    return step


@pytest.mark.parametrize("types", [("float32", "float16"), ("float16", "float32")])
def test_an_intermediate_tensor_of_one_run_is_a_sibling_of_the_result_in_the_other(types: tuple[str, str]) -> None:
    """No distance is exact between float types: without support the softmax would have no counterpart."""
    product = ("equal", ["mm"], ["mm"])
    found = shown(apart(types[0]), on_the_way(types[1]))
    assert found == [product, ("equal", ["_log_softmax", "_softmax"], ["_log_softmax", "exp"]), product]
    found = shown(on_the_way(types[0]), apart(types[1]))
    assert found == [product, ("equal", ["_log_softmax", "exp"], ["_log_softmax", "_softmax"]), product]


GIVEN, OTHER, BESIDE, RESULT = range(4)


def made_of(*anchors: int, is_open: bool = False) -> Origin:
    return Origin(frozenset(anchors), is_open)


def alike(result: tuple[Origin | None, Origin | None], beside: tuple[Origin | None, Origin | None]) -> bool:
    """Return whether the result is supported; each run has two inputs, an anchor beside the result, and the result."""
    joint = JointGraph(NO_SIDES, 2, 4, anchor_of=[*range(4), *range(4)], given_anchors={GIVEN, OTHER})
    origins: Origins = {BESIDE: beside, RESULT: result}
    return _is_supported(joint, origins, {}, (RESULT, 4 + RESULT))


DIRECT, BY_WAY = made_of(GIVEN), made_of(BESIDE)
SAME = (made_of(GIVEN), made_of(GIVEN))


def test_a_result_is_supported_if_its_intermediate_tensor_has_the_same_origin() -> None:
    assert alike((DIRECT, DIRECT), SAME)
    assert alike((DIRECT, BY_WAY), SAME)
    assert alike((BY_WAY, DIRECT), SAME)


@pytest.mark.parametrize(
    ("result", "beside"),
    [
        ((made_of(OTHER), BY_WAY), SAME),
        ((BY_WAY, made_of(OTHER)), SAME),
        ((made_of(GIVEN, OTHER), BY_WAY), SAME),
        ((DIRECT, BY_WAY), (made_of(GIVEN), made_of(OTHER))),
        ((DIRECT, BY_WAY), (made_of(GIVEN), None)),
        ((DIRECT, BY_WAY), (made_of(GIVEN), made_of())),
        ((DIRECT, None), SAME),
        ((DIRECT, made_of()), SAME),
    ],
    ids=["other", "other in b", "more", "another way", "way unknown", "way of nothing", "unknown", "of nothing"],
)
def test_a_result_of_another_origin_is_not_supported(
    result: tuple[Origin | None, Origin | None], beside: tuple[Origin | None, Origin | None]
) -> None:
    assert not alike(result, beside)


def test_fused_weights_of_one_run_do_not_remove_support() -> None:
    assert alike((made_of(GIVEN, OTHER), made_of(BESIDE, is_open=True)), SAME)
