"""The sampled pass: the lines of a step, their source, and the frames they share with operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive_runs import small_run
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.run import Frame, HostSample, Sampling
from joulediff.session.sample_host import HostTimes, add_samples, sample_host


def busy() -> int:
    total = 0
    for number in range(5_000):
        total += number
    return total


def test_the_lines_of_a_step_are_found_with_their_time() -> None:
    found = sample_host(busy, root=Path(__file__).parent, seconds=0.2)
    assert found.sampling.steps > 10
    assert found.sampling.step_s > 0 and found.sampling.plain_step_s > 0
    assert {found.frames[each.frame].function for each in found.samples if each.frame is not None} == {"busy"}
    assert {frame.file for frame in found.frames} == {Path(__file__).name}
    assert 0.5 < sum(each.time_s for each in found.samples) / found.sampling.step_s < 1.1


def test_samples_share_the_frames_of_operators() -> None:
    run = small_run()
    frames = (
        Frame("step.py", 3, "step", None, None),
        Frame("step.py", 9, "clean", None, 0),
        Frame("torch/nn/modules.py", 42, "forward", "torch", 0),
    )
    samples = (HostSample(1, "gc", 0.5, 0.5, 1), HostSample(2, "line", 0.1, 0.1, 9), HostSample(None, "line", 0, 0, 1))
    found = add_samples(run, HostTimes(Sampling(1, 1e-3, 1.0, 1.0), samples, frames, {}), source=False)
    assert found.frames == (*run.frames, frames[1])
    assert [each.frame for each in found.host_samples] == [2, 1, None]
    assert found.sources == run.sources


@pytest.mark.parametrize(("step_s", "calls"), [(None, 4), (1.0, 1)])
def test_a_step_that_takes_longer_than_the_pass_is_sampled_once(step_s: float | None, calls: int) -> None:
    clock, called = FakeClock(), []

    def step() -> None:
        called.append(1)
        clock.sleep(1.0)

    found = sample_host(step, root=Path(), seconds=0.2, step_s=step_s, clock=clock)
    assert found.sampling.steps == 1
    assert found.sampling.plain_step_s == pytest.approx(1.0)
    assert len(called) >= calls
    assert step_s is None or len(called) == 1
