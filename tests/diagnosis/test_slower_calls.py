"""Programs with no line in common: host time is compared by the library's function that is called, and in all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import comparison_of
from host_builders import host_run
from joulediff.diagnosis.evidence.host.host_lines import HostLine, find_host_lines
from joulediff.diagnosis.evidence.host.host_stacks import longest_line, stacks_of_both
from joulediff.diagnosis.evidence.host.slower_calls import find_slower_calls
from joulediff.model.pair import Pair
from joulediff.model.run import Run

SAMPLE = ("random.py", "Random.sample")
CLASSES = """\
def step():
    batch = memory.sample(512)
    return learn(batch)


def sample(count):
    found = generator.sample(entries, count)
    for each in found:
        seen.add(each)
        counted.add(each)
    return found
"""
FUNCTIONS = """\
def update():
    loss = error(layers, draw(ring, rng))
    return loss


def draw(ring, rng):
    return stack(rng.sample(ring, 512))
"""
TOP, DRAWN = "batch = memory.sample(512)", "found = generator.sample(entries, count)"
OTHER_TOP, OTHER_DRAWN = "loss = error(layers, draw(ring, rng))", "return stack(rng.sample(ring, 512))"


def lean(drawing_ms: float, own_ms: float = 0.3, operators_ms: float = 6.0) -> Run:
    times = {
        (OTHER_TOP, OTHER_DRAWN, SAMPLE): drawing_ms,
        (OTHER_TOP, OTHER_DRAWN): own_ms,
        (OTHER_TOP, ("nn.py", "linear")): operators_ms,
    }
    return with_operators(host_run(FUNCTIONS, times), OTHER_TOP)


def with_operators(run: Run, text: str, **changes: Any) -> Run:
    """Return a run whose operators ran in a line."""
    at = next(at for at, frame in enumerate(run.frames) if run.line_text(frame.file, frame.line) == text)
    return replace(run, ops=tuple(replace(op, frame=at, **changes) for op in run.ops))


def wasteful(times: dict[tuple[object, ...], float]) -> Run:
    run = host_run(CLASSES, {**times, ("return learn(batch)", ("nn.py", "linear")): 6.0})
    return with_operators(run, "return learn(batch)")


def found(a: Run, b: Run) -> tuple[HostLine, ...]:
    return find_slower_calls(comparison_of(a, b), "a")


def test_a_function_that_both_call_and_that_takes_one_of_them_longer() -> None:
    a, b = wasteful({(TOP, DRAWN, SAMPLE): 2.5, (TOP, DRAWN): 0.2}), lean(0.5)
    assert find_host_lines(comparison_of(a, b), "a") == ()
    (line,) = found(a, b)
    assert (line.key, line.place.text, line.what) == ("generator.sample", DRAWN, "lib.random.Random.sample")
    assert (line.seconds_a, line.seconds_b) == pytest.approx((2.5e-3, 0.5e-3))
    assert line.excess_s == pytest.approx(2e-3) and line.share == pytest.approx(0.2)
    assert not line.runs_operators
    assert line.other is not None and line.other.text == OTHER_DRAWN


def test_the_cheap_side_has_none() -> None:
    a, b = wasteful({(TOP, DRAWN, SAMPLE): 2.5, (TOP, DRAWN): 0.2}), lean(0.5)
    assert find_slower_calls(comparison_of(a, b), "b") == ()


def test_a_function_that_only_one_side_calls_may_replace_another() -> None:
    assert found(wasteful({(TOP, DRAWN, ("numpy.py", "choice")): 2.5}), lean(2.4)) == ()


def test_python_code_of_the_users_own_that_takes_longer_than_all_of_the_other_side() -> None:
    loop = {(TOP, "seen.add(each)"): 1.5, (TOP, "counted.add(each)"): 1.4}
    (line,) = found(wasteful({**loop, (TOP, DRAWN, SAMPLE): 0.5}), lean(0.5))
    assert (line.key, line.place.line) == ("for each in found", 8)
    assert (line.seconds_a, line.seconds_b) == pytest.approx((2.9e-3, 0.3e-3))
    assert found(wasteful({**loop, (TOP, DRAWN, SAMPLE): 0.5}), lean(0.5, own_ms=2.8)) == ()


def test_of_a_line_that_makes_tensors_the_time_beyond_its_operators_counts() -> None:
    """The cheap program's line takes 1 ms for its operator, so the other 6 ms make the tensor that it is given."""
    times = {(TOP, DRAWN): 7.0, ("return learn(batch)",): 1.0}
    converting = with_operators(host_run(CLASSES, times), DRAWN, inputs=())
    b = with_operators(host_run(FUNCTIONS, {(OTHER_TOP,): 1.0}), OTHER_TOP)
    (line,) = found(converting, b)
    assert (line.key, line.place.text, line.runs_operators) == ("generator.sample", DRAWN, False)
    assert line.excess_s == pytest.approx(7e-3, rel=0.1), "6 ms, and 1 ms in the line without operators"


def test_lines_that_compute_are_left_to_the_evidence_on_operators() -> None:
    computing = with_operators(host_run(CLASSES, {(TOP, DRAWN): 7.0}), DRAWN)
    assert found(computing, with_operators(host_run(FUNCTIONS, {(OTHER_TOP,): 1.0}), OTHER_TOP)) == ()


def test_the_line_with_the_most_time_beyond_its_operators() -> None:
    """Six of seven milliseconds are those of an operator that the host runs itself."""
    run = with_operators(host_run(CLASSES, {("return learn(batch)",): 7.0, (TOP, DRAWN): 2.0}), "return learn(batch)")
    kernels = tuple(replace(kernel, kind="cpu", duration_s=6e-3) for kernel in run.kernels[:1])
    for kernels_of_run, text in ((kernels, DRAWN), ((), "return learn(batch)")):
        changed = replace(run, kernels=kernels_of_run)
        stacks = stacks_of_both(Pair(changed, changed))
        assert stacks is not None
        found = longest_line(changed, stacks.a)
        assert found is not None and changed.line_text(found.file, found.line) == text
