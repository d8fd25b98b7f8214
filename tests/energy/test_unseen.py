"""The part of a step's energy that belongs to no recorded operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from energy_builders import cpu_run, gpu_run
from joulediff.energy.ledger import open_books
from joulediff.energy.unseen import find_unseen
from joulediff.model.run import Pass
from joulediff.report.views.warnings import find_warnings


def test_kernels_without_an_operator_are_a_share_of_energy_and_time() -> None:
    run = gpu_run(("gemm", 6e-3, 0), ("graph", 1e-3, None), ("other", 1e-3, None), joules=5.0, rest_w=None)
    books = open_books(run)
    found = find_unseen(run, books)
    assert found is not None
    assert (found.kernels, found.name) == (2, "other")
    assert found.time_share == pytest.approx(0.25)
    assert found.energy == books.total([1, 2])
    assert found.energy is None or found.share == pytest.approx(found.energy.joules / 5.0)


def test_all_work_with_operators_is_nothing_unseen() -> None:
    run = cpu_run(1e-3, 2e-3)
    assert find_unseen(run, open_books(run)) is None
    module = replace(run, kernels=tuple(replace(k, op=None, join="module", module="net") for k in run.kernels))
    assert find_unseen(module, open_books(module)) is None, "a compiled module has a row of its own"


def test_a_run_without_captured_operators_says_nothing_unless_the_pass_ended() -> None:
    run = cpu_run(1e-3)
    loose = replace(run, ops=(), kernels=(replace(run.kernels[0], op=None, join="none"),), passes=())
    assert find_unseen(loose, open_books(loose)) is None
    captured = replace(loose, passes=(Pass("captured", "done", 0.1),))
    found = find_unseen(captured, open_books(captured))
    assert found is not None
    assert found.time_share == 1.0


def test_an_unmetered_run_has_its_share_of_the_time() -> None:
    run = replace(gpu_run(("gemm", 3e-3, 0), ("graph", 1e-3, None)), measurement=None)
    found = find_unseen(run, open_books(run))
    assert found is not None
    assert (found.share, found.energy, found.time_share) == (None, None, pytest.approx(0.25))
    assert found.weight == pytest.approx(0.25)
    (text,) = [each for each in find_warnings(run, open_books(run)) if "no recorded operator" in each]
    assert text.startswith("25% of the time of kernels")


def test_a_share_that_changes_nothing_is_no_warning() -> None:
    run = gpu_run(("gemm", 9e-3, 0), ("graph", 1e-6, None))
    assert find_unseen(run, open_books(run)) is not None
    assert not [each for each in find_warnings(run, open_books(run)) if "no recorded operator" in each]
