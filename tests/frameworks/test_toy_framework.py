"""A framework that the package has never heard of is recorded, matched and diffed, with causes and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulediff
import toyframework as toy
from joulediff.diagnosis.compare import diagnose
from joulediff.frameworks.framework import framework_of, register, short_name, switches_of, unregister
from joulediff.measuring.meters import MeterSet
from joulediff.model.diff import Diff
from joulediff.model.run import Run
from joulediff.session.live_program import LocalProgram
from replay_fakes import CardMeter
from toyframework.support import FAST_MATH, FRAMEWORK, changed

HERE = Path(__file__)
Step = Callable[[], Any]
NUMBERS = np.random.default_rng(0).normal(size=(3, 32, 32)) / 32


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(FRAMEWORK)
    try:
        yield
    finally:
        unregister(FRAMEWORK)


def build_wasteful() -> Step:
    toy.set_fast_math(False)
    x, weight, bias = toy.array(NUMBERS[0]), toy.array(NUMBERS[1].T.copy()).t(), toy.array(NUMBERS[2])
    return lambda: toy.exp(toy.add(toy.matmul(x, weight), bias))


def build_lean() -> Step:
    toy.set_fast_math(True)
    x, weight, bias = toy.array(NUMBERS[0]), toy.array(NUMBERS[1]), toy.array(NUMBERS[2])
    return lambda: toy.exp(toy.add(toy.matmul(x, weight), bias))


def record(build: Callable[[], Step], **options: Any) -> Run:
    facts = {"label": build.__name__, "clock": toy.clock, "root": HERE.parent, "seconds": 2, **options}
    step = build()
    with MeterSet([CardMeter(toy.card)]) as meters:
        return joulediff.record(step, meter=meters, **facts)


@pytest.fixture(scope="module")
def diff() -> Diff:
    register(FRAMEWORK)
    try:
        return joulediff.diff(record(build_wasteful), record(build_lean))
    finally:
        unregister(FRAMEWORK)


class InMode:
    """A program whose own `fast_math` holds while it is tried: both share this process."""

    def __init__(self, program: LocalProgram, fast_math: bool) -> None:
        self._program, self._settings = program, {FAST_MATH: fast_math}

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            with changed(self._settings):
                return getattr(self._program, name)(*args, **options)

        return call


def line_with(text: str) -> int:
    return next(at for at, line in enumerate(HERE.read_text().splitlines(), 1) if text in line)


def test_its_programs_are_recorded() -> None:
    run = record(build_wasteful)
    assert [(each.name, each.status) for each in run.passes] == [
        (name, "done") for name in ("metered", "sampled", "traced", "captured", "replayed")
    ]
    assert [op.name for op in run.ops] == ["toy::matmul", "toy::add", "toy::exp"]
    assert [kernel.name for kernel in run.kernels] == ["gemm_strided", "add", "exp_exact"]
    assert run.settings[FAST_MATH] is False
    assert run.measurement is not None and run.measurement.trustworthy, run.measurement and run.measurement.warnings
    for op in run.ops:
        (frame,) = [each for each in run.call_path(op.id) if each.owner is None]
        assert (frame.file, frame.line) == (HERE.name, line_with("return lambda: toy.exp"))
        (replay,) = run.replays_of(op.id)
        work = toy.KERNELS[run.kernels[op.id].name]
        assert replay.energy_j == pytest.approx(work.energy_j(), rel=0.02)


def test_an_input_of_other_strides_is_found(diff: Diff) -> None:
    (found,) = [each for each in diff.findings if each.cause.type == "layout"]
    assert found.region == "matmul"
    assert (found.expensive, found.cause.key) == ("a", "strides")
    assert found.work.kernels_a == ("gemm_strided",) and found.work.kernels_b == ("gemm",)
    assert found.cost.delta_j == pytest.approx(toy.KERNELS["gemm"].energy_j() + 2e-3 * toy.card.idle_w, rel=0.1)


def test_a_switch_and_the_line_that_sets_it_are_told_beside_the_findings(diff: Diff) -> None:
    (found,) = diff.also_differs
    assert (found.name, found.a, found.b) == (FAST_MATH, False, True)
    assert found.location_a is not None and found.location_b is not None
    assert found.location_a.line == line_with("toy.set_fast_math(False)")
    assert found.location_b.text == "toy.set_fast_math(True)"


def test_work_that_is_the_same_is_no_finding(diff: Diff) -> None:
    assert len(diff.findings) == 2
    assert "add" not in {found.region for found in diff.findings}


def test_causes_are_confirmed_by_trials() -> None:
    found: list[Diff] = []

    def compare(a: LocalProgram, b: LocalProgram) -> None:
        a.take_other(b.run)
        b.take_other(a.run)
        found.append(diagnose(a.run, b.run, live={"a": InMode(a, False), "b": InMode(b, True)}))

    record(build_wasteful, then=lambda a: record(build_lean, then=lambda b: compare(a, b)))
    for finding in found[0].findings:
        assert finding.proof.confirmed, finding.proof.confirmation
    assert {finding.cause.type for finding in found[0].findings} == {"layout", "setting"}


def test_names_of_a_framework_are_known_while_it_is_registered() -> None:
    assert framework_of("toy::matmul") is FRAMEWORK
    assert short_name("toy::matmul") == "matmul"
    assert switches_of(FAST_MATH) is FRAMEWORK.switches
    unregister(FRAMEWORK)
    try:
        assert framework_of("toy::matmul") is None
        assert short_name("toy::matmul") == "toy::matmul"
        assert switches_of(FAST_MATH) is None
    finally:
        register(FRAMEWORK)
