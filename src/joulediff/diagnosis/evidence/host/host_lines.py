"""Evidence: lines of the user's own code in which the host of one side spends more time than that of the other.

Lines are paired by their text within paired functions, from the step inwards: the two programs are different files. A
line is reported only beyond the noise of its samples and the spread between two processes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial

from joulediff.diagnosis.comparison import Comparison, to_place
from joulediff.diagnosis.evidence.host.host_stacks import (
    Stack,
    lines_with_operators,
    sigma_of,
    slower_factor,
    stacks_of_both,
    text_of,
    time_of,
)
from joulediff.diagnosis.evidence.host.idle_device import Around
from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.suggest import suggest_less_work, suggest_without_line
from joulediff.energy.host_time import GARBAGE_COLLECTION, function_name
from joulediff.model.energy import Energy, scale
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run, Setting
from joulediff.model.units import format_time

# A line is reported from this many standard deviations of its samples on: a step has dozens of lines to test.
SIGMAS = 4.0
# Host time of the same line differs by up to this share between two processes.
SPREAD = 0.15
# Less extra time than this share of a step is not reported.
LEAST_SHARE = 0.02
# Fewer samples than this tell nothing about a line.
LEAST_SAMPLES = 8
# Lines inside a line are reported in its place if they have this share of its extra time.
_MOST = 0.6
# Unpaired lines of the other side that take more than this share of the time do the same work in their way.
_REPLACED_SHARE = 0.5
# Unpaired lines whose texts are at least this similar are two versions of one line.
_SIMILAR = 0.6
# Entering a function counts in the line of its definition.
_ENTRIES = ("def ", "async def ", "@")
_WAITING = ("synchronize", "wait", "sleep", "join", "acquire", "select", "poll")


@dataclass(frozen=True, slots=True)
class HostLine:
    """A line of the expensive side with more host time than the other side spends on it, in seconds per step."""

    expensive: SideName
    place: Place
    key: str
    """The function called there, or the text of the line if it calls none."""
    seconds_a: float
    seconds_b: float
    what: str
    """The function of a library that takes most of the time, or empty text."""
    share: float
    """The extra time as a share of the expensive side's step."""
    is_wait: bool
    """The thread waits there."""
    runs_operators: bool
    """Operators run below this line, or below the lines with most of a loop's time: it includes their launches."""
    other: Place | None = None
    """The line of the other side that it was paired with."""

    @property
    def excess_s(self) -> float:
        """The extra time of the expensive side."""
        times_s = Pair(self.seconds_a, self.seconds_b)
        return times_s.of(self.expensive) - times_s.of(other_side(self.expensive))


def find_host_lines(comparison: Comparison, expensive: SideName) -> tuple[HostLine, ...]:
    """Return the user's lines in which this side spends more host time than the other, those with the most first."""
    runs = Pair(comparison.run(expensive), comparison.run(other_side(expensive)))
    stacks = stacks_of_both(runs)
    if stacks is None:
        return ()
    mine, others = stacks
    search = LineSearch(runs.a, runs.b, slower_factor(mine, others), expensive, lines_with_operators(runs.a))
    found = search.lines_of_functions(mine, others, 0)
    return tuple(sorted(found, key=lambda line: -line.excess_s))


def host_line_lead(line: HostLine) -> Lead:
    """Return a line as a lead. Its trial leaves the statement out of the program and measures the whole step."""
    side = line.expensive
    times_s = Pair(line.seconds_a, line.seconds_b)
    mine_s, other_s = times_s.of(side), times_s.of(other_side(side))
    doing = "waits" if line.is_wait else "works"
    inside = f", in {line.what}" if line.what else ""
    evidence = (
        f"the host {doing} {format_time(mine_s)} a step in this line{inside}, {line.share:.0%} of the step; "
        f"in the other program {format_time(other_s)}"
    )
    values: Pair[Setting] = pair_from(side, line.key, None)
    cause = make_cause("code", line.key, values, pair_from(side, line.place, line.other), (evidence,))
    if _sets_result(line.place.text or ""):
        return Lead("host", cause, (), suggest_less_work(cause, side))
    return Lead("host" if line.is_wait else "redundant", cause, (), suggest_without_line(cause, side))


def _sets_result(text: str) -> bool:
    """Return whether a line is a statement that assigns or returns what it computes."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)


def line_energies(comparison: Comparison, line: HostLine, around: Around | None, part: float) -> Pair[Energy | None]:
    """Return the energy of a line: its part of the energy around operators, or of the step's by its share of time."""
    if around is not None:
        return Pair(*(scale(around.energies.of(side), part) for side in SIDES))
    times_s = Pair(line.seconds_a, line.seconds_b)
    return Pair(*(_by_time(comparison, side, times_s.of(side)) for side in SIDES))


