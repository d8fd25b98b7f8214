"""What a diff shows beside its findings: the part that nothing explains, and settings that also differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from joulediff.model.diff import Diff, NotExplained, OtherDifference
from joulediff.model.place import Place
from joulediff.model.units import format_energy
from joulediff.report.views.finding_sentences import Fact, line_text, place_text
from joulediff.report.views.short_texts import in_one_unit, value_text

NOT_EXPLAINED = "not explained"
ALSO_DIFFERS = "also differs, not confirmed as a cause"


def not_explained_title(found: NotExplained) -> str:
    """Return the joules that are not explained: `not explained: A uses 7.544 J more (95% CI 5.975 .. 9.112)`."""
    energy = found.energy
    dear, ends = ("A", (energy.low, energy.high)) if energy.joules >= 0 else ("B", (-energy.high, -energy.low))
    low, high, value = in_one_unit([*ends, abs(energy.joules)])
    return f"{NOT_EXPLAINED}: {dear} uses {value} more (95% CI {low} .. {high})"


def not_explained_sentence(diff: Diff) -> str:
    """Return that a part of the difference is not explained; empty if all of it is."""
    found = diff.not_explained
    if found is None:
        return ""
    if not diff.findings:
        return "The difference is not explained: the last lines say where it lies."
    dear = "A" if found.energy.joules >= 0 else "B"
    return f"{format_energy(abs(found.energy.joules))} more in {dear} is not explained."


def not_explained_facts(found: NotExplained, files: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the functions of both sides in which the rest lies, and what differs there."""
    for side, places in (("in A", found.functions_a), ("in B", found.functions_b)):
        yield from (Fact(side, place_text(place, files), is_code=True) for place in places)
    yield from (Fact("differs", text) for text in found.differs)


def not_explained_place(found: NotExplained, files: Mapping[str, str]) -> str:
    """Return the first function of each side in short: `in A hf.py:8 ↔ B lean.py:8`."""
    sides = (("A", found.functions_a), ("B", found.functions_b))
    texts = [f"{side} {line_text(places[0], files)}" for side, places in sides if places]
    return f"in {' ↔ '.join(texts)}" if texts else ""


def places_of(diff: Diff) -> tuple[Place, ...]:
    """Return all places beside those of findings."""
    found = diff.not_explained
    open_places = () if found is None else (*found.functions_a, *found.functions_b)
    set_places = (place for each in diff.also_differs for place in (each.location_a, each.location_b))
    return (*open_places, *(place for place in set_places if place is not None))


def also_differs_texts(diff: Diff, files: Mapping[str, str]) -> list[str]:
    """Return each setting that also differs: `allow_tf32: False ↔ True (A hf.py:3)`; none if no energy differs."""
    if not diff.findings and diff.not_explained is None:
        return []
    return [_difference_text(each, files) for each in diff.also_differs]


def _difference_text(found: OtherDifference, files: Mapping[str, str]) -> str:
    places = (("A", found.location_a), ("B", found.location_b))
    known = ", ".join(f"{side} {line_text(place, files)}" for side, place in places if place is not None)
    values = f"{found.name}: {value_text(found.a)} ↔ {value_text(found.b)}"
    return f"{values} ({known})" if known else values
