"""Judge a diff of a case's programs: is its first finding against the wasteful one the known waste?

Nothing is measured here: a stored diff can be judged again at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from joulediff.cases.answer import Answer, first_against
from joulediff.cases.case import Case
from joulediff.energy.ledger import open_books
from joulediff.frameworks.framework import frameworks
from joulediff.model.diff import Diff
from joulediff.model.energy import Ratio
from joulediff.model.finding import Finding, FindingKind, ProofWord, Verdict
from joulediff.model.run import Run
from joulediff.report.views.run.rows import RunRow, group_rows
from joulediff.report.views.short_texts import count_text

Outcome = Literal["found", "partly", "missed", "failed", "fixed upstream", "not run", "clean", "false alarm"]
GOOD: tuple[Outcome, ...] = ("found", "fixed upstream", "clean")
STILL_THERE = "the case is marked as fixed, but the waste is still there"
_KINDS: dict[FindingKind, str] = {"api_misuse": "API misuse"}


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The fields of a stored result that were computed anew, from which files, and with which version."""

    fields: tuple[str, ...]
    sources: tuple[str, ...] = field(metadata={"name": "from"})
    version: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a case. A field is None if it is unknown, or if there is no finding.

    - `found`: the first finding against the wasteful program has a right kind, key and line, and is confirmed.
    - `partly`: there is a finding against it, but the kind, key, line or proof of the first one is not right, or its
      step uses less energy.
    - `missed`: there is no finding against it.
    - `failed`: a program failed, or its stored files cannot be read.
    - `fixed upstream`: the case is marked as fixed, and the two programs use the same energy.
    - `clean`, `false alarm`: the lean program compared with itself, without and with a finding.
    """

    case: str
    outcome: Outcome
    detected: bool = False
    kind_right: bool = False
    key_right: bool = False
    line_right: bool = False
    proof: ProofWord | None = None
    finding: str | None = None
    """The id of the judged finding; ids count from 1."""
    end_to_end: Ratio | None = None
    """Energy of the wasteful step over that of the lean one."""
    saved_share: float | None = None
    whole_saved_share: float | None = None
    region_ratio: float | None = None
    region_delta_j: float | None = None
    rank_energy: int | None = None
    """The rank of the finding's costliest operators in the wasteful run; 1 is the costliest."""
    rank_time: int | None = None
    told_kind: FindingKind | None = None
    told_key: str | None = None
    told_line: str | None = None
    """The text of the line of the wasteful program that the finding names."""
    verdict: Verdict | None = None
    seconds: float | None = None
    note: str = ""
    device: str = ""
    versions: str = ""
    recomputed: Recomputed | None = None
    """Set if `joulediff cases recompute` changed fields after the recording."""

    @property
    def confirmed(self) -> bool:
        """Whether a trial confirmed the cause or a replacement."""
        return self.proof is not None and self.proof != "observed"

    @property
    def right(self) -> bool:
        """Whether kind, key and line of the first finding are right."""
        return self.kind_right and self.key_right and self.line_right


def all_good(judgements: Sequence[Judgement]) -> bool:
    """Return whether every case that ran has a good outcome."""
    return all(each.outcome in (*GOOD, "not run") for each in judgements)


def judge(case: Case, diff: Diff, wasteful: Run | None, seconds: float | None) -> Judgement:
    """Return the judgement of a diff of the wasteful program (A) and the lean one (B)."""
    finding = first_against(diff)
    judged = _of_diff(case, diff, wasteful, seconds)
    if case.fixed and _no_more(diff) and not any(_is_answer(case.answer, each) for each in diff.findings):
        return replace(judged, outcome="fixed upstream", note=_energy_text(diff))
    notes = [STILL_THERE] if case.fixed and diff.comparable and diff.ratio is not None else []
    if finding is None:
        return replace(judged, outcome="missed", note="; ".join([*notes, _why_missed(diff)]))
    judged = _of_finding(judged, case, finding, wasteful)
    if judged.right and judged.confirmed:
        if diff.ratio is not None and diff.comparable and diff.ratio.high < 1.0:
            told = f"the lean program uses more energy: {_energy_text(diff)}"
            return replace(judged, outcome="partly", note="; ".join([*notes, told]))
        return replace(judged, outcome="found", note="; ".join(notes))
    return replace(judged, outcome="partly", note="; ".join([*notes, _why_partly(case, judged)]))


def judge_same(case: Case, diff: Diff, wasteful: Run | None, seconds: float | None) -> Judgement:
    """Return the judgement of a diff of the lean program with itself: any finding is a false alarm."""
    judged = _of_diff(case, diff, wasteful, seconds)
    if not diff.comparable or diff.ratio is None:
        return replace(judged, outcome="missed", note=_why_missed(diff))
    if not diff.findings:
        return replace(judged, outcome="clean", note=_energy_text(diff))
    first = diff.findings[0]
    note = f"{count_text(len(diff.findings), 'finding')}, the first: {told_text(first.kind, first.cause.key)}"
    judged = _of_finding(judged, case, first, wasteful)
    return replace(judged, outcome="false alarm", kind_right=False, key_right=False, line_right=False, note=note)


