"""A diff in sentences: which side uses more energy, what limits the comparison, and the source of the energies.

Terminal and Markdown say the same, because both take their sentences from here and from `finding_sentences`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from joulediff.model.diff import ConditionDifference, Diff, DiffSide, Ledger, NamedDivergence, RowKind
from joulediff.model.energy import Ratio, difference_j
from joulediff.model.finding import PROOF_WORDS
from joulediff.model.units import format_share, format_time
from joulediff.report.views.other_differences import not_explained_sentence
from joulediff.report.views.short_texts import count_text, format_interval, in_one_unit, ratio_text, shorten, value_text
from joulediff.report.views.warnings import exceeding_text, unseen_texts

NOT_COMPARABLE = "the energies of A and B cannot be compared: record both under the same conditions"
TRADEOFFS = "trade-offs: the side that uses less energy is slower or its outputs differ"
SAME_MACHINE = "same machine, same driver"
# A row of operators that only the calls around them match.
REST_OF_CALLS = "rest of two calls"
SAME_KERNELS = "Both programs ran the same kernels on the same shapes"
# Rows of a diff that are no kernel of an operator.
OUTSIDE_KERNELS: tuple[RowKind, ...] = ("idle", "host", "waits", "unexplained")
# From this share on, a part of a difference is most of it.
_MOST_SHARE = 0.5
# From this share on, findings explain all of a difference as far as its printed digits tell.
_ALL_SHARE = 0.995
# If the interval of the ratio is within this of 1, the two energies count as the same.
_NEAR = 0.1
# At most this many operators without a counterpart are named, each with this many characters.
_NAMES = 6
_TOO_NOISY = "The measurements are too noisy to say which side uses more energy"
# Nobody measures for longer.
_MOST_S = 3600.0
_NO_REASON = "the measurement failed its checks, and the recording does not say which; record again"
_NAME_CHARS = 30
_SPLIT: Mapping[str | None, str] = {"attributed": "split by time", None: "not split"}
_FUNCTION_SPLIT: Mapping[str | None, str] = dict.fromkeys(
    ("replayed", "attributed", None), "split among functions by samples of the host"
)
# Divergences after this many are counted.
_MAX_DIVERGENCES = 3
# Tensors this far apart, as a share of their norm, have nothing in common.
_UNRELATED = 1.0


def headline(diff: Diff) -> str:
    """Return which side uses how much more, and whether both ran the same kernels."""
    ratio = diff.ratio
    if not diff.comparable:
        return f"{NOT_COMPARABLE[0].upper()}{NOT_COMPARABLE[1:]}."
    if ratio is None or not all(map(math.isfinite, (ratio.value, ratio.low, ratio.high))):
        return "It is unknown which side uses more energy: a step was not measured."
    return f"{_energy_sentence(diff, ratio)}{_same_kernels(diff, ratio)}"


def _energy_sentence(diff: Diff, ratio: Ratio) -> str:
    if ratio.may_be_one:
        value, low, high = (ratio_text(end).removesuffix("x") for end in (ratio.value, ratio.low, ratio.high))
        is_near = max(abs(ratio.low - 1.0), abs(ratio.high - 1.0)) <= _NEAR
        what = "A and B use the same energy" if is_near else _TOO_NOISY
        return f"{what} (ratio {value}, 95% CI {low} .. {high}).{'' if is_near else _how_long(diff, ratio)}"
    dear, cheap, times = ("A", "B", ratio.value) if ratio.value > 1.0 else ("B", "A", _inverse(ratio.value))
    how_much = by_how_much((diff.delta_j, diff.delta_low_j, diff.delta_high_j), dear)
    return f"{dear} uses {ratio_text(times)} the energy of {cheap}{how_much}."


def _how_long(diff: Diff, ratio: Ratio) -> str:
    """Return how long to measure for an interval that shows the threshold; it narrows with the root of the time."""
    measured_s = max((side.step.step_s or 0.0) * side.step.steps for side in (diff.a, diff.b))
    if not (0.0 < diff.thresholds.threshold < math.inf and 0.0 < measured_s < math.inf and ratio.low > 0.0):
        return ""
    times = (math.log(ratio.high) - math.log(ratio.low)) / 2 / math.log1p(diff.thresholds.threshold)
    shown, seconds = format_share(diff.thresholds.threshold), measured_s * times * times
    if seconds > _MOST_S:
        return f" To see a difference of {shown}, measure on a quieter machine: an hour of each would not show it."
    return f" To see a difference of {shown}, measure each for about {_round_up(seconds)} s (--seconds)."


def _round_up(seconds: float) -> int:
    """Return seconds with two digits, rounded up."""
    unit = 10 ** max(0, math.floor(math.log10(seconds)) - 1) if seconds >= 1.0 else 1
    return math.ceil(seconds / unit) * unit


def _same_kernels(diff: Diff, ratio: Ratio) -> str:
    """Return that both programs ran the same kernels, and whether a measured difference is outside of them."""
    if not diff.same_work:
        return ""
    if ratio.may_be_one or not _is_outside_kernels(diff):
        return f" {SAME_KERNELS}."
    return f" {SAME_KERNELS}; most of the difference is outside the kernels."


def _is_outside_kernels(diff: Diff) -> bool:
    """Return whether most of the difference is in the host's work, waits, idle time or unexplained energy."""
    deltas_j = [(row.kind, difference_j(*row.energies)) for row in diff.rows]
    total_j = sum(delta_j for _, delta_j in deltas_j)
    outside_j = sum(delta_j for kind, delta_j in deltas_j if kind in OUTSIDE_KERNELS)
    return total_j != 0.0 and outside_j / total_j > _MOST_SHARE


