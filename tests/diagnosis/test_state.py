"""Leaves that differ are paired by path, grouped to one difference each, and ranked; A/A has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagnosis_builders import comparison_of, costs, draw, record, region_of
from invented import Tensor, tanh
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.calls.call_path import key_lead
from joulediff.diagnosis.evidence.calls.key_variable import KeyVariable
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.state import Leaf, describe_leaf, differing_leaves, find_state, pair_paths
from joulediff.diagnosis.lead import make_subject
from joulediff.model.pair import Pair
from joulediff.model.run import Run, Setting, SourceText

X, W = draw(16, 32), draw(32, 32, seed=1)

State = Mapping[str, Setting]


def product() -> Tensor:
    return tanh(X @ W)


def other_product() -> Tensor:
    use_fast = X @ W
    return tanh(use_fast)


def runs(a: State, b: State, places: Mapping[str, str] | None = None, step: Any = product) -> Pair[Run]:
    return Pair(
        record(step, costs({"mm": 4.0}), state=a, state_places=places or {}), record(step, costs({"mm": 2.0}), state=b)
    )


def compare(a: State, b: State, places: Mapping[str, str] | None = None) -> Comparison:
    return comparison_of(*runs(a, b, places))


def leaves(a: State, b: State, places: Mapping[str, str] | None = None) -> tuple[Leaf, ...]:
    return differing_leaves(compare(a, b, places))


def test_one_attribute_in_many_layers_is_one_leaf() -> None:
    a: State = {f"net.blocks.{n}.fast": False for n in range(12)} | {"net.depth": 12}
    b: State = {f"net.blocks.{n}.fast": True for n in range(12)} | {"net.depth": 12}
    (found,) = leaves(a, b)
    assert (found.name, found.value_a, found.value_b, len(found.paths)) == ("fast", False, True, 12)
    assert found.paths == found.paths_b
    assert describe_leaf(found) == "net.blocks.0.fast is False in A and True in B (and at 11 more paths)"


def test_a_value_and_the_attribute_behind_its_property_are_one_leaf() -> None:
    a: State = {"m.config._attn_implementation": "eager", "impl": "eager", "m.attn_implementation": "eager"}
    b: State = dict.fromkeys(a, "sdpa")
    (found,) = leaves(a, b)
    assert set(found.paths) == set(a)


def test_a_leaf_has_the_name_in_the_users_line() -> None:
    a, b = runs({"m._kind": "x"}, {"m._kind": "y"}, {"m._kind": "p.py:2:build"})
    named = replace(a, sources=(SourceText("p.py", 2, "m = Model(kind='x')"),))
    assert [leaf.name for leaf in differing_leaves(comparison_of(named, b))] == ["kind"]
    assert [leaf.name for leaf in differing_leaves(comparison_of(a, b))] == ["_kind"]


def test_two_switches_are_two_leaves_and_copies_of_a_number_are_one() -> None:
    a: State = {"m.cache": True, "m.fused": True, "m.width": 1000, "m.head.out": 1000, "n": 4000}
    b: State = {"m.cache": False, "m.fused": False, "m.width": 1024, "m.head.out": 1024, "n": 4096}
    found = [leaf.name for leaf in leaves(a, b)]
    assert found[:2] == ["cache", "fused"] and set(found[2:]) == {"width", "n"}


def test_two_differences_of_one_name_are_told_apart() -> None:
    a: State = {"m.near.p": 0.5, "m.far.drop.p": 0.1, "m.far.out.drop.p": 0.2}
    b: State = {"m.near.p": 0.0, "m.far.drop.p": 0.0, "m.far.out.drop.p": 0.0}
    assert [leaf.name for leaf in leaves(a, b)] == ["p", "drop.p", "m.far.out.drop.p"]


def test_nothing_differs_from_itself() -> None:
    state: State = {"m.p": 0.1, "m.x": None, "m.name": "gelu"}
    assert leaves(state, state) == ()
    comparison = compare(state, {**state, "m.p": 0.1 + 1e-17})
    assert differing_leaves(comparison) == ()
    assert find_state(make_subject(comparison, region_of(comparison, "mm"), "a")) == []


def test_a_recording_without_state_has_no_leaves() -> None:
    assert leaves({}, {"m.p": 0.1}) == ()


def test_a_number_and_a_switch_of_the_same_value_differ() -> None:
    (found,) = leaves({"m.workers": 1}, {"m.workers": True})
    assert (found.value_a, found.value_b) == (1, True)


def test_paths_are_paired_by_their_ends_if_a_variable_has_another_name() -> None:
    a: State = {"model.config.use_cache": True, "model.config.layers": 2, "model.training": False, "scale": 2}
    b: State = {"net.config.use_cache": False, "net.config.layers": 2, "net.training": False, "scale": 2}
    assert [(pair.a, pair.b) for pair in pair_paths(a, b)] == [
        ("model.config.use_cache", "net.config.use_cache"),
        ("model.config.layers", "net.config.layers"),
        ("model.training", "net.training"),
        ("scale", "scale"),
    ]
    (found,) = leaves(a, b)
    assert (found.name, found.paths, found.paths_b) == (
        "use_cache",
        ("model.config.use_cache",),
        ("net.config.use_cache",),
    )
    assert found.paths_of("b") == ("net.config.use_cache",)


def test_a_model_inside_of_a_wrapper_is_the_same_model() -> None:
    a: State = {"model.config.x": 1, "model.config.y": True, "model.config.z": "a"}
    b: State = {"self.inner.config.x": 1, "self.inner.config.y": False, "self.inner.config.z": "a", "self.size": 3}
    (found,) = leaves(a, b)
    assert found.paths_b == ("self.inner.config.y",)


def test_each_path_is_paired_once() -> None:
    a: State = {"model.p": 1, "teacher.p": 2, "model.q": 1, "teacher.q": 2}
    b: State = {"net.p": 3, "net.q": 3}
    pairs = pair_paths(a, b)
    assert len({pair.b for pair in pairs}) == len(pairs) == 2


PLACES = {"opt.defaults['fused']": "test_state.py:1:build"}


def test_the_users_lines_come_first_and_numbers_last() -> None:
    a: State = {"m.size": 8, "m.mode": "x", "opt.defaults['fused']": False}
    b: State = {"m.size": 16, "m.mode": "y", "opt.defaults['fused']": True}
    found = leaves(a, b, PLACES)
    assert [leaf.name for leaf in found] == ["fused", "mode", "size"]
    assert found[0].is_written and not found[1].is_written
    assert found[0].place_a is not None and found[0].place_a.line == 1
    assert found[0].place_b is None


def test_names_that_the_recorded_code_reads_come_before_others() -> None:
    a: State = {"m.alpha": True, "m.use_fast": True}
    b: State = {"m.alpha": False, "m.use_fast": False}
    source = (SourceText("lib.py", 7, "if self._use_fast:"),)
    found = differing_leaves(comparison_of(*(replace(run, sources=source) for run in runs(a, b))))
    assert [leaf.name for leaf in found] == ["use_fast", "alpha"]


def test_the_line_that_makes_the_object_stands_for_a_default() -> None:
    places = {"opt": "test_state.py:3:build"}
    (found,) = leaves({"opt.defaults['fused']": None}, {"opt.defaults['fused']": True}, places)
    assert found.place_a is not None and found.place_a.line == 3
    assert not found.is_written


def subject_leads(comparison: Comparison, op: str = "mm") -> list[Any]:
    return find_state(make_subject(comparison, region_of(comparison, op), "a"))


def test_a_leaf_that_a_line_on_the_call_path_names_is_a_lead() -> None:
    a: State = {"m.use_fast": False, "m.other": 1}
    b: State = {"m.use_fast": True, "m.other": 2}
    comparison = comparison_of(*runs(a, b, step=other_product))
    subject = make_subject(comparison, region_of(comparison, "mm"), "a")
    lead = find_leads(subject)[0]
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("misconfiguration", "state", "use_fast")
    assert (lead.cause.value_a, lead.cause.value_b) == (False, True)
    assert lead.cause.evidence == ("m.use_fast is False in A and True in B",)
    assert lead.suggestion.startswith("Set use_fast to True; it is False")


def test_an_option_of_the_module_is_a_lead_for_its_operators_alone() -> None:
    a, b = runs({"m.attn.fast": False}, {"m.attn.fast": True})
    inside = Comparison(*(in_module(run, "attn") for run in (a, b)), comparison_of(a, b).regions)
    outside = Comparison(*(in_module(run, "mlp") for run in (a, b)), comparison_of(a, b).regions)
    assert [lead.cause.key for lead in subject_leads(inside)] == ["fast"]
    assert subject_leads(outside) == []


def in_module(run: Run, module: str) -> Run:
    return replace(run, ops=tuple(replace(op, module=module) for op in run.ops))


def test_an_option_of_the_optimizer_is_a_lead_for_its_operators() -> None:
    a, b = runs({"opt.param_groups[0]['foreach']": False}, {"opt.param_groups[0]['foreach']": None})
    stepping = [replace(run, ops=tuple(replace(op, phase="optimizer") for op in run.ops)) for run in (a, b)]
    (lead,) = subject_leads(Comparison(*stepping, comparison_of(a, b).regions))
    assert lead.cause.key == "foreach"
    assert lead.suggestion.startswith("Leave out foreach")


def test_what_the_user_sets_is_a_lead_where_nothing_else_differs() -> None:
    a, b = {"opt.defaults['fused']": False}, {"opt.defaults['fused']": True}
    (lead,) = subject_leads(compare(a, b, PLACES))
    assert lead.cause.key == "fused"
    assert lead.cause.location_a is not None and lead.cause.location_a.line == 1
    assert subject_leads(compare(a, b)) == []
    other = comparison_of(*(replace(run, settings={"torch.x": n}) for n, run in enumerate(runs(a, b, PLACES))))
    assert subject_leads(other) == []


def test_a_variable_of_a_library_that_holds_a_leaf_is_that_leaf() -> None:
    path = "opt.param_groups[0]['foreach']"
    sides = compare({path: False}, {path: True}, {path: "mine.py:5:build"})
    subject = make_subject(sides, region_of(sides, "mm"), "a")
    key = KeyVariable("group['foreach']", "attribute", False, True, None, None, None, None)
    lead = key_lead(subject, key, ("both run adam",))
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("misconfiguration", "state", "foreach")
    place = lead.cause.location_a
    assert place is not None and (place.file, place.line) == ("mine.py", 5)
    assert lead.changes and "Set foreach to True" in lead.suggestion
    other = key_lead(subject, replace(key, value_b=2), ())
    assert (other.cause.type, other.cause.key) == ("call_path", "group['foreach']")
