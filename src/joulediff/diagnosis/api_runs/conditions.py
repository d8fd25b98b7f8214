"""Compare how two scripts were measured; differences are reported before any result.

A serious difference makes joules incomparable: another device or meter, or a program that did not run to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from joulediff.model.apis.api_run import ApiRun
from joulediff.model.diff import ConditionDifference


def compare_measuring(a: ApiRun, b: ApiRun) -> tuple[ConditionDifference, ...]:
    """Return the conditions that differ, serious ones first."""
    found = [*_meters(a, b), *_endings(a, b), *_options(a, b), *_versions(a, b)]
    return tuple(sorted(found, key=lambda each: not each.serious))


def _meters(a: ApiRun, b: ApiRun) -> Iterator[ConditionDifference]:
    counted = [{name: each for name, each in run.domains.items() if each.counted} for run in (a, b)]
    if counted[0].keys() != counted[1].keys():
        left, right = (", ".join(sorted(each)) or "nothing" for each in counted)
        yield ConditionDifference("metered", left, right, serious=True)
    for name in sorted(counted[0].keys() & counted[1].keys()):
        mine, other = counted[0][name], counted[1][name]
        for what, left, right in (
            ("device", mine.device, other.device),
            ("source", mine.source, other.source),
            ("meter", mine.kind, other.kind),
        ):
            if left != right:
                yield ConditionDifference(f"{what} of {name}", left, right, serious=True)


def _endings(a: ApiRun, b: ApiRun) -> Iterator[ConditionDifference]:
    left, right = (each.ending if each.exit_code == 0 else f"{each.ending} {each.exit_code}" for each in (a, b))
    if left != right:
        yield ConditionDifference("end of the program", left, right, serious=True)


def _options(a: ApiRun, b: ApiRun) -> Iterator[ConditionDifference]:
    for what, left, right in (
        ("synchronised calls", a.synchronised, b.synchronised),
        ("calls measured alone", a.isolated, b.isolated),
        ("libraries measured", ", ".join(sorted(a.libraries)), ", ".join(sorted(b.libraries))),
        ("machine", a.machine, b.machine),
    ):
        if left != right:
            yield ConditionDifference(what, left, right, serious=False)


def _versions(a: ApiRun, b: ApiRun) -> Iterator[ConditionDifference]:
    if a.python != b.python:
        yield ConditionDifference("Python", a.python, b.python, serious=False)
    for name in sorted({*a.versions, *b.versions}):
        left, right = a.versions.get(name), b.versions.get(name)
        if left != right:
            yield ConditionDifference(name, left, right, serious=False)