def findings_text(diff: Diff) -> str:
    """Return the number of findings, the share of the difference that they explain, and how they are proven."""
    wastes = sum(finding.verdict == "waste" for finding in diff.findings)
    trades = len(diff.findings) - wastes
    if not diff.findings:
        if not diff.comparable:
            return ""
        if diff.ratio is None:
            return "No finding: a finding needs the energy of both sides."
        if diff.not_explained is not None:
            return not_explained_sentence(diff)
        if not diff.ratio.may_be_one:
            return "No finding explains this difference."
        least = format_share(diff.thresholds.threshold)
        return f"No finding: no {row_word(diff)} differs by more than {least} and by more than noise."
    words = [count_text(wastes, "finding")] if wastes else []
    words += [count_text(trades, "trade-off")] if trades else []
    return f"{' and '.join(words)}{_explained(diff)}: {_proofs(diff)}. {not_explained_sentence(diff)}".rstrip()


def row_word(diff: Diff) -> str:
    """Return the word for a row of a diff."""
    return "function" if diff.is_by_function else "region"


def _explained(diff: Diff) -> str:
    share = diff.explained_share
    if share is None or not math.isfinite(share):
        return ""
    verb = "explains" if len(diff.findings) == 1 else "explain"
    return f" {verb} {'all of it' if share >= _ALL_SHARE else format_share(share)}"


def _proofs(diff: Diff) -> str:
    """Return how many findings have each word of proof: `1 cause confirmed, 2 observed`."""
    counts = Counter(finding.proof.word for finding in diff.findings)
    if len(diff.findings) == 1:
        return next(iter(counts))
    return ", ".join(f"{counts[word]:,} {word}" for word in PROOF_WORDS if counts[word])


def side_texts(diff: Diff) -> Iterator[tuple[str, list[str], str, str]]:
    """Yield for A and B: the label, the program, the energy and time of a step, and the device."""
    for side in (diff.a, diff.b):
        energy = "energy not measured" if side.step.energy is None else format_interval(side.step.energy)
        time = "" if side.step.step_s is None else f" in {format_time(side.step.step_s)}"
        repeats = [count_text(side.step.repeats, "repeat")] if side.step.repeats else []
        is_same = side is diff.b and side.device == diff.a.device != "" and not diff.condition_differences
        device = SAME_MACHINE if is_same else _device(side)
        work = count_text(side.ops, "op") if side.ops else "no operators"
        about = [*filter(None, [side.program]), work, *repeats]
        yield side.label, about, energy + time, device


