"""A finding in sentences: its cause in short, and its facts as every report shows them.

Texts are not sanitized here; each report does that in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.model.diff import Thresholds
from joulediff.model.finding import Cause, CauseType, Finding, Function, Price, Trial, WholeRun
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.units import format_energy, format_share
from joulediff.report.views.short_texts import (
    energies_in_one_unit,
    format_interval,
    in_one_unit,
    short_files,
    short_kernel,
    shorten,
    value_text,
    with_count,
)

# At most this many kernels of a side are named, each with this many characters.
_KERNELS = 2
_KERNEL_CHARS = 40
# At most this many trials that failed are shown.
_TRIALS = 3
# At most this many callers of a function are named, beside the outermost one.
_CALLERS = 2
# In the name of a function that a decorator made.
_WRAPPER = "<locals>"
# A smaller difference is rounding.
_EQUAL_SHARE = 1e-6
_TYPES: dict[CauseType, str] = {
    "setting": "setting",
    "call_path": "call path",
    "layout": "layout",
    "argument": "argument",
    "shape": "shape",
    "state": "state",
    "code": "code",
    "repetition": "repeated",
    "redundancy": "redundant",
    "host": "host",
    "kernel": "kernel",
}


# Causes that their names and values say in short; a line says the others.
_NAMED: tuple[CauseType, ...] = ("setting", "layout", "state", "argument", "shape")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a finding. A text that `is_code` is cut rather than wrapped."""

    key: str
    text: str
    is_code: bool = False


def region_text(finding: Finding) -> str:
    """Return the region with the number of similar ones: `addmm ×48`."""
    return with_count(finding.region, finding.count or len(finding.regions))


def file_names(findings: Iterable[Finding], more: Iterable[Place] = ()) -> dict[str, str]:
    """Return the short name of each file that findings name, and of the files of `more` places."""
    places = list(more)
    for finding in findings:
        places += [place for place in finding.cause.locations if place is not None]
        places += [place for path in finding.work.paths for place in path]
        places += [each.place for each in finding.work.functions if each is not None]
        places += [each.location for each in finding.prices if each.location is not None]
    return short_files(place.file for place in places)


def cause_text(finding: Finding, files: Mapping[str, str]) -> str:
    """Return the cause in short: `setting: allow_tf32 False ↔ True`, `call path: activations.py:56`."""
    cause = finding.cause
    place = _place_of(finding, files)
    if cause.type in _NAMED and cause.key is not None:
        return f"{_TYPES[cause.type]}: {_key_text(cause)}"
    if cause.type == "redundancy":
        what = cause.key or finding.region
        return f"redundant: {what} ({place})" if place else f"redundant: {what}"
    if cause.type == "kernel":
        return "unknown" if cause.key is None else f"kernel: {_key_text(cause)}"
    return f"{_TYPES[cause.type]}: {place or cause.key or 'unknown line'}"


def mark_text(finding: Finding) -> str:
    """Return the word of proof: `✓ cause confirmed`, `✓ replacement confirmed` or `observed`."""
    return f"✓ {finding.proof.word}" if finding.proof.confirmed else finding.proof.word


def short_mark(mark: str) -> str:
    """Return a word of proof for a narrow table: `✓ cause`, `✓ replacement` or `observed`."""
    return mark.removesuffix(" confirmed")


def pays_text(finding: Finding, thresholds: Thresholds) -> str:
    """Return the disadvantages of the cheap side of a trade-off: `B 12% slower, outputs differ 3%`."""
    cheap = other_side(finding.expensive)
    expensive_s, cheap_s = finding.cost.times_s.of(finding.expensive), finding.cost.times_s.of(cheap)
    words = []
    if expensive_s and cheap_s and 1.0 + thresholds.slower < cheap_s / expensive_s < math.inf:
        words.append(f"{cheap.upper()} {format_share(cheap_s / expensive_s - 1.0)} slower")
    if finding.cost.difference is None:
        words.append("outputs not compared")
    elif not finding.cost.difference <= thresholds.difference:
        words.append(f"outputs differ {format_share(finding.cost.difference)}")
    return ", ".join(words) or f"{cheap.upper()} uses less energy; its disadvantage is unknown"


def _outputs(difference: float, thresholds: Thresholds) -> str:
    if difference == 0.0:
        return "outputs equal"
    if difference <= thresholds.difference:
        return f"outputs equal within {format_share(max(difference, _EQUAL_SHARE))}"
    return f"outputs differ by {format_share(difference)}"


