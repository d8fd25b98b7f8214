"""Write docs/unseen.md and its part of the README from tests/unseen/results: python docs/make_unseen.py

`benchmarks/unseen.py --store` writes the results, one file for a run. With --check nothing is written, and the exit
code is 1 if something would change.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from joulediff.report.views.short_texts import count_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("tests/unseen/results")
PAGE, README = Path("docs/unseen.md"), Path("README.md")
MARKS = ("<!-- unseen: docs/make_unseen.py writes this part -->", "<!-- end of unseen -->")
# The order of the columns. Files of other names come last.
NAMES = {
    "first-cpu": "first run, CPU",
    "first-cpu-2": "first run of the second set, CPU",
    "first-cpu-3": "first run of the third set, CPU",
    "first-cpu-4": "first run of the fourth set, CPU",
    "first-cpu-5": "first run of the fifth set, CPU",
    "first-cpu-6": "first run of the sixth set, CPU",
    "first-cpu-7": "first run of the seventh set, CPU",
    "first-h200": "first run, H200",
    "final-cpu": "final run, CPU",
    "final-h200": "final run, H200",
    "aa-cpu": "A/A, CPU",
    "aa-h200": "A/A, H200",
}
# A pair has one first run: that of its set.
FIRST = "first-"
SAME_COLUMN = {f"first-cpu-{number}": "first-cpu" for number in (2, 3, 4, 5, 6, 7)}
# Results of this run have no commit: its code did not store one.
COMMITS = {"first-cpu": "5b081df"}
# Commits in the stored results, which stay as recorded, that are mistyped or were rebased: their code is that of these.
MISTYPED = {"5f": "710c41d", "51310b8": "7ab5aef"}
NOT_RUN, NONE = "-", "-"
_INTRODUCTION = """\
# Pairs that nobody tuned for

A diagnosis that was developed on a set of programs says little about others. `tests/unseen` has {count} pairs of
programs with the same result, of which one wastes energy, over {classes} classes of waste. They were written from
public documentation alone, each with its source. The expected kind, key and line of the first finding were committed
before the first run, and neither programs nor expectations were changed after it. Whoever works on the diagnosis reads
no pair before its first run; the table at the end of this page is for everybody else.

There are seven sets. The second one was written when the diagnosis was right on nearly all of the first, by authors who
knew neither the code nor its results. In half of its pairs one thing differs, beside differences that do not matter; in
the other half the two programs look as if two people had written them. Eight pairs of its first run were begun beside a
process that loaded both cores: their intervals were up to ±180 %, and none was right. That run was ended, and all 24
pairs were run with the same code when the process had ended; the table has these results. The third set was written in
the same way while the diagnosis was corrected after the second: five pairs by two people, three in which one thing
differs. Its first run is that of the corrected code. The fourth set measures the code after both: seven pairs by two
people, and seven that are a program before and after a pull request, which removes and adds 38 to 70 lines in all and
wastes energy by one of its changes. The fifth set, three pairs by two people, is too small for a rate; its first run is
that of the code that was corrected after the fourth. The sixth set measures the code after that: six pairs in which one
thing differs, three that are a program before and after a pull request, and three by two people. The seventh set is
made like the sixth one, after the corrections that its results led to.

```console
$ python benchmarks/unseen.py                                       # all pairs that waste energy on this device
$ python benchmarks/unseen.py --only NAME --timings                 # one, and where its time goes
$ python benchmarks/unseen.py --aa --same-work-counts               # each program with itself: any finding is false
$ python benchmarks/unseen.py --store FILE --skip-done --budget 480 # store each result; continue a run that was stopped
```

A pair is **right** if the first finding against the wasteful program has an expected kind, an expected key and an
expected line. Pairs that fail or take longer than their limit count as wrong. A **false ✓** is a confirmed finding that
is not the expected one, at any rank. That counts against the diagnosis also where the programs differ in more than
their authors meant. Of the nine of the final run on a CPU, seven are other calls that cost less for the same result, as
measured (four in umi-fragment-scoring, such as `bitwise_and` in place of `remainder`), and two are the expected waste
under another name. In an A/A run each program is compared with itself, so any finding is false. The first run is the
first time that the pairs of a set were compared, all with the code of one commit, on a machine with other work; it is
never repeated. The final run has the last result of each pair, with the commits in its row. Between the two runs,
results of pairs that were wrong, and the lines in which their programs differ, were read and the diagnosis corrected,
so the final score is one on known programs. The first run of the latest set says most about programs that nobody has
seen. The final run on a CPU favours the diagnosis in one more way: it is no single run of one commit. The pairs of the
first three sets ran again with one commit (688582e; three of them with 380efc3); of the later sets those that were
right at their last run did not run again, and those that were wrong, or whose cause was not confirmed for a reason that
was corrected, did, so its results are put together from several runs. lidar-pillars ran twice after the correction,
first observed and then confirmed: such noise moves the share of confirmed causes by one percent a pair.

