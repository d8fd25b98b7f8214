"""The search for the smallest set of suspects that explains a difference, on a program that answers from a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.diagnosis.suspects.try_suspects import MAX_TRIALS, Explained, Search
from joulediff.frameworks.jobs import LiveProgram, Variant, VariantCost
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from run_builders import energy, measurement

WHOLE_J, OTHER_J = 10.0, 4.0
EMPTY = Run("a", None, "2026-01-01T00:00:00+00:00", "0")


@dataclass
class Table(LiveProgram):
    """A program whose changes save joules; those of `together` save them only if all are changed."""

    saves: Mapping[str, float] = field(default_factory=dict)
    together: tuple[tuple[str, ...], float] = ((), 0.0)
    outputs: Mapping[str, float | None] = field(default_factory=dict)
    fails: tuple[str, ...] = ()
    noise: float = 0.01
    tried: list[tuple[str, ...]] = field(default_factory=list)

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        names = tuple(variant.settings)
        self.tried.append(names)
        if any(name in self.fails for name in names):
            raise JoulediffError("it raised")
        saved_j = sum(self.saves.get(name, 0.0) for name in names)
        if self.together[0] and set(self.together[0]) <= set(names):
            saved_j += self.together[1]
        differences = [self.outputs.get(name, 0.0) for name in names]
        unknown = any(each is None for each in differences)
        distance = None if unknown else max(each or 0.0 for each in differences)
        before, after = WHOLE_J * 1.02, WHOLE_J * 1.02 - saved_j
        cost = VariantCost(
            energy(before, before * self.noise),
            energy(after, after * self.noise),
            difference=distance,
            is_measured=True,
        )
        return cost, EMPTY


@dataclass
class Cheap(LiveProgram):
    joules: float

    def measure(self, **_: object) -> Measurement:  # type: ignore[override]
        return measurement(energy=energy(self.joules))


def explain(program: Table, count: int) -> Explained:
    suspects = tuple(Suspect(f"s{at} changed", f"s{at}", settings={f"s{at}": True}) for at in range(count))
    search = Search(
        Differences(suspects), program, Cheap(OTHER_J), energy(WHOLE_J), energy(OTHER_J), 0.01, 1e-3, ProgressListener()
    )
    return search.explain()


def chosen(found: Explained) -> list[tuple[int, ...]]:
    return [each.chosen for each in found.causes]


def test_the_first_suspect_that_explains_ends_the_search() -> None:
    program = Table(saves={"s1": 6.0})
    found = explain(program, 3)
    assert found.is_all and chosen(found) == [(1,)]
    assert program.tried == [("s0",), ("s1",)]
    assert found.causes[0].trial.explains and found.causes[0].trial.of_step
    assert found.causes[0].saved_j == pytest.approx(6.0, rel=0.05)


def test_two_causes_are_found_apart_and_proven_together() -> None:
    found = explain(Table(saves={"s0": 4.0, "s2": 2.0}), 3)
    assert found.is_all and chosen(found) == [(0,), (2,)]
    assert found.together is not None and found.together.trial.explains


def test_suspects_that_act_only_together_are_one_cause() -> None:
    found = explain(Table(together=(("s0", "s2"), 6.0)), 3)
    assert found.is_all and chosen(found) == [(0, 2)]


@pytest.mark.parametrize("cause", [0, 5, 11])
def test_one_of_many_is_found_by_halving(cause: int) -> None:
    program = Table(saves={f"s{cause}": 6.0})
    found = explain(program, 12)
    assert found.is_all and chosen(found) == [(cause,)]
    assert len(program.tried) <= MAX_TRIALS


def test_a_change_of_outputs_explains_nothing() -> None:
    found = explain(Table(saves={"s0": 6.0}, outputs={"s0": 0.5}), 1)
    assert not found.is_all
    assert [each.outcome for each in found.causes] == ["outputs differ"]


def test_outputs_that_were_not_compared_confirm_nothing() -> None:
    found = explain(Table(saves={"s0": 6.0}, outputs={"s0": None}), 1)
    assert not found.is_all and [each.outcome for each in found.causes] == ["outputs differ"]


def test_a_change_that_fails_is_passed_over() -> None:
    found = explain(Table(saves={"s1": 6.0}, fails=("s0",)), 2)
    assert chosen(found) == [(1,)]


def test_noise_is_no_saving() -> None:
    found = explain(Table(saves={"s0": 1.5}, noise=0.2), 1)
    assert not found.causes and not found.is_all


def test_a_small_part_of_the_difference_is_no_cause() -> None:
    assert not explain(Table(saves={"s0": 0.3}, noise=1e-4), 1).causes


def test_a_part_of_the_difference_is_a_cause_of_a_part() -> None:
    found = explain(Table(saves={"s0": 3.0}), 2)
    assert not found.is_all and chosen(found) == [(0,)]


def test_an_unclear_change_is_measured_longer() -> None:
    program = Table(saves={"s0": 5.0}, noise=0.6)
    explain(program, 1)
    assert program.tried == [("s0",), ("s0",)]


def test_a_part_alone_does_not_hide_what_explains_together() -> None:
    found = explain(Table(saves={"s0": 1.0}, together=(("s0", "s1"), 5.0)), 2)
    assert found.is_all and chosen(found) == [(0, 1)]


@pytest.mark.parametrize(("now_j", "explains"), [(OTHER_J, True), (1.0, False)])
def test_a_machine_that_has_drifted_is_measured_again(now_j: float, explains: bool) -> None:
    suspects = (Suspect("s0 changed", "s0", settings={"s0": True}),)
    # Recorded at twice the energy that the program takes now.
    search = Search(
        Differences(suspects),
        Table(saves={"s0": 6.0}),
        Cheap(now_j),
        energy(2 * WHOLE_J),
        energy(OTHER_J),
        0.01,
        1e-3,
        ProgressListener(),
    )
    assert search.explain().is_all == explains