def finding_facts(
    finding: Finding, files: Mapping[str, str], thresholds: Thresholds, *, every: bool = False
) -> Iterator[Fact]:
    """Yield the facts of a finding, the advice first; with `every`, also the evidence and the call paths."""
    yield Fact("look" if finding.kind == "unknown" else "fix", finding.suggestion)
    if finding.verdict == "tradeoff":
        yield Fact("price", pays_text(finding, thresholds))
    yield Fact("costs", _costs(finding))
    yield from (Fact("price", _price(each, finding, files)) for each in finding.prices)
    yield Fact("cause", _cause_in_full(finding, files))
    yield from _places(finding, files)
    if finding.work.kernels_a or finding.work.kernels_b:
        yield Fact("kernels", f"{_kernels(finding.work.kernels_a)} ↔ {_kernels(finding.work.kernels_b)}")
    yield from _proof(finding, thresholds, every=every)
    whole = None if finding.proof.confirmation is None else finding.proof.confirmation.whole
    if whole is not None:
        yield Fact("whole run", _whole(whole, thresholds))
    if every:
        yield from _seen(finding, files)


def _costs(finding: Finding) -> str:
    share = "" if finding.cost.share_of_run is None else f", {format_share(finding.cost.share_of_run)} of its step"
    text = f"{finding.expensive.upper()} {format_energy(finding.cost.delta_j)} more{share}"
    energies, times_s = tuple(finding.cost.energies), tuple(finding.cost.times_s)
    if None not in energies:
        text += f": {' ↔ '.join(energies_in_one_unit(energies))}"
    return text if times_s == (None, None) else f"{text}, {' ↔ '.join(in_one_unit(times_s, 's'))}"


def _price(price: Price, finding: Finding, files: Mapping[str, str]) -> str:
    where = "" if price.location is None else f" at {line_text(price.location, files)}"
    cheap = other_side(finding.expensive).upper()
    return f"{cheap} runs {price.region}{where} for it, {format_energy(price.delta_j)} more; the costs are net of it"


def _cause_in_full(finding: Finding, files: Mapping[str, str]) -> str:
    cause = finding.cause
    if cause.key is None or cause.type in (*_NAMED, "kernel"):
        return cause_text(finding, files)
    return f"{_TYPES[cause.type]}: {_key_text(cause)}"


def _key_text(cause: Cause) -> str:
    if cause.value_a is None and cause.value_b is None:
        return cause.key or ""
    if cause.value_a == cause.value_b:
        return f"{cause.key}, called differently"
    values = f"{value_text(cause.value_a)} ↔ {value_text(cause.value_b)}"
    if cause.key in (cause.value_a, cause.value_b):  # the key is the called function
        return values if None not in (cause.value_a, cause.value_b) else str(cause.key)
    return f"{cause.key} {values}"


def _place_of(finding: Finding, files: Mapping[str, str]) -> str | None:
    """Return the line of the expensive side, or else of the cheap one."""
    places = finding.cause.locations
    place = places.of(finding.expensive) or places.of(other_side(finding.expensive))
    return None if place is None else line_text(place, files)


def line_text(place: Place, files: Mapping[str, str]) -> str:
    """Return a line in short: `modeling_llama.py:64`."""
    return f"{files.get(place.file, place.file)}:{place.line}"


def place_text(place: Place, files: Mapping[str, str]) -> str:
    """Return a line with its function and its code: `layernorm.py:30 rms_norm  return fused(x)`."""
    return f"{line_text(place, files)} {place.function}{_code(place)}"