def condition_text(found: ConditionDifference) -> str:
    """Return a condition that differs between the runs: `A and B differ in driver: 570.1 ↔ 550.2`."""
    return f"A and B differ in {found.name}: {value_text(found.a)} ↔ {value_text(found.b)}"


def warning_texts(diff: Diff) -> list[str]:
    """Return the warnings of both measurements, and those about the sum and the reach of their operators.

    A measurement that is not trustworthy has one that says why.
    """
    exceeding = [
        () if not ledger.exceeds_meter else tuple(filter(None, [exceeding_text(ledger.domains)]))
        for ledger in (diff.ledger_a, diff.ledger_b)
    ]
    sides = [(*side.warnings, *texts) for side, texts in zip((diff.a, diff.b), exceeding, strict=True)]
    found = _merge_sides(sides[0], sides[1])
    found += [
        f"{letter}: {text}" for letter, side in (("A", diff.a), ("B", diff.b)) for text in unseen_texts(side.unseen)
    ]
    silent = [letter for letter, side in (("A", diff.a), ("B", diff.b)) if not side.trustworthy and not side.warnings]
    return [f"{' and '.join(silent)}: {_NO_REASON}", *found] if silent else found


def difference_texts(diff: Diff) -> list[str]:
    """Return where the outputs of the runs differ by more than those of a waste may."""
    return divergence_texts(diff.divergences, _are_serious(diff), agree=diff.outputs_agree)


def note_texts(diff: Diff) -> list[str]:
    """Return the notes of the diff and of both sides, small divergences, and the operators without a counterpart."""
    slight = [not each for each in _are_serious(diff)]
    unmatched = [_unmatched("A", diff.a), _unmatched("B", diff.b)]
    return [
        *diff.notes,
        *divergence_texts(diff.divergences, slight, agree=diff.outputs_agree),
        *filter(None, unmatched),
        *_merge_sides(diff.a.notes, diff.b.notes),
    ]


def _are_serious(diff: Diff) -> list[bool]:
    return [not each.difference <= diff.thresholds.difference for each in diff.divergences]


def divergence_texts(
    divergences: Sequence[NamedDivergence], shown: Sequence[bool] | None = None, *, agree: bool = True
) -> list[str]:
    """Return a sentence for each divergence that is `shown`, by default for all; those after a few are counted.

    `agree` says whether the outputs of the two programs are equal.
    """
    chosen = [at for at in range(len(divergences)) if shown is None or shown[at]]
    texts = []
    for at in chosen[:_MAX_DIVERGENCES]:
        begin = "the runs also differ at" if at else "the runs begin to differ at"
        if at == 0 and not agree:
            begin = "not all outputs of A and B are equal: the runs begin to differ at"
        texts.append(f"{begin} {_place_text(divergences[at])}: {', '.join(_distances(divergences[at]))}")
    if len(chosen) > _MAX_DIVERGENCES:
        count = len(chosen) - _MAX_DIVERGENCES
        texts.append(f"the runs differ at {count:,} more {'place' if count == 1 else 'places'}: --json lists them")
    return texts


def _place_text(found: NamedDivergence) -> str:
    """Return the module, or else the line, and the operators: `model.layers.7.mlp.act_fn (silu ↔ gelu)`."""
    place = found.location_a or found.location_b
    line = "" if place is None else f"{PurePath(place.file).name}:{place.line}"
    where = found.where or line
    names = found.name if found.only_in is None else f"{found.name}, only in {found.only_in.upper()}"
    return f"{where} ({names})" if where else names


