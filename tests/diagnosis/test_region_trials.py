"""Trials answered from a table: the changes that explain a difference, and those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import EndedProgram, LiveProgram, apply, comparison_of, costs, draw, record, region_of
from invented import Tensor, cat, gelu, gelu_decomposed, tanh
from joulediff.diagnosis.build import make_cost, saved
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.lead import Change, Lead
from joulediff.diagnosis.trials.each_lead import explain, try_each_lead, try_settings_together
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.diagnosis.trials.skip_sync import measure_without_sync
from joulediff.diagnosis.trials.transplant import Transplant
from joulediff.frameworks.jobs import OTHER, JobCost
from joulediff.model.diff import Thresholds
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Cause, Trial
from joulediff.model.pair import Pair, SideName
from joulediff.model.place import Place
from joulediff.model.signature import Signature, difference
from run_builders import energy, measurement

X, W = draw(16, 32), draw(32, 32, seed=1)
LAID = W.t().contiguous().t()
LIMITS = Thresholds()


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


def product() -> Tensor:
    return tanh(X @ W)


def product_of_laid() -> Tensor:
    return tanh(X @ LAID)


LEFT, RIGHT = Tensor(W.array[:, :16].copy()), Tensor(W.array[:, 16:].copy())


def product_in_parts() -> Tensor:
    return tanh(cat([X @ LEFT, X @ RIGHT], -1))


def product_with_what_is_made() -> Tensor:
    return tanh(X @ cat([LEFT, RIGHT], -1))


def make(
    answers: Mapping[str, Any],
    *,
    steps: tuple[Any, Any] = (product, product),
    dear: tuple[float, float] = (10.0, 4.0),
    program: type[LiveProgram] = LiveProgram,
    alone: bool = False,
    op: str = "mm",
    **changes: Any,
) -> tuple[RegionTrials, LiveProgram]:
    """Return trials of the product of two programs, which costs 10 J in A and 4 J in B."""
    a, b = (record(step, costs({"mm": j}), **changes) for step, j in zip(steps, dear, strict=True))
    sides = comparison_of(a, b)
    mine = program(a, answers)
    live: dict[SideName, Any] = {"a": mine} if alone else {"a": mine, "b": LiveProgram(b)}
    return RegionTrials(sides, "a", region_of(sides, op), live, LIMITS), mine


def setting(name: str, value: Any = True) -> Change:
    return Change(f"torch.{name} = {value}", settings=((f"torch.{name}", value),))


CALLS = Change("the calls of the other side", calls=True)
STRIDES = Change("inputs with the strides of the other side", layout=("strides",))
ONE, TWO, THREE = setting("one"), setting("two"), setting("three")


def test_a_change_that_brings_the_energy_down_explains() -> None:
    trials, _ = make({"torch.one = True": 4.1})
    trial = trials.try_changes([ONE])
    assert trial.explains and trial.note is None
    assert trial.before is not None and trial.after is not None and trial.other is not None
    assert (trial.before.joules, trial.after.joules, trial.other.joules) == pytest.approx((10.0, 4.1, 4.0))
    assert trial.kernels_before == ("aten::mm_kernel",) and trial.kernels_after == ("changed_kernel",)
    assert trials.made == (trial,)


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (10.0, "the energy stays as it is"),
        (11.0, "the energy stays as it is"),
        (7.0, "the energy falls, but not to the other side's"),
        ("out of memory", "out of memory"),
        (JobCost(energy(4.0), 1e-3, difference=0.3), "the outputs change with it"),
        (JobCost(energy(4.0), 1e-3, difference=float("nan")), "the outputs change with it"),
    ],
)
def test_what_does_not_explain_says_why(answer: Any, note: str) -> None:
    trials, _ = make({"torch.one = True": answer})
    trial = trials.try_changes([ONE])
    assert not trial.explains
    assert trial.note == note


def test_a_region_that_cannot_be_measured_unchanged_is_reported() -> None:
    trials, _ = make({"torch.one = True": 4.0, "own": "the meter fell silent"})
    trial = trials.try_changes([ONE])
    assert not trial.explains and trial.before is None
    assert trial.note == "as it is, it could not be measured: the meter fell silent"


def test_a_program_that_ends_is_a_trial_that_failed() -> None:
    trials, _ = make({}, program=EndedProgram)
    trial = trials.try_changes([CALLS])
    assert not trial.explains and trial.note == "the program ended"
    assert trials.repeats() is None


def test_what_comes_close_is_looked_at_once_more() -> None:
    trials, program = make({"torch.one = True": [4.8, 4.2]})
    assert trials.try_changes([ONE]).explains
    assert program.asked.count("torch.one = True") == 2
    assert len(trials.made) == 1


def test_what_stays_close_after_a_second_look_does_not_explain() -> None:
    trials, program = make({"torch.one = True": 4.8})
    assert not trials.try_changes([ONE]).explains
    assert program.asked.count("torch.one = True") == 2


def test_a_clear_trial_is_not_repeated() -> None:
    trials, program = make({"torch.one = True": 7.0})
    trials.try_changes([ONE])
    assert program.asked.count("torch.one = True") == 1


def test_one_setting_alone_explains() -> None:
    trials, program = make({"torch.one = True": 10.0, "torch.two = True": 4.0, "torch.three = True": 4.0})
    assert explain(trials, [ONE, TWO, THREE]) == (TWO,)
    assert not any("three" in key for key in program.asked)


def test_two_settings_only_together() -> None:
    both = "torch.one = True and torch.three = True"
    everything = "torch.one = True and torch.three = True and torch.two = True"
    alone = dict.fromkeys(("torch.one = True", "torch.two = True", "torch.three = True"), 10.0)
    pairs = dict.fromkeys(("torch.three = True and torch.two = True", "torch.one = True and torch.two = True"), 10.0)
    trials, _ = make({**alone, **pairs, both: 4.0, everything: 4.0})
    assert explain(trials, [ONE, TWO, THREE]) == (ONE, THREE)
    best = [trial for trial in trials.made if trial.explains][-1]
    assert best.change == "torch.one = True and torch.three = True"


def test_nothing_explains() -> None:
    keys = ("torch.one = True", "torch.two = True", "torch.one = True and torch.two = True")
    trials, _ = make(dict.fromkeys(keys, 10.0))
    assert explain(trials, [ONE, TWO]) == ()
    assert explain(trials, []) == ()
    assert [trial.explains for trial in trials.made] == [False, False, False]


def test_a_failure_does_not_end_the_search() -> None:
    trials, _ = make({"torch.one = True": "crashed", "torch.two = True": 4.0})
    assert explain(trials, [ONE, TWO]) == (TWO,)
    assert trials.made[0].note == "crashed"


def test_the_same_change_is_not_tried_twice() -> None:
    trials, program = make({"torch.one = True": 10.0})
    assert trials.try_changes([ONE]) == trials.try_changes([ONE])
    assert program.asked.count("torch.one = True") == 1 and len(trials.made) == 1


def test_the_other_sides_calls_bring_everything_with_them() -> None:
    trials, program = make({"layout": 10.0, "calls": 10.0}, steps=(product_of_laid, product))
    assert explain(trials, [STRIDES, CALLS]) == ()
    assert program.asked.count("calls") == 1


def test_a_layout_is_tried_on_the_programs_own_operators() -> None:
    trials, program = make({"layout": 4.0}, steps=(product_of_laid, product))
    assert trials.try_changes([STRIDES]).explains
    assert "layout" in program.asked


def test_a_layout_that_comes_about_within_the_part_cannot_be_fed() -> None:
    trials, _ = make({"layout": 4.0})
    trial = trials.try_changes([STRIDES])
    assert not trial.explains
    assert trial.note == "the layout comes about within the region itself"


LENT = "with a tensor that only the other program has"


def importing(answer: Any = 4.0, **changes: Any) -> tuple[RegionTrials, LiveProgram, list[str]]:
    """Return trials of a product in parts, where the other program has the matrix in one piece."""
    trials, program = make({"calls": answer}, steps=(product_in_parts, product), dear=(5.0, 4.0), **changes)
    return trials, program, trials.live["b"].asked if "b" in trials.live else []  # type: ignore[attr-defined]


def test_what_only_the_other_program_was_given_is_imported() -> None:
    trials, program, other = importing()
    trial = trials.try_changes([CALLS])
    assert trial.explains and trial.note == LENT
    matrix = trials.comparison.b.ops[0].inputs[1]
    assert f"export {matrix}" in other
    assert program.asked.index("import what was exported") < program.asked.index("calls")


def test_with_imported_tensors_outputs_must_be_known_to_stay() -> None:
    unknown = JobCost(energy(4.0, 0.005, "replayed"), 1e-3, ("mm",), None)
    assert not importing(unknown)[0].try_changes([CALLS]).explains
    assert not importing(replace(unknown, difference=0.5))[0].try_changes([CALLS]).explains
    assert importing(replace(unknown, difference=1e-6))[0].try_changes([CALLS]).explains


def test_a_trial_after_one_with_imported_tensors_is_as_any_other() -> None:
    trials, _, _ = importing("it failed")
    assert trials.try_changes([CALLS]).note == "it failed"
    assert trials.try_changes([STRIDES]).note == "the layout comes about within the region itself"
    assert trials.imported == 0


def test_a_program_that_exports_nothing_says_why() -> None:
    trials, program, _ = importing()
    trials.live["b"].export_error = "it reads 900 MB that only the other program has"  # type: ignore[attr-defined]
    trial = trials.try_changes([CALLS])
    assert not trial.explains and trial.note == "it reads 900 MB that only the other program has"
    assert "calls" not in program.asked


def test_a_recording_exports_nothing() -> None:
    trials, program, _ = importing("it reads a tensor that this program does not have there", alone=True)
    assert trials.try_changes([CALLS]).note == "it reads a tensor that this program does not have there"
    assert not any("import" in text for text in program.asked)


def test_tensors_that_the_other_program_computes_are_not_imported() -> None:
    trials, _ = make({"calls": 4.0}, steps=(product_in_parts, product_with_what_is_made), dear=(5.0, 4.0))
    trials.try_changes([CALLS])
    assert not any("export" in text for text in trials.live["b"].asked)  # type: ignore[attr-defined]


def test_what_both_programs_have_is_not_imported() -> None:
    trials, _ = make({"calls": 1.0}, steps=(by_hand, built_in), op="gelu")
    trials.try_changes([CALLS])
    assert not any("export" in text for text in trials.live["b"].asked)  # type: ignore[attr-defined]


def test_outputs_that_are_brought_together_are_compared() -> None:
    trials, _, _ = importing()
    job = Transplant(trials.comparison, trials.region, "a").job(exact=False)
    names = [trials.comparison.a.ops[op].name for op in job.collect]
    assert names == ["aten::mm", "aten::mm", "aten::cat"]
    assert len(job.compare) == 1


def test_other_calls_run_on_the_programs_own_tensors() -> None:
    jobs = []

    class Keeping(LiveProgram):
        def measure_job(self, job: Any, **options: Any) -> JobCost:
            jobs.append((job, options["as_other"]))
            return super().measure_job(job, **options)

    trials, _ = make({"calls": 1.0}, steps=(by_hand, built_in), op="gelu", program=Keeping)
    assert trials.try_changes([CALLS]).explains
    job, as_other = next((job, other) for job, other in jobs if job.run == OTHER)
    assert as_other
    assert [trials.comparison.b.ops[op].name for op in job.ops] == ["aten::gelu"]
    (feed,) = job.feeds
    assert trials.comparison.a.values[feed.own].producer is not None
    assert job.compare == tuple((b, a) for a, b in trials.region.outputs)
    own = next(job for job, _ in jobs if job.run != OTHER)
    assert own.ops == job.collect == trials.region.a


def test_tensors_that_do_not_suit_as_they_lie_are_given_as_the_other_side_has_them() -> None:
    trials, program = make({"calls": ["a view is not possible", 4.0]}, steps=(product_of_laid, product))
    assert trials.try_changes([CALLS]).explains
    assert program.asked.count("calls") == 2


def test_a_cheap_side_that_is_gone_has_its_recorded_energy() -> None:
    trials, _ = make({"torch.one = True": 4.0}, alone=True)
    assert trials.try_changes([ONE]).explains
    assert trials.other.energy is not None and trials.other.energy.joules == pytest.approx(4.0)


def test_without_the_program_nothing_can_be_measured() -> None:
    trials, _ = make({}, alone=True)
    trials.live = {}
    with pytest.raises(JoulediffError, match="the program cannot be run again"):
        _ = trials.before


def test_a_difference_that_is_there_again() -> None:
    trials, _ = make({})
    assert trials.repeats() is True
    assert trials.times == pytest.approx((1e-3, 4e-4))
    assert trials.repeats(with_inputs=False) is True


@pytest.mark.parametrize("again_j", [4.0, 4.1, 3.0])
def test_a_difference_that_is_not_there_again(again_j: float) -> None:
    trials, _ = make({"own": again_j})
    assert trials.repeats() is False


def test_a_difference_that_cannot_be_looked_at() -> None:
    trials, _ = make({"own": "crashed"})
    assert trials.repeats() is None


def test_an_estimate_is_measured_several_times_and_the_lowest_counts() -> None:
    rough = [JobCost(energy(joules, 0.3, "estimated"), 1e-3) for joules in (12.0, 9.0, 11.0)]
    trials, program = make({"own": rough})
    assert trials.before.energy is not None and trials.before.energy.joules == 9.0
    assert program.asked.count("own") == 3


def test_with_other_settings_the_part_is_looked_for_in_the_new_recording() -> None:
    trials, program = make({"torch.one = True": 4.0})

    def other() -> Tensor:
        return apply("sin", np.sin, X) * 3

    program.changed = record(other, costs({}))
    trial = trials.try_changes([ONE])
    assert not trial.explains
    assert trial.note == "with the change the region cannot be found again"


def test_outputs_under_other_settings_are_compared_by_their_signatures() -> None:
    trials, program = make({"torch.one = True": JobCost(energy(4.0), 1e-3)})
    trial = trials.try_changes([ONE])
    assert trial.explains and trial.difference == 0.0
    run = program.run
    near = tuple(replace(each, sum_abs=each.sum_abs * 1.0005) for each in run.signatures)
    trials, program = make({"torch.one = True": JobCost(energy(4.0), 1e-3)})
    program.changed = replace(run, signatures=near)
    assert trials.try_changes([ONE]).difference == pytest.approx(0.0005, rel=0.01)


@pytest.mark.parametrize(("seen", "told"), [(0.0, 0.0005), (0.003, 0.003), (float("nan"), float("nan")), (0.3, 0.3)])
def test_the_largest_difference_of_outputs_counts(seen: float, told: float) -> None:
    """The distances by signatures, to the cheap side and to the outputs before, and those of the tensors themselves."""
    trials, program = make({"torch.one = True": JobCost(energy(4.0), 1e-3, difference=seen)})
    near = tuple(replace(each, sum_abs=each.sum_abs * 1.0005) for each in program.run.signatures)
    program.changed = replace(program.run, signatures=near)
    trial = trials.try_changes([ONE])
    assert trial.difference == pytest.approx(told, rel=0.01, nan_ok=True)
    assert trial.explains is (told < 0.01)


def test_outputs_that_differ_from_the_programs_are_reported_although_they_equal_the_other_sides() -> None:
    trials, program = make({"torch.one = True": JobCost(energy(4.0), 1e-3, difference=None)})
    near = tuple(replace(each, sum_abs=each.sum_abs * 1.0005) for each in trials.comparison.b.signatures)
    comparison = trials.comparison
    trials.comparison = Comparison(comparison.a, replace(comparison.b, signatures=near), comparison.regions)
    program.changed = replace(program.run, signatures=near)
    assert trials.try_changes([ONE]).difference == pytest.approx(0.0005, rel=0.01)


SIGN = Signature(100, 0, 0, 0, 0, False, -1.0, 1.0, 10.0, 50.0, 40.0, 5.0, 20.0)


@pytest.mark.parametrize(
    ("other", "gap"),
    [
        (SIGN, 0.0),
        (replace(SIGN, sum_abs=50.5), 0.5 / 50.5),
        (replace(SIGN, sum_x=-10.0), 0.4),
        (replace(SIGN, sum_x2=44.0), 4.0 / 44.0 / 2),
        (replace(SIGN, sum_abs=0.0, sum_x=0.0, sum_x2=0.0), 1.0),
        (replace(SIGN, nans=1), 1.0),
        (replace(SIGN, negative_infs=2), 1.0),
        (replace(SIGN, count=99), None),
        (None, None),
    ],
)
def test_the_relative_difference_of_tensors(other: Signature | None, gap: float | None) -> None:
    assert difference(SIGN, other) == (None if gap is None else pytest.approx(gap))
    assert difference(other, SIGN) == (None if gap is None else pytest.approx(gap))


def test_what_a_change_saves_of_what_was_recorded() -> None:
    trial = Trial("x", energy(10.0), energy(4.0), energy(4.0), explains=True)
    found = saved(trial, energy(100.0))
    assert found is not None and found.joules == pytest.approx(60.0)
    assert saved(trial, None) is None
    assert saved(replace(trial, after=None), energy(1.0)) is None
    assert saved(replace(trial, before=energy(0.0)), energy(1.0)) is None


LINE = Place("p.py", 7, "step")


def waiting(a_j: float | None, *, place: Place | None = LINE) -> Trial | None:
    sides: Comparison = comparison_of(record(product, costs({"mm": 10.0})), record(product, costs({"mm": 4.0})))
    found = None if a_j is None else measurement(energy=energy(a_j))
    return measure_without_sync(sides, "a", place, {"a": LiveProgram(sides.a, without_sync=found)}, LIMITS)


def test_a_step_without_its_waits() -> None:
    trial = waiting(5.2)
    assert trial is not None and trial.explains and trial.change == "no wait in p.py:7"


@pytest.mark.parametrize(
    ("a_j", "note"),
    [
        (8.0, "the energy falls, but not to the other side's"),
        (11.0, "the energy stays as it is"),
        (None, "no wait there can be left out"),
    ],
)
def test_waits_that_are_not_the_reason(a_j: float | None, note: str) -> None:
    trial = waiting(a_j)
    assert trial is not None and not trial.explains and trial.note == note


def test_waits_in_no_place_are_not_tried() -> None:
    assert waiting(5.0, place=None) is None


def test_a_lead_that_cannot_be_tried_stands_beside_one_that_explains_nothing() -> None:
    trials, _ = make({"torch.one = True": 10.0})
    causes = [Cause("setting", key, "1", "2", None, None) for key in ("torch.one", "env.X")]
    leads = [Lead("misconfiguration", causes[0], (ONE,)), Lead("misconfiguration", causes[1], ())]
    cost = make_cost(trials.comparison, "a", Pair(energy(10.0), energy(4.0)), delta_j=6.0, times_s=Pair(None, None))
    draft = Draft(trials.comparison, LIMITS, "a", "mm", cost, leads[0], leads=tuple(leads), trials=trials)
    for make_trial in (try_each_lead, try_settings_together):
        after = make_trial(draft)
        assert (after.lead, after.confirmed) == (leads[0], False)