def _places(finding: Finding, files: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the lines of the cause, and the functions that do the work with their callers, where they differ."""
    work, places = finding.work, finding.cause.locations
    is_shared = work.function_a is not None and work.function_a == work.function_b
    for side in SIDES:
        place, function = places.of(side), work.functions.of(side)
        is_there = place is not None and function is not None and _is_line(function.place, place)
        if place is not None:
            name = f" {_function_text(function)}" if is_there and function is not None and function.module else ""
            yield Fact(side.upper(), f"{line_text(place, files)}{name}{_code(place)}", is_code=True)
        if function is not None and (is_there or not is_shared):
            key = side.upper() if is_there else f"in {side.upper()}"
            yield from _function(finding, side, key, function, files, is_named=is_there)
    if is_shared and work.function_a is not None and not any(_is_line(work.function_a.place, each) for each in places):
        yield from _function(finding, finding.expensive, "in", work.function_a, files)


def _function(
    finding: Finding, side: SideName, key: str, function: Function, files: Mapping[str, str], *, is_named: bool = False
) -> Iterator[Fact]:
    """Yield a function, unless it `is_named` already, and its callers, unless it is called by the line of the cause."""
    if not is_named:
        text = f"{line_text(function.place, files)} {_function_text(function)}{_code(function.place)}"
        yield Fact(key, text, is_code=True)
    callers = callers_of(function.place, finding.work.paths.of(side))
    is_told = len(callers) == 1 and (is_named or _is_line(callers[0], finding.cause.locations.of(side)))
    if callers and not is_told:
        yield Fact(key, f"called by {_way_up(callers, files)}")


def _code(place: Place) -> str:
    return f"  {place.text.strip()}" if place.text else ""


def _function_text(function: Function) -> str:
    """Return a function with its module: `LlamaMLP.forward of model.layers.*.mlp`."""
    return f"{function.place.function} of {function.module}" if function.module else function.place.function


def callers_of(place: Place, path: Sequence[Place]) -> list[Place]:
    """Return the callers of a function on a call path, the nearest first, without wrappers of decorators."""
    at = next((at for at, each in enumerate(path) if each == place), 0)
    own, outer = path[:1], path[1:at]
    return [*(each for each in reversed(outer) if _WRAPPER not in each.function), *own] if at else []


def _way_up(callers: Sequence[Place], files: Mapping[str, str]) -> str:
    """Return the nearest callers, the number of others, and the outermost one."""
    texts = [line_text(each, files) for each in callers]
    if len(texts) > _CALLERS + 2:
        texts = [*texts[:_CALLERS], f"{len(texts) - _CALLERS - 1:,} more", texts[-1]]
    return " < ".join(texts)


def _is_line(place: Place, other: Place | None) -> bool:
    return other is not None and (place.file, place.line) == (other.file, other.line)


def _kernels(names: Sequence[str]) -> str:
    shown = [shorten(short_kernel(name), _KERNEL_CHARS) for name in names[:_KERNELS]]
    more = [f"{len(names) - _KERNELS:,} more"] if len(names) > _KERNELS else []
    return ", ".join([*shown, *more]) or "none"


def _proof(finding: Finding, thresholds: Thresholds, *, every: bool) -> Iterator[Fact]:
    """Yield the trial that confirmed a finding, or the trials that failed, or why there was none."""
    found = finding.proof.confirmation
    trials = () if found is None else found.trials
    if not trials:
        yield Fact("proof", finding.cause.not_tried or "not tried")
    best = next((trial for trial in trials if trial.explains), None) if finding.proof.confirmed else None
    if best is not None:
        saved = None if found is None else found.saved_share
        yield Fact("proof", _trial(best, thresholds) + ("" if saved is None else _saves(saved)))
    failed = [trial for trial in trials if trial is not best]
    most = len(failed) if every else _TRIALS if best is None else 0
    yield from (Fact("tried", _trial(trial, thresholds)) for trial in failed[:most])
    if best is None and len(failed) > most:
        yield Fact("tried", f"{len(failed) - most:,} more: --all shows them")


def _saves(share: float) -> str:
    return f"; saves {format_share(share)} of a step"


def _trial(trial: Trial, thresholds: Thresholds) -> str:
    before, after, other = energies_in_one_unit((trial.before, trial.after, trial.other))
    unit = other.partition(" ")[2]
    words = [f"{before} → {after} {unit}".rstrip()]
    if trial.other is not None:
        words.append(f"other side {other}")
    if trial.difference is not None:
        words.append(_outputs(trial.difference, thresholds))
    note = f" ({trial.note})" if trial.note else ""
    run = "the whole step" if trial.of_step else "replayed"
    return f"{run} with {trial.change}: {', '.join(words)}{note}"


def _whole(whole: WholeRun, thresholds: Thresholds) -> str:
    words = [f"{' → '.join(energies_in_one_unit((whole.before, whole.after)))} a step"]
    if whole.saved_share is not None:
        words[0] += f" ({format_share(abs(whole.saved_share))} {'less' if whole.saved_share >= 0 else 'more'})"
    if whole.step_s_before is not None and whole.step_s_after is not None:
        words.append(" → ".join(in_one_unit([whole.step_s_before, whole.step_s_after], "s")))
    if whole.difference is not None:
        words.append(_outputs(whole.difference, thresholds))
    note = f" ({whole.note})" if whole.note else ""
    return f"with {whole.change}: {', '.join(words)}{note}"


def _seen(finding: Finding, files: Mapping[str, str]) -> Iterator[Fact]:
    energies = {"A": finding.cost.energy_a, "B": finding.cost.energy_b}
    known = [f"{side} {format_interval(each)} {each.source}" for side, each in energies.items() if each is not None]
    if known:
        yield Fact("energies", ", ".join(known))
    yield from (Fact("seen", sentence) for sentence in finding.cause.evidence)
    if finding.cost.p_value is not None:
        yield Fact("noise", f"the chance of this difference by noise alone is {format_share(finding.cost.p_value)}")
    for side, path in (("A", finding.work.path_a), ("B", finding.work.path_b)):
        if path:
            yield Fact(f"path {side}", " > ".join(line_text(place, files) for place in path), is_code=True)