## Scores
"""
_KEY = """\
`✓` right, with its word of proof: cause confirmed, replacement confirmed, observed. `✗` wrong, with the kind and key
that were told, and which of kind, key and line is not right. `-` the pair does not waste energy on that device, or was
not run."""
_WRITTEN = "`python docs/make_unseen.py` writes this page from the files in `tests/unseen/results`."


@dataclass(frozen=True)
class Run:
    """The results of one file."""

    name: str
    records: Sequence[Any]

    @property
    def title(self) -> str:
        return NAMES.get(self.name, self.name)

    @property
    def pairs(self) -> dict[str, Any]:
        """The results of pairs, by name."""
        return {each.pair: each for each in self.records if each.mode == "pair"}

    @property
    def alone(self) -> list[Any]:
        """The results of programs that were compared with themselves."""
        return [each for each in self.records if each.mode != "pair"]


def load(file: str) -> ModuleType:
    """Return a script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, ROOT / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


unseen, make_cases = load("benchmarks/unseen.py"), load("docs/make_cases.py")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the files that changed, or with --check only name them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Write nothing; exit code 1 if something would change.")
    check = parser.parse_args(arguments).check
    pairs, runs = unseen.find_pairs(root / "tests" / "unseen"), read_runs(root / RESULTS)
    readme = make_cases.put_between((root / README).read_text(encoding="utf-8"), make_part(pairs, runs), MARKS)
    texts = {PAGE: make_page(pairs, runs), README: readme}
    changed = [path for path, text in texts.items() if _read(root / path) != text]
    for path in changed:
        if not check:
            (root / path).write_text(texts[path], encoding="utf-8", newline="\n")
        sys.stderr.write(f"{path} {'would change' if check else 'written'}\n")
    return 1 if changed and check else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def make_part(pairs: Sequence[Any], runs: Sequence[Run]) -> str:
    """Return the part of the README: the scores in sentences."""
    first = [run for run in runs if run.name.startswith(FIRST) and run.pairs]
    others = [run for run in runs if run.pairs and run not in first]
    text = f"{len(pairs)} more pairs were written before anyone tried them, in {count_text(len(first), 'set')}. "
    if first:
        text += "At the first run of a set, on programs unseen until then, the first finding is right in "
        text += f"{_each_right(first)}. "
    if others:
        text += f"After corrections: {'; '.join(_final_text(pairs, run) for run in others)}. "
    return textwrap.fill(f"{text}[Every pair](docs/unseen.md).", 120, break_long_words=False, break_on_hyphens=False)


def _each_right(first: Sequence[Run]) -> str:
    scores = [unseen.score(run.records) for run in first]
    *before, last = [f"{score.right} of {score.ran}" for score in scores]
    each = f"{', '.join(before)} and {last}" if before else last
    every = f"{sum(score.right for score in scores)} of {sum(score.ran for score in scores)} in all"
    false = count_text(sum(score.false_confirmed for score in scores), "confirmed finding")
    return f"{each} ({every}, and {false} false)"


def _final_text(pairs: Sequence[Any], run: Run) -> str:
    score, left = unseen.score(run.records), _count_left(pairs, run)
    more = f", {count_text(left, 'pair')} not run yet" if left else ""
    return (
        f"{score.right} of {score.ran} ({_share(score.right, score.ran)}; {run.title}), the cause itself confirmed in "
        f"{score.cause_confirmed}, {count_text(score.false_confirmed, 'confirmed finding')} false{more}"
    )


def _count_left(pairs: Sequence[Any], run: Run) -> int:
    """Return how many pairs that waste energy on the device of a run have no result; a first run is complete."""
    if run.name.startswith(FIRST):
        return 0
    devices = {each.device for each in run.pairs.values()}
    return sum(
        bool(devices.intersection(pair.expected.devices)) and pair.folder.name not in run.pairs for pair in pairs
    )


def make_page(pairs: Sequence[Any], runs: Sequence[Run]) -> str:
    """Return docs/unseen.md."""
    classes = {pair.expected.waste for pair in pairs}
    introduction = _INTRODUCTION.format(count=len(pairs), classes=len(classes)).rstrip()
    parts = [introduction, "\n".join(_scores(pairs, runs)), _WRITTEN, "## Classes", "\n".join(_classes(pairs, runs))]
    parts += ["## Pairs", _KEY, "\n".join(_table(pairs, runs))]
    return "\n\n".join(parts) + "\n"


