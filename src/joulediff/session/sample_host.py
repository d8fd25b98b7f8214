"""The sampled pass: the host time of a step by line and call path.

Sampled and plain steps alternate, so that their times show the overhead of sampling. A step that takes longer than the
whole pass is sampled once, and compared with its time in the metered pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from joulediff.frameworks.framework import source_hints
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.repeater import Repeater
from joulediff.measuring.stack_sampler import PERIOD_S, StackSampler, why_not_sampled
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Frame, HostSample, Run, Sampling
from joulediff.pysource.call_path import read_sources
from joulediff.pysource.programs import Step

# Half a second has 500 samples: a line that takes 2 % of a step has about ten.
MAX_SECONDS = 0.5
# The part of the metered pass's time, so that a short recording stays short.
SHARE_OF_METERED = 0.25
ROUNDS = 4
# A round lasts at least this long.
LEAST_S = 1e-4
# Plain steps only give the mean time of a step, which needs fewer of them.
PLAIN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The result of the sampled pass. Samples refer to `frames`; `files` has the real path of each of their files."""

    sampling: Sampling
    samples: tuple[HostSample, ...]
    frames: tuple[Frame, ...]
    files: Mapping[str, str]


def sample_host(
    step: Step, *, root: Path, seconds: float, step_s: float | None = None, clock: Clock | None = None
) -> HostTimes:
    """Return the host time of a step, sampled for about `seconds`; raises JoulediffError where that is impossible.

    `step_s` is the time of the step, if it was measured before.
    """
    if (why := why_not_sampled()) is not None:
        raise JoulediffError(why)
    clock = clock or RealClock()
    sampler = StackSampler(root=root, hints=source_hints())
    rounds = _Rounds(Repeater(lambda: sampler.call(step), clock=clock), clock)
    each_s = min(MAX_SECONDS, seconds) / ROUNDS
    plain, sampled = _Stretch(), _Stretch()
    if step_s is None:
        rounds.repeater.warm_up()
    else:
        rounds.repeater.start(step_s)
        plain = _Stretch(step_s, 1) if step_s >= each_s * ROUNDS else plain
    is_known = plain.steps > 0
    for _ in range(ROUNDS):
        if not is_known:
            plain += rounds.run(PLAIN_SHARE * each_s)
        with sampler.running():
            sampled += rounds.run(each_s)
        if sampled.time_s >= each_s * ROUNDS:  # a long step
            break
    sampling = Sampling(sampled.steps, PERIOD_S, sampled.step_s, plain.step_s)
    return HostTimes(sampling, sampler.samples(sampled.steps), sampler.frames, sampler.files)


def add_samples(run: Run, found: HostTimes, *, source: bool) -> Run:
    """Return a run with host times; frames that the run has are used, and lines of the others are added."""
    frames = list(run.frames)
    numbers = {frame: at for at, frame in enumerate(frames)}
    places: list[int] = []
    for frame in found.frames:
        parent = None if frame.parent is None else places[frame.parent]
        own = replace(frame, parent=parent)
        if own not in numbers:
            numbers[own] = len(frames)
            frames.append(own)
        places.append(numbers[own])
    samples = tuple(
        replace(sample, frame=None if sample.frame is None else places[sample.frame]) for sample in found.samples
    )
    new = [frame for frame in frames[len(run.frames) :] if run.line_text(frame.file, frame.line) is None]
    texts = read_sources(new, found.files) if source else ()
    return replace(
        run,
        frames=tuple(frames),
        sources=(*run.sources, *texts),
        sampling=found.sampling,
        host_samples=samples,
    )


@dataclass(slots=True)
class _Stretch:
    time_s: float = 0.0
    steps: int = 0

    def __add__(self, other: _Stretch) -> _Stretch:
        return _Stretch(self.time_s + other.time_s, self.steps + other.steps)

    @property
    def step_s(self) -> float:
        return self.time_s / max(1, self.steps)


@dataclass(frozen=True, slots=True)
class _Rounds:
    repeater: Repeater
    clock: Clock

    def run(self, seconds: float) -> _Stretch:
        """Run steps for at least these seconds, and at least one."""
        begin_s, before = self.clock.now(), self._finished()
        end_s = begin_s + seconds
        while self._finished() == before:
            self.repeater.run_until(max(end_s, self.clock.now() + LEAST_S))
            self.repeater.drain()
        return _Stretch(self.clock.now() - begin_s, self._finished() - before)

    def _finished(self) -> int:
        steps = self.repeater.log.steps
        return steps[-1] if steps else 0