def _of_diff(case: Case, diff: Diff, wasteful: Run | None, seconds: float | None) -> Judgement:
    versions = "" if wasteful is None else _versions(case, wasteful)
    ratio = diff.ratio if diff.comparable else None
    return Judgement(case.id, "missed", end_to_end=ratio, seconds=seconds, device=diff.a.device, versions=versions)


def _of_finding(judged: Judgement, case: Case, finding: Finding, wasteful: Run | None) -> Judgement:
    answer, proof = case.answer, finding.proof.confirmation
    whole = None if proof is None else proof.whole
    ranks = (None, None) if wasteful is None else rank_finding(wasteful, finding)
    return replace(
        judged,
        detected=True,
        kind_right=answer.has_kind(finding),
        key_right=answer.has_key(finding),
        line_right=answer.has_line(finding),
        proof=finding.proof.word,
        finding=finding.id,
        saved_share=None if proof is None else proof.saved_share,
        whole_saved_share=None if whole is None else whole.saved_share,
        region_ratio=finding.cost.ratio,
        region_delta_j=finding.cost.delta_j,
        rank_energy=ranks[0],
        rank_time=ranks[1],
        told_kind=finding.kind,
        told_key=finding.cause.key,
        told_line=answer.told_line(finding),
        verdict=finding.verdict,
    )


def kind_text(kind: FindingKind) -> str:
    """Return a kind of waste as text."""
    return _KINDS.get(kind, kind)


def kinds_text(case: Case) -> str:
    """Return the kinds that are right for a case: `API misuse, or redundant`."""
    return ", or ".join(kind_text(kind) for kind in (case.kind, *case.also))


def told_text(kind: FindingKind, key: str | None) -> str:
    """Return a finding in short: `misconfiguration: allow_tf32`."""
    return f"{kind_text(kind)}: {key or 'no key'}"


def _is_answer(answer: Answer, finding: Finding) -> bool:
    return finding.expensive == "a" and answer.has_kind(finding) and answer.has_key(finding)


def _no_more(diff: Diff) -> bool:
    """Return whether A was measured and does not cost more than B by the threshold of a finding."""
    return diff.comparable and diff.ratio is not None and diff.ratio.low <= 1.0 + diff.thresholds.threshold


def _why_missed(diff: Diff) -> str:
    if not diff.comparable:
        return "the energies of the two programs cannot be compared"
    if diff.ratio is None:
        return "the energy of a step is unknown"
    if diff.ratio.high < 1.0:
        return f"the lean program uses more energy: {_energy_text(diff)}"
    what = "no difference measured" if diff.ratio.low <= 1.0 else "a difference without a finding"
    return f"{what}: {_energy_text(diff)}"


def _why_partly(case: Case, judged: Judgement) -> str:
    assert judged.told_kind is not None
    if judged.right:
        return "not confirmed"
    if judged.kind_right and judged.key_right:
        return f"reported the line {judged.told_line or '(none of the program)'}; expected {' or '.join(case.lines)}"
    wanted = f"{kinds_text(case)}: {' or '.join(case.keys)}"
    return f"reported {told_text(judged.told_kind, judged.told_key)}; expected {wanted}"


def _energy_text(diff: Diff) -> str:
    """Return how the energies compare: `1.00x (0.99 .. 1.01)`."""
    assert diff.ratio is not None
    low, high = (f"{end:.2f}" for end in (diff.ratio.low, diff.ratio.high))
    return f"{diff.ratio.value:.2f}x ({low} .. {high})"


def _versions(case: Case, run: Run) -> str:
    """Return the versions of the packages that a case needs, as recorded in its run."""
    names = dict.fromkeys([*(framework.name for framework in frameworks()), *case.needs])
    found = {name: run.settings.get(f"package.{name}") for name in names}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version is not None)


_NUMBERS = re.compile(r"(?<![^.])\d+(?![^.])")


def rank_finding(run: Run, finding: Finding) -> tuple[int | None, int | None]:
    """Return the rank of the finding's costliest operators in run A, by energy and by device time.

    Operators are grouped as in `joulediff show`. The finding's group is the costliest one with the names of its
    operators and their module. None for findings without operators, and if nothing was measured.
    """
    if finding.kind == "host" or not finding.work.ops_a:
        return None, None
    rows = group_rows(run, "op", open_books(run))
    named = [row for row in rows if row.name in finding.work.ops_a]
    here = [row for row in named if _fold(row.where) == _fold(finding.where)]
    own = max(here or named, key=lambda row: (_joules(row), _seconds(row)), default=None)
    if own is None:
        return None, None
    return _place(_joules(own), map(_joules, rows)), _place(_seconds(own), map(_seconds, rows))


def _fold(where: str) -> str:
    return _NUMBERS.sub("*", where)


def _joules(row: RunRow) -> float:
    return 0.0 if row.energy is None else row.energy.joules


def _seconds(row: RunRow) -> float:
    return row.kernel_s or 0.0


def _place(cost: float, costs: Iterable[float]) -> int | None:
    return 1 + sum(other > cost for other in costs) if cost > 0.0 else None
