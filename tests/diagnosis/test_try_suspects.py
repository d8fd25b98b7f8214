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
from joulediff.pysource.edits.edit import Edit, Patch
from joulediff.pysource.source_files import SourceFile
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


def edited(*sizes: int, needs: dict[int, tuple[int, ...]] | None = None, lines: int = 60) -> Differences:
    """Return edits of a program, each of which puts this many lines in place of one; some need others."""
    text = "".join(f"x{at} = {at}\n" for at in range(lines))
    starts = [text.index(f"x{at} ") for at in range(lines)]
    edits = tuple(
        Edit(
            "value" if size == 1 else "code",
            *("p.py", at + 1, at + 1, "q.py", at + 1, f"s{at}", "", "1", "2", "step", (needs or {}).get(at, ()), ""),
            (Patch("p.py", starts[at], starts[at + 1] - 1, "\n".join(["y = 1"] * size)),),
        )
        for at, size in enumerate(sizes)
    )
    suspects = tuple(Suspect(f"s{at} changed", f"s{at}", edit=at) for at in range(len(sizes)))
    return Differences(suspects, (SourceFile("", "p.py", text),), (), edits)


@dataclass
class BySource(Table):
    """A program that saves joules for each edit of its source."""

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        lines = variant.files[0].text.splitlines()
        names = {f"s{at}": True for at in range(60) if f"x{at} = {at}" not in lines}
        return Table.try_variant(self, Variant(settings=names), seconds=seconds)


def explain_edits(program: Table, differences: Differences) -> Explained:
    cheap = Cheap(OTHER_J)
    return Search(
        differences, program, cheap, energy(WHOLE_J), energy(OTHER_J), 0.01, 1e-3, ProgressListener()
    ).explain()


def test_programs_that_are_written_differently_have_no_cause_by_all_of_their_edits() -> None:
    program = BySource(together=(("s0", "s1", "s2"), 6.0))
    found = explain_edits(program, edited(11, 11, 11))
    assert found.causes == () and not found.is_all
    assert all(len(each) == 1 for each in program.tried)


def test_a_small_edit_between_programs_that_are_written_differently_is_tried() -> None:
    program = BySource(saves={"s3": 6.0})
    found = explain_edits(program, edited(11, 11, 11, 1))
    assert found.is_all and chosen(found) == [(3,)]


def test_the_lines_that_an_edit_needs_count() -> None:
    differences = edited(1, 30, needs={0: (1,)})
    assert (differences.lines_of([0]), differences.lines_of([1])) == (31, 30)
    found = explain_edits(BySource(saves={"s0": 6.0, "s1": 6.0}), differences)
    assert found.causes == ()


def test_many_edits_that_explain_only_together_name_no_cause() -> None:
    names = ("s0", "s1", "s2", "s3")
    assert explain_edits(BySource(together=(names, 6.0)), edited(1, 1, 1, 1)).causes == ()
    found = explain_edits(BySource(together=(names[:3], 6.0)), edited(1, 1, 1, 1))
    assert found.is_all and chosen(found) == [(0, 1, 2)]
