"""Compare pairs of programs that the diagnosis was not developed on: is the first finding right?

    python benchmarks/unseen.py                                    # all pairs that waste on this machine's device
    python benchmarks/unseen.py --only stft-two-sided --timings    # one, and where its time goes
    python benchmarks/unseen.py --aa --same-work-counts            # each program with itself: any finding is false
    python benchmarks/unseen.py --device cuda --store tests/unseen/results/final-h200.json --skip-done --budget 480

Each pair is a folder of `tests/unseen` with `wasteful.py`, `lean.py` and `expect.toml`, which has the accepted kinds,
keys and lines of the first finding. `--store` adds a line to a file after each pair, and `--skip-done` continues such a
file; a pair that ran again counts with its last line. A pair that fails, or takes longer than `--limit`, counts as
failed. Recordings and diffs are kept in `.unseen`. docs/make_unseen.py makes docs/unseen.md from the stored files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args

from joulediff.cases import library
from joulediff.cases.case import Case, DeviceName
from joulediff.cases.judgement_report import step_text
from joulediff.cases.run import Job, JobOptions, JobResult, ProgramName
from joulediff.cases.run_all import LIMIT_S, run_all
from joulediff.model.diff import Diff
from joulediff.model.energy import Ratio
from joulediff.model.finding import Finding, FindingKind
from joulediff.model.options import CASE_OPTIONS
from joulediff.model.progress import StageTimes
from joulediff.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ROOT / "tests" / "unseen"
FILE = "expect.toml"
CLASSES = (
    *("argument", "shape", "state", "host", "repetition", "setting", "layout", "call", "redundancy"),
    *("optimizer", "training", "systems"),
)


@dataclass(frozen=True)
class Expected:
    """`expect.toml` of a pair."""

    title: str
    waste: str = field(metadata={"name": "class"})
    source: str = ""
    kinds: tuple[FindingKind, ...] = ()
    keys: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    devices: tuple[DeviceName, ...] = ()
    confirmable: bool = True


@dataclass(frozen=True)
class Pair:
    """Two programs and the expected finding."""

    folder: Path
    expected: Expected

    @property
    def case(self) -> Case:
        """The pair as a case, so that it runs and is judged like one."""
        wanted = self.expected
        return Case(
            self.folder,
            title=wanted.title,
            system=wanted.waste,
            origin="ours",
            kind=wanted.kinds[0],
            also=wanted.kinds[1:],
            keys=wanted.keys,
            lines=wanted.lines,
            devices=wanted.devices,
            about=wanted.title,
            links=(wanted.source,),
        )


@dataclass(frozen=True)
class Told:
    """One finding of a diff."""

    kind: str
    key: str | None
    line: str | None
    proof: str
    expensive: str
    accepted: bool
    """Its kind, key and line are accepted ones, and it is against the wasteful program."""


@dataclass(frozen=True)
class Record:
    """The result of one diff. `mode` is `pair`, or the program that was compared with itself."""

    pair: str
    mode: str
    waste: str
    device: str
    outcome: str
    ratio: tuple[float, float, float] | None
    expected: str
    told: tuple[Told, ...]
    kind_right: bool
    key_right: bool
    line_right: bool
    told_kind: str | None
    told_key: str | None
    told_line: str | None
    proof: str | None
    confirmable: bool
    seconds: float | None
    note: str
    same_work_counts: bool
    tool: str
    created: str
    versions: str
    machine: str
    timings: Mapping[str, float]
    commit: str = ""
    """The commit of the code that ran, if it is known."""

    @property
    def right(self) -> bool:
        """Whether the first finding against the wasteful program has a right kind, key and line."""
        return self.kind_right and self.key_right and self.line_right

    @property
    def false_confirmed(self) -> int:
        """The number of confirmed findings that are not the expected one."""
        return sum(each.proof != "observed" and not each.accepted for each in self.told)


@dataclass(frozen=True)
class Score:
    """The score of records of pairs."""

    ran: int
    right: int
    cause_confirmed: int
    """Right ones whose cause itself is confirmed."""
    false_confirmed: int
    failed: int

    @property
    def share(self) -> float:
        """The share of pairs that are right."""
        return self.right / self.ran if self.ran else 0.0


def find_pairs(folder: Path = PAIRS) -> list[Pair]:
    """Return the pairs in a folder, by name."""
    return [Pair(path.parent, read_expected(path)) for path in sorted(folder.glob(f"*/{FILE}"))]


def read_expected(path: Path) -> Expected:
    """Return the expected finding in a file; raises ValueError that names a wrong entry."""
    plain = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {"class": "waste"}
    entries = {names.get(name, name): tuple(each) if isinstance(each, list) else each for name, each in plain.items()}
    wanted = {*Expected.__dataclass_fields__}
    if entries.keys() != wanted:
        raise ValueError(f"{path}: missing or unknown: {', '.join(sorted(entries.keys() ^ wanted))}")
    found = Expected(**entries)
    for name, told, words in (
        ("class", (found.waste,), CLASSES),
        ("kinds", found.kinds, get_args(FindingKind)),
        ("devices", found.devices, get_args(DeviceName)),
    ):
        if not told or not set(told) <= set(words):
            raise ValueError(f"{path}: {name} may not be {told}: {', '.join(words)}")
    return found


def score(records: Sequence[Record]) -> Score:
    """Return the score of the records of pairs; programs that were compared with themselves do not count."""
    ran = [each for each in records if each.mode == "pair" and each.outcome != "not run"]
    right = [each for each in ran if each.right]
    return Score(
        len(ran),
        len(right),
        sum(each.proof == "cause confirmed" for each in right),
        sum(each.false_confirmed for each in ran),
        sum(each.outcome == "failed" for each in ran),
    )


def score_text(records: Sequence[Record]) -> str:
    """Return the score as text: pairs, and programs that were compared with themselves."""
    found, parts = score(records), []
    if found.ran:
        of_right = f"{100 * found.cause_confirmed / found.right:.0f} %" if found.right else "-"
        parts.append(
            f"{found.right} of {found.ran} right at the first finding ({100 * found.share:.0f} %), "
            f"{found.cause_confirmed} of these with the cause itself confirmed ({of_right}), "
            f"{found.false_confirmed} false findings that are confirmed, {found.failed} failed"
        )
    alone = [each for each in records if each.mode != "pair" and each.outcome != "not run"]
    if alone:
        bad, failed = (sum(each.outcome == word for each in alone) for word in ("false alarm", "failed"))
        parts.append(f"{len(alone)} programs compared with themselves: {bad} with a finding, {failed} failed")
    return "\n".join(parts) or "nothing ran"


def read_records(path: Path) -> list[Record]:
    """Return the last record of each pair and mode in a file; none if there is no file."""
    if not path.exists():
        return []
    found: dict[tuple[str, str, bool], Record] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        plain = json.loads(line)
        plain["told"] = tuple(Told(**each) for each in plain["told"])
        record = Record(**{**plain, "ratio": plain["ratio"] and tuple(plain["ratio"])})
        found[record.pair, record.mode, record.same_work_counts] = record
    return list(found.values())


def make_record(pair: Pair, job: Job, result: JobResult, timings: Mapping[str, float], commit: str = "") -> Record:
    """Return the result of a job as a record."""
    judged, ratio = result.judgement, result.judgement.end_to_end
    return Record(
        pair=job.case.id,
        mode=job.options.same or "pair",
        waste=pair.expected.waste,
        device=job.device,
        outcome=judged.outcome,
        ratio=None if ratio is None else (ratio.value, ratio.low, ratio.high),
        expected=f"{'|'.join(pair.expected.kinds)}: {pair.expected.keys[0]}",
        told=() if result.diff is None else tuple(told_by(pair, each) for each in result.diff.findings),
        kind_right=judged.kind_right,
        key_right=judged.key_right,
        line_right=judged.line_right,
        told_kind=judged.told_kind,
        told_key=judged.told_key,
        told_line=judged.told_line or _place_text(result.diff),
        proof=judged.proof,
        confirmable=pair.expected.confirmable,
        seconds=judged.seconds,
        note=judged.note,
        same_work_counts=job.options.same_work_counts,
        tool=__version__,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=judged.versions,
        machine=judged.device,
        timings=dict(timings),
        commit=commit,
    )


def told_by(pair: Pair, finding: Finding) -> Told:
    """Return one finding, and whether it is the expected one."""
    answer = pair.case.answer
    accepted = finding.expensive == "a" and answer.has_key(finding) and answer.has_line(finding)
    line = answer.told_line(finding)
    return Told(finding.kind, finding.cause.key, line, finding.proof.word, finding.expensive, accepted)


def _place_text(diff: Diff | None) -> str | None:
    """Return the place of the first finding's cause, for one that names no line of the program."""
    first = None if diff is None else next(iter(diff.findings), None)
    place = None if first is None else first.cause.locations.of(first.expensive)
    return None if place is None else f"({Path(place.file).name}:{place.line} {place.text or ''})"


