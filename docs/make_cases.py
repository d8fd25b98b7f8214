"""Write docs/cases.md, the README's part on cases, and `[[measured]]` in case.toml: python docs/make_cases.py

The texts depend only on the library and on the recordings in tests/golden/cases, a folder for each machine. With
--check nothing is written, and the exit code is 1 if something would change.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joulediff.cases.case import FILE, Case, Measured, Origin
from joulediff.cases.judge import Judgement, kind_text
from joulediff.cases.judgement_report import WRONG, cases_table, totals_text
from joulediff.cases.library import find_cases
from joulediff.cases.results import judge_diff, read_results
from joulediff.cases.run import DIFF
from joulediff.model.diff import Diff, Ratio
from joulediff.model.finding import Finding
from joulediff.model.units import format_share
from joulediff.report.json.diff import diff_from_json
from joulediff.report.sanitize import plain_record
from joulediff.report.views.diff_sentences import headline, side_texts
from joulediff.report.views.finding_sentences import file_names, finding_facts, mark_text
from joulediff.report.views.short_texts import count_text, ratio_text

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path("tests/golden/cases")
# If a case was recorded on several machines, the page shows the first.
MACHINES = ("h200", "cpu")
WIDTH = 120
BEGIN, END = "<!-- cases: docs/make_cases.py writes this part -->", "<!-- end of cases -->"
NOT_RECORDED = "not recorded yet"
_MEASURED = "[[measured]]\n"
_BEST = 3
_ISSUE = re.compile(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)")
_RIGHT = ("step", "region", "by J", "by s", "saves")
_HEADS = ("case", "on", "step", "region", "by J", "by s", "kind", "key", "line", "saves", "proof", "outcome")
_ORIGINS: dict[Origin, tuple[str, str]] = {
    "published": ("Published", "Reported by others: each links to its report."),
    "ours": ("Ours", "Found in released versions of libraries while joulediff was made."),
}
_INTRODUCTION = """\
# Known wastes of energy

A case is a known waste of energy as two programs with the same result: A wastes energy, B does not.
`joulediff cases run` records both, compares them, and judges whether the diff names the waste.
[Add a case](add-a-case.md) explains the files of a case and how it is judged.

```console
$ joulediff cases list                              # all cases, and which can run here
$ joulediff cases show {id:<29}# one case; --programs shows both programs
$ joulediff cases run {id:<30}# record both programs, compare, judge
$ joulediff cases run --all --keep kept             # all that can run here, half a minute each
$ joulediff cases judge kept                        # judge the kept results again, without the device
$ joulediff cases recompute kept                    # the same, and store the judgements that changed
```

| option of `run` | meaning |
| --- | --- |
| `--all`, `--only published` or `ours` | every case, or those of one origin |
| `--device cuda` or `cpu` | where to run; by default the GPU if there is one |
| `--size small` or `large` | how much work; by default `large` on a GPU, `small` on a CPU |
| `--lean` | run the lean program on both sides; a finding is an error |
| `--confirm` | also measure the whole program with each fix that can be applied from outside |
| `--keep FOLDER` | keep recordings, diffs and `results.json`, written after each case |
| `--skip-done` | leave out cases that have a result in FOLDER: continues a run that was stopped |
| `--limit SECONDS` | a case that takes longer fails, and the next one runs; by default 400 |
| `--budget SECONDS` | begin no case after that time |
| `--json FILE`, `--markdown FILE` | write the table to FILE |

Exit code 0: every case that ran is found or fixed upstream; 3: one is not; 1: an error before any case.
The recordings of this page are in `{golden}`: `joulediff cases judge` judges them again, and
`joulediff render` shows each diff.

**Found** means: the first finding against the wasteful program has the right kind (misconfiguration, API misuse,
redundant, host), the right key (the setting, argument, call or operator) and the right line, and it is confirmed.
**Partly**: its kind, key, line or proof is not right. **Missed**: no finding. **Failed**: a program could not be run or
measured, or took too long; such a case stays in the table. **Fixed upstream**: the case says that newer versions do not
waste energy, and the measurement agrees.

| column | meaning |
| --- | --- |
| on | the device; without a sensor, energy is estimated |
| step | energy of a whole step, wasteful over lean, with its 95 % interval; `~` if that contains 1 |
| region | energy of the finding's region, wasteful over lean; `only A` if the lean program has no such work |
| by J, by s | the rank of the finding's costliest operators in a profile of A, by energy and by time |
| kind, key | those of the finding; `✗` marks a wrong one |
| line | whether the finding names a right line: that of the cause, or the user's call that leads to it |
| saves | the share of a step's energy that the fix saves, from its trial |
| proof | one of the three words below |