def _by_time(comparison: Comparison, side: SideName, time_s: float) -> Energy | None:
    sampling = comparison.run(side).sampling
    share = time_s / sampling.step_s if sampling is not None and sampling.step_s > 0 else 0.0
    return scale(comparison.costs[side].total, min(1.0, share))


@dataclass(frozen=True, slots=True)
class LineSearch:
    """The search for lines of `mine` with more time than those of `other`, which is slower by a factor."""

    mine: Run
    other: Run
    slower: float
    expensive: SideName
    with_operators: frozenset[tuple[str, int]]
    """The lines of `mine` below which operators run."""

    def lines_of_functions(self, mine: Sequence[Stack], others: Sequence[Stack], depth: int) -> list[HostLine]:
        """Return the lines in the user's functions at this depth of the call paths."""
        groups = [_group(stacks, depth, lambda frame: frame.function) for stacks in (mine, others)]
        found: list[HostLine] = []
        for name, partner in _pair_names(groups[0], groups[1]):
            inside, outside = groups[0].get(name, []), groups[1].get(partner or "", [])
            found += self._lines_of(inside, outside, depth)
        return found

    def _lines_of(self, mine: Sequence[Stack], others: Sequence[Stack], depth: int) -> list[HostLine]:
        """Return the lines of one function."""
        found: list[HostLine] = []
        for block, partner in self._pair_lines(mine, others, depth):
            line = self.to_line(block, partner, depth)
            # Of an unpaired line below which operators run, the lines inside tell what the host does.
            is_mixed = bool(partner) or line.runs_operators
            deeper = self.lines_of_functions(block, partner, depth + 1) if is_mixed else []
            if is_mixed and not partner:
                deeper += self._lines_without_operators(block, depth)
            is_inside = sum(each.excess_s for each in deeper) >= _MOST * line.excess_s
            if self.is_more(block, partner) and not (deeper and is_inside):
                deeper = [line]
            found += deeper
        return found

    def _lines_without_operators(self, block: Sequence[Stack], depth: int) -> list[HostLine]:
        """Return the lines of an unpaired loop with operators that run none themselves, as one."""
        rest = [stack for stack in block if not self._runs_operators(stack.own[depth])]
        is_part = len(rest) < len(block)
        return [self.to_line(rest, [], depth)] if is_part and self.is_more(rest, []) else []

    def _runs_operators(self, frame: Frame) -> bool:
        return (frame.file, frame.line) in self.with_operators

    def _pair_lines(
        self, mine: Sequence[Stack], others: Sequence[Stack], depth: int
    ) -> list[tuple[list[Stack], list[Stack]]]:
        """Return the lines of a function with their partners.

        Lines inside an unpaired loop belong to the loop. Unpaired lines are left out if those of the other side take
        about as long: each side has its own way to do the same.
        """
        ours = _group(mine, depth, partial(text_of, self.mine))
        theirs = _group(others, depth, partial(text_of, self.other))
        pairs = [(ours[text], theirs[text]) for text in ours if text in theirs]
        left = {text: stacks for text, stacks in theirs.items() if text not in ours}
        alone: dict[int, list[Stack]] = {}
        for text, stacks in sorted(ours.items(), key=lambda each: each[1][0].own[depth].line):
            if text in theirs or text.startswith(_ENTRIES):
                continue
            partner = max(left, key=lambda each: _likeness(text, each), default=None)
            if partner is not None and _likeness(text, partner) >= _SIMILAR:
                pairs.append((stacks, left.pop(partner)))
                continue
            for stack in stacks:
                alone.setdefault(self._first_line(stack.own[depth]), []).append(stack)
        replaced_s = self.slower * sum(time_of(stacks) for stacks in left.values())
        if replaced_s > _REPLACED_SHARE * sum(map(time_of, alone.values())):
            return pairs
        return [*pairs, *((block, []) for block in alone.values())]

    def _first_line(self, frame: Frame) -> int:
        """Return the first line of the outermost statement around a line that the other program does not have."""
        indents, found = _indents(self.mine, frame.file), frame.line
        for line in range(frame.line - 1, 0, -1):
            if line not in indents:
                if not self.mine.line_text(frame.file, line):
                    continue
                break
            if indents[line] < indents.get(found, 0):
                text = self.mine.line_text(frame.file, line) or ""
                if text.startswith(_ENTRIES) or text in self.other.index.lines.values():
                    break
                found = line
        return found

    def _names_itself(self, frame: Frame) -> bool:
        """Return whether a line names the work of its loop: one that calls nothing is a part of the loop."""
        return bool(_calls_in(text_of(self.mine, frame))) or self._first_line(frame) == frame.line

    def is_more(self, mine: Sequence[Stack], others: Sequence[Stack]) -> bool:
        """Return whether the time differs by more than the noise of samples and the spread between processes."""
        mine_s, others_s = time_of(mine), self.slower * time_of(others)
        excess_s = mine_s - others_s
        sigma_s = math.hypot(sigma_of(mine), self.slower * sigma_of(others))
        enough = sum(stack.count for stack in mine) >= LEAST_SAMPLES or any(stack.is_gc for stack in mine)
        least_s = max(SIGMAS * sigma_s, SPREAD * others_s, LEAST_SHARE * self._step_s)
        return enough and excess_s > least_s

    @property
    def _step_s(self) -> float:
        return 0.0 if self.mine.sampling is None else self.mine.sampling.step_s

    def to_line(self, mine: Sequence[Stack], others: Sequence[Stack], depth: int) -> HostLine:
        """Return the samples of one side in a line, or in a loop, and the samples that they are compared with."""
        first = min((stack.own[depth] for stack in mine), key=lambda frame: frame.line)
        if not others:
            chief = max(_group(mine, depth, lambda frame: str(frame.line)).values(), key=time_of)
            if time_of(chief) >= _MOST * time_of(mine) and self._names_itself(chief[0].own[depth]):
                mine, first = chief, chief[0].own[depth]
            else:
                first = replace(first, line=self._first_line(first))
        place = to_place(self.mine, first)
        assert place is not None
        callee = _main_callee(mine, depth)
        key = _key(place, callee, is_block=any(stack.own[depth].line != first.line for stack in mine))
        if key != "gc.collect" and time_of([stack for stack in mine if stack.is_gc]) > time_of(mine) / 2:
            key = GARBAGE_COLLECTION
        mine_s, others_s = time_of(mine), time_of(others)
        times_s = pair_from(self.expensive, mine_s, others_s)
        waits_s = sum(stack.wait_s for stack in mine)
        name = key.rpartition(".")[2]
        lines = _group(mine, depth, lambda frame: str(frame.line)).values()
        with_operators_s = sum(time_of(each) for each in lines if self._runs_operators(each[0].own[depth]))
        return HostLine(
            expensive=self.expensive,
            place=place,
            key=key,
            seconds_a=times_s.a,
            seconds_b=times_s.b,
            what=function_name(callee),
            share=(mine_s - others_s) / self._step_s if self._step_s > 0 else 0.0,
            is_wait=name in _WAITING or waits_s > mine_s / 2,
            runs_operators=with_operators_s > mine_s / 2,
            other=to_place(self.other, others[0].own[depth]) if others else None,
        )