def show(record: Record) -> None:
    """Print a record in a line, and below it what is not right."""
    ratio = "" if record.ratio is None else step_text(Ratio(*record.ratio))
    if record.mode != "pair":
        told = "; ".join(f"{each.kind}: {each.key} ({each.proof})" for each in record.told)
        print(
            f"{record.pair:32} {record.mode:10} {ratio:>7} {record.outcome:12} {_s(record)}  {told or record.note}",
            flush=True,
        )
        return
    marks = "".join(
        word if is_right else "-"
        for word, is_right in (("K", record.kind_right), ("N", record.key_right), ("L", record.line_right))
    )
    told = f"{record.told_kind}: {record.told_key}" if record.told_kind else record.note
    right = "right" if record.right else "WRONG"
    false = f"  {record.false_confirmed} FALSE" if record.false_confirmed else ""
    print(
        f"{record.pair:32} {record.waste:10} {ratio:>7} {right} {marks} {record.proof or '-':21} {_s(record)}  "
        f"{told}  <{record.expected}>{false}\n    line: {record.told_line or '-'}",
        flush=True,
    )
    for each in record.told[1:]:
        print(f"    also: {each.kind}: {each.key} ({each.proof}, against {each.expensive})  {each.line or '-'}")


def _s(record: Record) -> str:
    return f"{record.seconds or 0.0:5.0f} s"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=get_args(DeviceName), help="[cuda if there is a GPU, else cpu]")
    parser.add_argument("--only", metavar="NAME,...", help="Run only these pairs.")
    parser.add_argument("--store", "--json", type=Path, metavar="OUT", help="Add a line with each result to this file.")
    parser.add_argument("--skip-done", action="store_true", help="Leave out pairs that have a line in OUT.")
    parser.add_argument("--aa", action="store_true", help="Compare each program with itself instead.")
    parser.add_argument("--same-work-counts", action="store_true", help="Test rows with the same work as well.")
    parser.add_argument("--timings", action="store_true", help="Print the seconds of each stage.")
    parser.add_argument("--seconds", type=float, default=CASE_OPTIONS.seconds)
    parser.add_argument("--replay-seconds", type=float, default=CASE_OPTIONS.replay_seconds)
    parser.add_argument("--wait", type=float, default=CASE_OPTIONS.wait_s)
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="Seconds after which a pair fails.")
    parser.add_argument("--budget", type=float, default=float("inf"), help="Seconds after which no pair is begun.")
    parser.add_argument("--keep", type=Path, default=Path(".unseen"), help="Folder for recordings and diffs.")
    parser.add_argument("--commit", default=None, help="The commit of this code.  [that of the checkout]")
    parser.add_argument("--pairs", type=Path, default=PAIRS, help="Folder of the pairs.")
    chosen = parser.parse_args(words)
    device: DeviceName = chosen.device or ("cuda" if library.has_nvidia() else "cpu")
    if device == "cpu":  # the programs take the GPU if they see one
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    pairs = {each.folder.name: each for each in find_pairs(chosen.pairs)}
    names = chosen.only.split(",") if chosen.only else list(pairs)
    if unknown := [name for name in names if name not in pairs]:
        parser.error(f"no pair is called {unknown[0]}")
    before = read_records(chosen.store) if chosen.store is not None else []
    jobs = list(make_jobs([pairs[name] for name in names], device, chosen))
    if chosen.skip_done:
        done = {(each.pair, each.mode, each.same_work_counts) for each in before}
        jobs = [
            job for job in jobs if (job.case.id, job.options.same or "pair", job.options.same_work_counts) not in done
        ]
    commit = find_commit() if chosen.commit is None else chosen.commit
    records, begin_s, watches = [], time.monotonic(), {}

    def open_listener(_: int, job: Job) -> StageTimes:
        return watches.setdefault(id(job), StageTimes())

    with closing(run_all(jobs, open_listener, limit_s=chosen.limit)) as running:
        for job, result in running:
            if result.judgement.outcome == "not run":
                continue
            watch = watches.setdefault(id(job), StageTimes())
            watch.stop()
            record = make_record(pairs[job.case.id], job, result, watch.seconds, commit)
            records.append(record)
            show(record)
            if chosen.timings:
                for stage, seconds in sorted(watch.seconds.items(), key=lambda each: -each[1])[:12]:
                    print(f"    {seconds:6.1f} s  {stage}")
            if chosen.store is not None:
                chosen.store.parent.mkdir(parents=True, exist_ok=True)
                with chosen.store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
            if time.monotonic() - begin_s > chosen.budget:
                print("the budget is spent: the other pairs are not run")
                break
    print(score_text(records))
    everything = read_records(chosen.store) if chosen.store is not None else []
    if len(everything) > len(records):
        print(f"in {chosen.store}:\n{score_text(everything)}")
    is_good = all(each.right or each.outcome == "clean" for each in records)
    return 0 if is_good and not any(each.false_confirmed for each in records) else 1


def find_commit() -> str:
    """Return the commit of the checkout, with a + if files changed since; empty where there is none."""
    try:
        found = [
            subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "src"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{found[0]}{'+' if found[1] else ''}"


def make_jobs(pairs: Sequence[Pair], device: DeviceName, chosen: argparse.Namespace) -> Iterator[Job]:
    """Yield the diffs to run."""
    recording = replace(CASE_OPTIONS, seconds=chosen.seconds, replay_seconds=chosen.replay_seconds, wait_s=chosen.wait)
    modes: tuple[ProgramName | None, ...] = ("lean", "wasteful") if chosen.aa else (None,)
    for pair in pairs:
        for same in modes:
            options = JobOptions(
                recording,
                device,
                None,
                confirm=False,
                same=same,
                takes_arguments=False,
                same_work_counts=chosen.same_work_counts,
            )
            yield Job(pair.case, device, options, chosen.keep / (same or "pair") / pair.folder.name)


if __name__ == "__main__":
    sys.exit(main())