- `cause confirmed`: the named thing itself, and nothing else, was changed in the wasteful program. Its energy fell to
  that of the lean one, and its outputs were compared and stay.
- `replacement confirmed`: the operators of the lean program, on the tensors of the wasteful one, cost less and give
  equal outputs. The named cause itself was not changed.
- `observed`: no trial succeeded.
"""
_WRITTEN = "`python docs/make_cases.py` writes this page from the library and the recordings."


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case with its judgement and the diff that was recorded of it; a case that failed has no diff."""

    case: Case
    diff: Diff | None
    judged: Judgement

    @property
    def finding(self) -> Finding | None:
        """The finding that is judged."""
        findings = () if self.diff is None else self.diff.findings
        return next((each for each in findings if each.id == self.judged.finding), None)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the files that changed, or with --check only name them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Write nothing; exit code 1 if something would change.")
    check = parser.parse_args(arguments).check
    changed = [(path, text) for path, text in _make_texts(root).items() if _read(path) != text]
    for path, text in changed:
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
        sys.stderr.write(f"{path.relative_to(root)} {'would change' if check else 'written'}\n")
    return 1 if changed and check else 0


def _make_texts(root: Path) -> dict[Path, str]:
    """Return each generated file with its text."""
    cases = find_cases(root / "src/joulediff/cases/library")
    recorded = _read_recorded(root / GOLDEN, cases)
    texts = {root / "docs/cases.md": _make_page(cases, recorded)}
    readme = root / "README.md"
    texts[readme] = put_between(_read(readme) or "", _make_part(cases, recorded))
    for found in recorded.values():
        path = found.case.folder / FILE
        texts[path] = put_measured(_read(path) or "", _measured_of(found))
    return texts


def _read_recorded(folder: Path, cases: Sequence[Case]) -> dict[str, Recorded]:
    """Return the recorded cases of a folder, by id, in the order of the library."""
    kept: dict[str, Path | Judgement] = {}
    for machine in reversed(MACHINES):
        kept |= {each.case: each for each in _read_failed(folder / machine)}
        kept |= {path.parent.name: path.parent for path in folder.glob(f"{machine}/*/{DIFF}")}
    if unknown := kept.keys() - {case.id for case in cases}:
        raise SystemExit(f"{folder} keeps {', '.join(sorted(unknown))}, which the library does not have")
    return {case.id: _read_one(case, kept[case.id]) for case in cases if case.id in kept}


def _read_failed(folder: Path) -> Iterator[Judgement]:
    """Yield the cases of a machine that failed, with the device that most of its cases ran on."""
    results = read_results(folder)
    devices = Counter(each.device for each in results if each.device)
    for each in results:
        if each.outcome == "failed":
            yield replace(each, device=max(devices, key=devices.__getitem__, default=""))


def _make_page(cases: Sequence[Case], recorded: Mapping[str, Recorded]) -> str:
    """Return docs/cases.md."""
    best = best_of(recorded)
    example = best[0].case.id if best else cases[0].id
    golden = GOLDEN / MACHINES[0]
    introduction = _INTRODUCTION.format(id=example, golden=f"{golden.as_posix()}/").rstrip()
    parts = [introduction, _wrap(f"{_totals(cases, recorded)}. {_WRITTEN}")]
    for origin, (head, about) in _ORIGINS.items():
        own = [case for case in cases if case.origin == origin]
        if own:
            parts += [f"## {head}", about, "\n".join(_table(own, recorded))]
    parts += ["## Each case", *(part for case in cases for part in _paragraphs(case, recorded.get(case.id)))]
    return "\n\n".join(parts) + "\n"


def _make_part(cases: Sequence[Case], recorded: Mapping[str, Recorded]) -> str:
    """Return the part of the README: the outcomes, and the best cases in a line each."""
    outcomes = Counter(found.judged.outcome for found in recorded.values())
    counts = [f"{outcomes['found']} found and confirmed"]
    counts += [f"{count} {outcome}" for outcome, count in outcomes.items() if outcome != "found"]
    counts += [f"{missing} {NOT_RECORDED}"] if (missing := len(cases) - len(recorded)) else []
    text = f"{count_text(len(cases), 'known case')} of wasted energy, two programs each: {', '.join(counts)}. "
    text += "[Every case with its numbers](docs/cases.md), and [how to add one](docs/add-a-case.md)."
    lines = [_wrap(_best_text(found), first="- ", hang="  ") for found in best_of(recorded)]
    return "\n\n".join(filter(None, [_wrap(text), "\n".join(lines)]))