def _distances(found: NamedDivergence) -> Iterator[str]:
    yield from _distances_in_runs(found)
    if found.executed is not None and math.isfinite(found.executed):
        yield f"run on the same tensors they are still {format_share(found.executed)} apart"


def _distances_in_runs(found: NamedDivergence) -> Iterator[str]:
    if found.only_in is not None:
        yield f"{'B' if found.only_in == 'a' else 'A'} computes no equal tensor"
    elif not found.difference < _UNRELATED:
        yield "the inputs are equal, the outputs are not"
    elif found.difference <= found.expected:
        yield f"outputs {format_share(found.difference)} apart, much more than in similar regions"
    else:
        yield f"outputs {format_share(found.difference)} apart"
        if found.expected > 0.0 and math.isfinite(found.expected):
            yield f"rounding explains {format_share(found.expected)}"


def _merge_sides(texts_a: Sequence[str], texts_b: Sequence[str]) -> list[str]:
    """Return sentences with their side; one that both sides have is one."""
    sides: dict[str, list[str]] = {}
    for letter, texts in (("A", texts_a), ("B", texts_b)):
        for text in dict.fromkeys(texts):
            sides.setdefault(text, []).append(letter)
    return [f"{' and '.join(letters)}: {text}" for text, letters in sides.items()]


def books_text(diff: Diff) -> str:
    """Return the source of both energies: `energy: gpu0 metered, split by replay (12 ops)`."""
    words = _FUNCTION_SPLIT if diff.is_by_function else _SPLIT
    a, b = _ledger(diff.ledger_a, words), _ledger(diff.ledger_b, words)
    return f"energy: {a}" if a == b else f"energy: A {a}; B {b}"


def _unmatched(letter: str, side: DiffSide) -> str | None:
    if side.unmatched <= 0:
        return None
    names = side.unmatched_names[:_NAMES]
    shown = f": {', '.join(shorten(name, _NAME_CHARS) for name in names)}" if names else ""
    more = f", {len(side.unmatched_names) - _NAMES:,} more" if len(side.unmatched_names) > _NAMES else ""
    verb = "has" if side.unmatched == 1 else "have"
    return f"{side.unmatched:,} of {count_text(side.ops, 'op')} of {letter} {verb} no counterpart{shown}{more}"


def by_how_much(values: Iterable[float | None], dear: str) -> str:
    """Return a difference of A and B with the ends of its interval: `: +118.2 J (95% CI 109.3 .. 127.1)`."""
    value, low, high = (math.nan if each is None else each for each in values)
    if not math.isfinite(value):
        return ""
    if dear == "B":
        value, low, high = -value, -high, -low
    sign = "+" if value >= 0 else ""
    if not (math.isfinite(low) and math.isfinite(high)):
        return f": {sign}{in_one_unit([value])[0]}"
    low_text, high_text, shown = in_one_unit([low, high, value])
    return f": {sign}{shown} (95% CI {low_text} .. {high_text})"


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0.0 else math.inf


def _device(side: DiffSide) -> str:
    words = [side.device] if side.device else []
    if side.clock_mhz is not None and math.isfinite(side.clock_mhz):
        words.append(f"{round(side.clock_mhz)} MHz")
    if side.temperature_c is not None and math.isfinite(side.temperature_c):
        words.append(f"{round(side.temperature_c)} °C")
    return ", ".join(words)


def _ledger(ledger: Ledger, words: Mapping[str | None, str]) -> str:
    counted = [row for row in ledger.domains if row.counted]
    if not counted:
        return "not measured"
    sources: dict[str, list[str]] = {}
    for row in counted:
        sources.setdefault(row.metered.source, []).append(row.domain)
    meters = ", ".join(f"{', '.join(names)} {source}" for source, names in sources.items())
    if ledger.split == "replayed" and words is _SPLIT:
        return f"{meters}, split by replay ({count_text(ledger.distinct_ops, 'op')})"
    return f"{meters}, {words.get(ledger.split, words[None])}"
