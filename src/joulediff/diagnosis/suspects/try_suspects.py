"""Searches the smallest set of suspects that explains a difference, by changing them in the expensive program.

Each change is measured on the whole step. A set explains the difference if the energy falls to within 10 % of the
cheap program's, by most of the difference and by more than noise, and the outputs stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from joulediff.diagnosis.suspects.suspect import Differences
from joulediff.frameworks.jobs import LiveProgram, VariantCost
from joulediff.model.energy import Energy, Ratio, ratio
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Trial
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run

# A trial is measured four times for this long: twice without the change, and twice with it; a clear effect once each.
TRY_S = 0.8
# It has at least this many steps, unless they take longer than that.
_LEAST_STEPS, _MOST_S = 6, 3.0
# A change whose effect cannot be told from noise at first is measured this many times longer.
_LONGER = 3.0
MAX_TRIALS = 10
NEAR_SHARE = 0.1
# Part of the difference that a cause of all of it saves at least, and one of a part of it.
_MOST_SHARE = 0.6
_LEAST_SHARE = 0.1
# A machine whose energy of the same step moved by more than this share is no longer as it was recorded.
_DRIFT_SHARE = 0.15
# With more suspects than this, sets are tried before single ones.
_FEW = 4
# More suspects that explain a difference only together name no cause.
_MOST_TOGETHER = 3
# A change of a few lines tests the cause that it is named by; a change of more lines replaces code.
FEW_LINES = 10
# A change of more lines, or of a larger share of the program, puts the other program in place of this one.
_MOST_LINES, _MOST_LINES_SHARE = 24, 0.2
# Suspects that are tried alone where programs are written differently.
_MOST_SMALL = 6

Chosen = tuple[int, ...]
Outcome = Literal["explains", "helps", "outputs differ", "no less energy", "failed"]


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of suspects that was changed, and the result."""

    chosen: Chosen
    outcome: Outcome
    trial: Trial
    saved_j: float = 0.0
    cost: VariantCost = VariantCost()  # noqa: RUF009 - frozen
    run: Run | None = None

    @property
    def saves(self) -> bool:
        """Whether the energy fell by more than noise, whatever the outputs are."""
        return self.outcome in ("explains", "helps", "outputs differ") and self.saved_j > 0


@dataclass(frozen=True, slots=True)
class Explained:
    """Causes that were found, each a set of suspects, and whether they explain all of the difference."""

    causes: tuple[Tried, ...]
    is_all: bool
    together: Tried | None = None
    """The trial of several causes together, which explains the difference."""