def best_of(recorded: Mapping[str, Recorded]) -> list[Recorded]:
    """Return the metered cases whose fixes save most: the best of each kind, then the next best."""
    judged = [(found.judged.saved_share or 0.0, found) for found in recorded.values() if _is_shown(found)]
    order = [found for _, found in sorted(judged, key=lambda each: (-each[0], each[1].case.id))]
    firsts = list({found.case.kind: found for found in reversed(order)}.values())
    chosen = [*(found for found in order if found in firsts), *(found for found in order if found not in firsts)][
        :_BEST
    ]
    return [found for found in order if found in chosen]


def _measured_of(found: Recorded) -> Measured | None:
    """Return the measurement for case.toml; None if the energies cannot be compared."""
    ratio, diff = found.judged.end_to_end, found.diff
    if ratio is None or diff is None:
        return None
    times = _time_ratio(diff)
    region = found.judged.region_ratio
    told = "" if region is None else f"; the finding's own energy {ratio_text(region)}"
    note = f"within noise{told}" if _is_noise(ratio) else ""
    time_ratio = None if times is None else round(times, 3)
    date = diff.created[:10]
    return Measured(found.judged.device, date, found.judged.versions, round(ratio.value, 3), time_ratio, note)


def put_measured(text: str, measured: Measured | None) -> str:
    """Return a case.toml with `measured` as its last section; those of other devices stay before it."""
    if measured is None:
        return text
    device = f"device = {_quoted(measured.device)}"
    head, *old = re.split(rf"(?m)^{re.escape(_MEASURED)}", text)
    entries = {name: getattr(measured, name) for name in Measured.__dataclass_fields__}
    known = {name: value for name, value in entries.items() if value not in (None, "")}
    new = "\n".join(f"{name} = {_quoted(value)}" for name, value in known.items())
    kept = [each.strip() for each in old if device not in each.splitlines()]
    return f"{head.rstrip()}\n" + "".join(f"\n{_MEASURED}{each}\n" for each in [*kept, new])