def _group(stacks: Iterable[Stack], depth: int, key_of: Callable[[Frame], str]) -> dict[str, list[Stack]]:
    """Return the stacks that are this deep by a key of their frame there."""
    found: dict[str, list[Stack]] = {}
    for stack in stacks:
        if len(stack.own) > depth:
            found.setdefault(key_of(stack.own[depth]), []).append(stack)
    return found


def _pair_names(mine: Mapping[str, object], others: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """Return each function with that of the same name; if one is left on each side, these are a pair."""
    left, right = ([name for name in names if name not in more] for names, more in ((mine, others), (others, mine)))
    renamed = dict(zip(left, right, strict=True)) if len(left) == len(right) == 1 else {}
    return [(name, name if name in others else renamed.get(name)) for name in mine]


def _likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


def _indents(run: Run, file: str) -> dict[int, int]:
    """Return the indentation of the recorded lines of a file that are not empty."""
    found = {}
    for source in run.sources:
        if source.file == file:
            for at, text in enumerate(source.text.splitlines(), source.first):
                if text.strip() and not text.lstrip().startswith("#"):
                    found[at] = len(text) - len(text.lstrip())
    return found


def _main_callee(stacks: Sequence[Stack], depth: int) -> Frame | None:
    """Return the function that a line spends most of its time in; None for itself and for functions of C."""
    times: dict[tuple[str, str] | None, float] = {}
    frames: dict[tuple[str, str] | None, Frame | None] = {}
    for stack in stacks:
        called = stack.own[depth + 1] if len(stack.own) > depth + 1 else stack.callee
        name = None if called is None else (called.file, called.function)
        times[name] = times.get(name, 0.0) + stack.time_s
        frames[name] = called
    return frames[max(times, key=lambda name: times[name])]


def _key(place: Place, callee: Frame | None, *, is_block: bool) -> str:
    """Return the call in a line that takes its time; the text of a line that begins a loop, or calls nothing."""
    calls = _calls_in(place.text or "")
    wanted = None if callee is None else callee.function.rpartition(".")[2]
    for call in calls:
        if call.rpartition(".")[2] == wanted:
            return call
    if calls and not is_block:
        return calls[0]
    return (place.text or f"line {place.line}").partition("  #")[0].rstrip(": ")


def _calls_in(text: str) -> list[str]:
    """Return the dotted names that a line calls, the outermost first."""
    for each in (text, f"{text} pass", f"{text}\n pass"):
        try:
            tree = ast.parse(each)
        except (SyntaxError, ValueError):
            continue
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        return [ast.unparse(func) for func in calls if isinstance(func, ast.Name | ast.Attribute)]
    return []