@dataclass(slots=True)
class Search:
    """A search for the cause of the difference between two steps."""

    differences: Differences
    program: LiveProgram
    """The expensive program."""
    other_program: LiveProgram
    whole: Energy
    """The energy of the expensive step."""
    other: Energy
    """The energy of the cheap step."""
    step_s: float
    """The time of the expensive step."""
    max_difference: float
    listener: ProgressListener
    tried: dict[Chosen, Tried] = field(default_factory=dict)
    other_again: Energy | None = None
    """The energy of the cheap step, measured again."""

    def explain(self) -> Explained:
        """Return the smallest set of causes that was found."""
        everyone = tuple(range(len(self.differences.suspects)))
        if self._is_rewrite(everyone):
            return self._try_small(everyone)
        found: Explained | None = None
        if len(everyone) > _FEW:
            smallest = self._smallest(everyone)
            if len(smallest) < len(everyone):
                found = self._split(smallest)
        found = found or self._try_singles(everyone)
        if any(self._has_many_edits(each.chosen) for each in found.causes):
            return Explained((), is_all=False)
        return found

    def _is_rewrite(self, chosen: Chosen) -> bool:
        """Return whether a set puts so much of the other program in place of this one that it is no single cause."""
        lines = self.differences.lines_of(chosen)
        most = min(_MOST_LINES, _MOST_LINES_SHARE * self.differences.all_lines)
        return lines > max(FEW_LINES, most)

    def _has_many_edits(self, chosen: Chosen) -> bool:
        edits = [at for at in chosen if self.differences.suspects[at].edit is not None]
        return len(edits) > _MOST_TOGETHER

    def _try_small(self, everyone: Chosen) -> Explained:
        """Return the small suspects that help, where the two programs are written differently.

        All suspects together would make one program of the other, which tests no cause.
        """
        small = [at for at in everyone if not self._is_rewrite((at,))][:_MOST_SMALL]
        for at in small:
            found = self._try((at,))
            if found is not None and found.outcome == "explains":
                return Explained((found,), is_all=True)
        return Explained(tuple(each for each in self._singles(small) if each.outcome == "helps"), is_all=False)

    def _try_singles(self, everyone: Chosen) -> Explained:
        for at in everyone:
            found = self._try((at,))
            if found is not None and found.outcome == "explains":
                return Explained((found,), is_all=True)
        helping = [each for each in self._singles(everyone) if each.outcome == "helps"]
        if len(helping) > 1:
            together = self._try(tuple(each.chosen[0] for each in helping))
            if together is not None and together.outcome == "explains":
                return Explained(tuple(helping), is_all=True, together=together)
        if 1 < len(everyone) <= _FEW:
            smallest = self._smallest(everyone)
            if len(smallest) < len(everyone):
                return self._split(smallest)
            found = self._try(everyone)
            if found is not None and found.outcome == "explains":
                return Explained((found,), is_all=True)
            if found is not None and found.outcome == "helps" and not helping:
                return Explained((found,), is_all=False)
        unequal = [each for each in self._singles(everyone) if each.outcome == "outputs differ" and each.saves]
        return Explained(tuple(helping or unequal[:1]), is_all=False)

    def _split(self, chosen: Chosen) -> Explained:
        """Return the causes in a set that explains the difference: each suspect that helps alone is one."""
        whole = self._try(chosen)
        assert whole is not None
        if len(chosen) == 1:
            return Explained((whole,), is_all=True)
        alone = [found for at in chosen if (found := self._try((at,))) is not None]
        explaining = next((each for each in alone if each.outcome == "explains"), None)
        if explaining is not None:
            return Explained((explaining,), is_all=True)
        helping = [each for each in alone if each.outcome == "helps"]
        if len(helping) == len(chosen):
            return Explained(tuple(helping), is_all=True, together=whole)
        return Explained((whole,), is_all=True)

    def _smallest(self, everyone: Chosen) -> Chosen:
        """Return a small subset that explains the difference, by halving; all of them if none was found."""
        found, parts = everyone, 2
        while len(found) > 1:
            size = -(-len(found) // parts)
            pieces = [found[at : at + size] for at in range(0, len(found), size)]
            others = [tuple(each for each in found if each not in piece) for piece in pieces] if parts > 2 else []
            smaller = next((each for each in (*pieces, *others) if self._explains(each)), None)
            if smaller is not None:
                found, parts = smaller, 2
            elif parts >= len(found) or len(self.tried) >= MAX_TRIALS:
                break
            else:
                parts = min(len(found), 2 * parts)
        return found

    def _explains(self, chosen: Chosen) -> bool:
        found = self._try(chosen) if chosen else None
        return found is not None and found.outcome == "explains"

    def _singles(self, everyone: Sequence[int]) -> list[Tried]:
        return [self.tried[(at,)] for at in everyone if (at,) in self.tried]

    def _try(self, chosen: Chosen) -> Tried | None:
        """Return the result of changing a set; None if there were too many trials."""
        key = tuple(sorted(chosen))
        if key not in self.tried:
            if len(self.tried) >= MAX_TRIALS:
                return None
            count = len(self.differences.suspects)
            self.listener.stage(f"trying the cause: change {len(self.tried) + 1} of {count} suspects", None)
            self.tried[key] = self._measure(key)
        return self.tried[key]

    def _measure(self, chosen: Chosen) -> Tried:
        text = self.differences.text_of(chosen)
        try:
            variant = self.differences.to_variant(chosen)
            seconds = self._seconds()
            cost, run = self.program.try_variant(variant, seconds=seconds)
            if self._is_unclear(cost):
                cost, run = self.program.try_variant(variant, seconds=_LONGER * seconds)
        except JoulediffError as error:
            note = error.what
            return Tried(chosen, "failed", Trial(text, None, None, self.other, note=note, of_step=True))
        outcome, saved_j = self.judge(cost)
        trial = Trial(
            text,
            cost.before,
            cost.after,
            self.other,
            difference=cost.difference,
            explains=outcome == "explains",
            of_step=True,
        )
        return Tried(chosen, outcome, trial, saved_j, cost, run)

    def judge(self, cost: VariantCost) -> tuple[Outcome, float]:
        """Return whether a change explains the difference, and what it saves of the recorded step."""
        share = ratio(cost.after, cost.before)
        if share is None:
            return "failed", 0.0
        saved, extra = 1 - share.value, self._extra_share(cost)
        if not self._is_near(share, extra) and saved >= _MOST_SHARE * extra:
            extra = self._extra_now(cost)
        saved_j = self.whole.joules * saved
        if share.high >= 1 or saved < _LEAST_SHARE * extra:
            return "no less energy", saved_j
        if cost.difference is None or not cost.difference <= self.max_difference:
            return "outputs differ", saved_j
        return ("explains" if self._is_near(share, extra) and saved >= _MOST_SHARE * extra else "helps"), saved_j

    def _is_unclear(self, cost: VariantCost) -> bool:
        """Return whether a change saves a part of the difference that may be noise."""
        share = ratio(cost.after, cost.before)
        return share is not None and share.high >= 1 and 1 - share.value >= _MOST_SHARE / 2 * self._extra_share(cost)

    def _extra_share(self, cost: VariantCost) -> float:
        """Return the difference of the two programs as a share of the expensive one's energy.

        If the expensive program no longer takes the energy of its recording, the cheap one is measured again too.
        """
        recorded = 1 - self.other.joules / self.whole.joules
        if cost.before is None or abs(cost.before.joules / self.whole.joules - 1) <= _DRIFT_SHARE:
            return recorded
        return self._extra_now(cost)

    def _is_near(self, share: Ratio, extra: float) -> bool:
        """Return whether the energy falls to within 10 % of the cheap program's, by the intervals of both."""
        return share.low <= (1 + NEAR_SHARE) * (1 - extra) * (1 + self.other.half_width_share)

    def _extra_now(self, cost: VariantCost) -> float:
        """Return the difference as it is now: a profiler that ran may have left both programs slower."""
        recorded = 1 - self.other.joules / self.whole.joules
        if cost.before is None:
            return recorded
        if self.other_again is None:
            try:
                self.other_again = self.other_program.measure(seconds=2 * self._seconds(), wait_s=0.0).energy
            except JoulediffError:
                return recorded
        return max(0.0, 1 - self.other_again.joules / cost.before.joules)

    def _seconds(self) -> float:
        return max(TRY_S, min(_LEAST_STEPS * self.step_s, _MOST_S))


def largest_first(causes: Sequence[Tried]) -> list[Tried]:
    """Return causes by what they save."""
    return sorted(causes, key=lambda each: -each.saved_j)