def put_between(text: str, part: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Return a text with `part` between the two marks."""
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise SystemExit(f"README.md has no such part: put {marks[0]} and {marks[1]} where it belongs")
    return f"{before}{begin}\n{part}\n{end}{after}"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _read_one(case: Case, kept: Path | Judgement) -> Recorded:
    if isinstance(kept, Judgement):
        return Recorded(case, None, plain_record(kept))
    diff = diff_from_json((kept / DIFF).read_bytes())
    return Recorded(case, plain_record(diff), plain_record(judge_diff(case, kept)))


def _totals(cases: Sequence[Case], recorded: Mapping[str, Recorded]) -> str:
    missing = len(cases) - len(recorded)
    if not recorded:
        return f"{count_text(missing, 'case')} {NOT_RECORDED}"
    devices = dict.fromkeys(found.judged.device for found in recorded.values())
    told = []
    for device in devices:
        own = [found for found in recorded.values() if found.judged.device == device]
        told.append(f"{device}{_span_text(own)}: {totals_text([found.judged for found in own])}")
    return "; ".join([f"Recorded on {told[0]}", *(f"on {each}" for each in told[1:])]) + (
        f"; {missing} {NOT_RECORDED}" if missing else ""
    )


def _span_text(recorded: Sequence[Recorded]) -> str:
    """Return when cases were recorded: ` (2026-11-16 05:13 to 05:45 UTC)`. Several calls may have recorded them."""
    times = sorted(found.diff.created for found in recorded if found.diff is not None)
    if not times:
        return ""
    (first_day, first), (last_day, last) = ((each[:10], each[11:16]) for each in (times[0], times[-1]))
    end = "" if times[0] == times[-1] else f" to {last}" if first_day == last_day else f" to {last_day} {last}"
    return f" ({first_day} {first}{end} UTC)"


def _table(cases: Sequence[Case], recorded: Mapping[str, Recorded]) -> Iterator[str]:
    yield _row(_HEADS)
    yield _row(["--:" if head in _RIGHT else "---" for head in _HEADS])
    for case in cases:
        link = f"[{case.id}](#{case.id.lower()})"
        found = recorded.get(case.id)
        yield _row([link, *(["-"] * (len(_HEADS) - 2) + [NOT_RECORDED] if found is None else _cells(found.judged))])


def _cells(judged: Judgement) -> list[str]:
    (line,) = cases_table([judged]).lines
    key = line.key if judged.told_key is None else f"`{judged.told_key}`{'' if judged.key_right else f' {WRONG}'}"
    saves = "-" if judged.saved_share is None else format_share(judged.saved_share)
    ranks = [line.rank_energy, line.rank_time]
    step = _ratio_text(judged.end_to_end)
    machine = judged.device.removeprefix("NVIDIA ").partition(",")[0] or "-"
    return [machine, step, line.region, *ranks, line.kind, key, line.line, saves, line.proof, line.outcome]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _paragraphs(case: Case, found: Recorded | None) -> Iterator[str]:
    yield f"### {case.id}"
    links = [_link(link) for link in case.links]
    yield _wrap(f"**{case.title}** ({', '.join([case.system, *links])}). {case.about}")
    told = (("Expected", case.expected), ("The programs", case.differs), ("Fixed", case.fixed))
    facts = [_wrap(f"{name}: {text}", first="- ", hang="  ") for name, text in told if text]
    if facts:
        yield "\n".join(facts)
    if found is None:
        yield f"{NOT_RECORDED.capitalize()}."
        return
    if found.diff is None:
        yield _wrap(f"Failed: {found.judged.note}.")
        return
    yield _wrap(_measured_text(found, found.diff))
    yield f"```text\n{_told_text(found, found.diff)}\n```"


def _measured_text(found: Recorded, diff: Diff) -> str:
    judged = found.judged
    (_, _, a, _), (_, _, b, _) = side_texts(diff)
    versions = f" with {judged.versions}" if judged.versions else ""
    text = f"Measured on {judged.device}{versions}, {diff.created[:10]}: {a} a step, lean {b}"
    times = _time_ratio(diff)
    ratios = [f"{_ratio_text(judged.end_to_end)} the energy"] if judged.end_to_end is not None else []
    ratios += [f"{ratio_text(times)} the time"] if times is not None else []
    note = f" ({judged.note})" if judged.note and judged.outcome != "fixed upstream" else ""
    return f"{'; '.join([text, *filter(None, [', '.join(ratios)])])}. Judged: {judged.outcome}{note}."


def _told_text(found: Recorded, diff: Diff) -> str:
    """Return the facts of the judged finding, or the headline if there is none."""
    finding = found.finding
    if finding is None:
        return _wrap(f"{headline(diff)} There is no finding against the wasteful program.")
    shown = list(finding_facts(finding, file_names([finding]), diff.thresholds))
    facts = {fact.key: fact.text for fact in reversed(shown)}
    place = finding.cause.location_a
    is_told = place is None or f"{place.file}:{place.line}" in finding.suggestion
    facts["cause"] = " ".join(filter(None, [facts["cause"], mark_text(finding)]))
    keys = ("cause", *(() if is_told else ("A",)), "fix", "look", "price", "proof")
    return "\n".join(_wrap(facts[key], first=f"{key:5}  ", hang=" " * 7) for key in keys if key in facts)


def _best_text(found: Recorded) -> str:
    judged, case = found.judged, found.case
    share = format_share(judged.saved_share or 0.0)
    told = "" if judged.told_kind is None else f"{kind_text(judged.told_kind)}, `{judged.told_key}`"
    what = f"**{case.title}** ({case.system}): {told}; the fix saves {share} of a step's energy"
    return f"{what}: `joulediff cases run {case.id}`"


def _is_shown(found: Recorded) -> bool:
    judged, energy = found.judged, None if found.diff is None else found.diff.a.step.energy
    is_metered = energy is not None and energy.source == "metered"
    return (
        is_metered
        and not found.case.stand_in
        and judged.outcome == "found"
        and judged.verdict == "waste"
        and judged.saved_share is not None
    )


def _is_noise(ratio: Ratio) -> bool:
    return ratio.low <= 1.0 <= ratio.high


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "?"
    low, high = (ratio_text(end).removesuffix("x") for end in (ratio.low, ratio.high))
    return f"{'~' if _is_noise(ratio) else ''}{ratio_text(ratio.value)} ({low} .. {high})"


def _time_ratio(diff: Diff) -> float | None:
    a_s, b_s = diff.a.step.step_s, diff.b.step.step_s
    return a_s / b_s if a_s and b_s else None


def _link(link: str) -> str:
    issue = _ISSUE.fullmatch(link)
    return f"[{issue[1]}#{issue[2]}]({link})" if issue else f"[{link.partition('://')[2]}]({link})"


def _quoted(value: str | float) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wrap(text: str, *, first: str = "", hang: str = "") -> str:
    fill = textwrap.TextWrapper(WIDTH, first, hang, break_long_words=False, break_on_hyphens=False).fill
    return fill(" ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