def read_runs(folder: Path) -> list[Run]:
    """Return the stored runs, in the order of `NAMES`."""
    order = {name: at for at, name in enumerate(NAMES)}
    files = sorted(folder.glob("*.json"), key=lambda path: (order.get(path.stem, len(order)), path.stem))
    return [Run(path.stem, unseen.read_records(path)) for path in files]


def _columns(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of pairs, those that share a column as one."""
    found: dict[str, Run] = {}
    for run in runs:
        if run.pairs:
            name = SAME_COLUMN.get(run.name, run.name)
            before = found[name].records if name in found else ()
            found[name] = Run(name, [*before, *run.records])
    return list(found.values())


def _scores(pairs: Sequence[Any], runs: Sequence[Run]) -> Iterator[str]:
    heads = ("run", "machine", "date", "commit", "pairs", "right", "cause confirmed", "false ✓", "failed", "A/A")
    yield _row(heads)
    yield _row(["--:" if head in heads[4:9] else "---" for head in heads])
    for run in runs:
        score = unseen.score(run.records)
        confirmed = f"{score.cause_confirmed} ({_share(score.cause_confirmed, score.right)})"
        right = f"{score.right} ({_share(score.right, score.ran)})"
        left = _count_left(pairs, run)
        ran = f"{score.ran}, {left} not run yet" if left else str(score.ran)
        numbers = [ran, right, confirmed, str(score.false_confirmed), str(score.failed)]
        yield _row([run.title, *_circumstances(run), *(numbers if score.ran else [NONE] * 5), _alone_text(run)])


def _circumstances(run: Run) -> tuple[str, str, str]:
    """Return the machine, the dates and the commits of a run."""
    machines = dict.fromkeys(f"{each.machine}, {each.versions}" for each in run.records if each.machine)
    dates = sorted({each.created[:10] for each in run.records})
    commits = dict.fromkeys(MISTYPED.get(each.commit, each.commit) for each in run.records if each.commit)
    commit = ", ".join(f"`{each}`" for each in (commits or dict.fromkeys(filter(None, [COMMITS.get(run.name)]))))
    return "; ".join(machines) or NONE, " to ".join(dict.fromkeys([dates[0], dates[-1]])), commit or NONE


def _alone_text(run: Run) -> str:
    """Return how many programs have a finding against themselves: `2 of 76, 0 of 76 where the same work counts`."""
    parts = []
    for counts in (False, True):
        ran = [each for each in run.alone if each.same_work_counts == counts]
        bad = sum(bool(each.told) for each in ran)
        failed = sum(each.outcome == "failed" for each in ran)
        told = f"{bad} of {len(ran)} with a finding" + (f", {failed} failed" if failed else "")
        parts += [told + (" where the same work counts" if counts else "")] if ran else []
    return "; ".join(parts) or NONE


def _classes(pairs: Sequence[Any], runs: Sequence[Run]) -> Iterator[str]:
    """Yield a row for each class: how many of its pairs are right in each run."""
    runs = _columns(runs)
    yield _row(["class", *(run.title for run in runs)])
    yield _row(["---", *("--:" for _ in runs)])
    for name in dict.fromkeys(pair.expected.waste for pair in pairs):
        own = [pair.folder.name for pair in pairs if pair.expected.waste == name]
        cells = []
        for run in runs:
            ran = [run.pairs[each] for each in own if each in run.pairs]
            cells.append(f"{sum(each.right for each in ran)} of {len(ran)}" if ran else NOT_RUN)
        yield _row([name, *cells])


def _table(pairs: Sequence[Any], runs: Sequence[Run]) -> Iterator[str]:
    runs = _columns(runs)
    yield _row(["pair", "class", "expected", *(run.title for run in runs)])
    yield _row(["---"] * (3 + len(runs)))
    for pair in pairs:
        name, wanted = pair.folder.name, pair.expected
        expected = f"{' or '.join(wanted.kinds)}: `{wanted.keys[0]}`"
        cells = [_cell(run.pairs.get(name)) for run in runs]
        yield _row([f"[{name}](../tests/unseen/{name})", wanted.waste, expected, *cells])


def _cell(record: Any | None) -> str:
    if record is None:
        return NOT_RUN
    false = f", {record.false_confirmed} false ✓" if record.false_confirmed else ""
    if record.outcome == "failed":
        return "✗ failed"
    if record.told_kind is None:
        return f"✗ no finding{false}"
    told = f"{record.told_kind}: `{record.told_key}`"
    if record.right:
        return f"✓ {record.proof}{false}"
    wrong = [
        name
        for name, is_right in (("kind", record.kind_right), ("key", record.key_right), ("line", record.line_right))
        if not is_right
    ]
    return f"✗ {told} ({', '.join(wrong)}){false}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else NONE


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
