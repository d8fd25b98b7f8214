"""Pair the lines of two versions of a program: by their text where it is recorded, else by what they call.

A line of one version is paired with at most one of the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePath

from joulediff.model.apis.api_diff import LinePlace
from joulediff.model.apis.api_run import ApiRun

Line = tuple[str, int]
# Comparing texts takes time for each pair of equal lines; more than this is a file that only repeats itself.
_MOST_PAIRS = 500_000


@dataclass(frozen=True, slots=True)
class Alignment:
    """The lines and the files of b that are the same code as those of a."""

    files: Mapping[str, str]
    lines: Mapping[Line, Line]

    def of(self, place: LinePlace) -> LinePlace | None:
        """Return the same place of b: a line, or the code between two lines; None without one."""
        file = self.files.get(place.file)
        numbers = [self._line(place.file, line) for line in (place.line, place.before_line)]
        if file is None or None in numbers:
            return None
        line, before_line = (number or None for number in numbers)
        return LinePlace(file, line, before_line)

    def _line(self, file: str, line: int | None) -> int | None:
        """Return the number of the line in b, 0 for the begin or the end of the program; None without one."""
        if line is None:
            return 0
        return self.lines[file, line][1] if (file, line) in self.lines else None


def align(a: ApiRun, b: ApiRun) -> Alignment:
    """Return which measured lines of two runs are the same code."""
    files = dict(_pair_files(a, b))
    lines: dict[Line, Line] = {}
    texts_a, texts_b = _source_lines(a), _source_lines(b)
    callees_a, callees_b = _callees(a), _callees(b)
    for file_a, file_b in files.items():
        left, right = callees_a[file_a], callees_b[file_b]
        same = _same_text(texts_a.get(file_a, {}), texts_b.get(file_b, {}))
        # With both texts, a line with the same number may be another line.
        pairs = same or {line: line for line in left if left[line] == right.get(line)}
        pairs = {line: other for line, other in pairs.items() if line in left and other in right}
        pairs |= _same_callees(left, right, pairs)
        lines |= {(file_a, line): (file_b, other) for line, other in pairs.items()}
    return Alignment(files, lines)


def _pair_files(a: ApiRun, b: ApiRun) -> Iterator[tuple[str, str]]:
    """Yield the files that are versions of each other: the two programs, and files of the same path or name."""
    left, right = _files(a), _files(b)
    choices: tuple[Callable[[str], str | None], ...] = (
        {_program_file(a, left): _program_file(b, right)}.get,
        lambda file: file,
        lambda file: _by_name(right).get(PurePath(file).name),
    )
    for choose in choices:
        for file in sorted(left):
            other = choose(file)
            if other is not None and other in right:
                left, right = left - {file}, right - {other}
                yield file, other


def _program_file(run: ApiRun, files: set[str]) -> str | None:
    """Return the file of the program itself, which may be given relative to a folder; None if no call is in it."""
    return run.program if run.program in files else _by_name(files).get(PurePath(run.program).name)


def _by_name(files: set[str]) -> dict[str, str]:
    """Return the files whose names are theirs alone, by the name."""
    counts = Counter(PurePath(file).name for file in files)
    return {PurePath(file).name: file for file in files if counts[PurePath(file).name] == 1}


def _files(run: ApiRun) -> set[str]:
    return {site.file for api in run.apis for site in api.sites} | {gap.file for gap in run.gaps}


def _source_lines(run: ApiRun) -> dict[str, dict[int, str]]:
    return {
        source.file: {at: text.strip() for at, text in enumerate(source.text.split("\n"), source.first) if text.strip()}
        for source in run.sources
    }


def _callees(run: ApiRun) -> defaultdict[str, dict[int, tuple[str, ...]]]:
    """Return the callees of each measured line of each file, as they are written."""
    columns: defaultdict[str, defaultdict[int, set[tuple[int, str]]]] = defaultdict(lambda: defaultdict(set))
    for api in run.apis:
        for site in api.sites:
            columns[site.file][site.line].add((site.column, site.text))
    found: defaultdict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for file, lines in columns.items():
        found[file] = {line: tuple(text for _, text in sorted(lines[line])) for line in sorted(lines)}
    return found


def _same_text(a: Mapping[int, str], b: Mapping[int, str]) -> dict[int, int]:
    """Return the lines of two texts that are equal and in the same order; then moved ones, if they are unique."""
    pairs = _equal_blocks(a, b)
    rest_a, rest_b = _unique(a, set(pairs)), _unique(b, set(pairs.values()))
    return pairs | {rest_a[text]: rest_b[text] for text in rest_a.keys() & rest_b.keys()}


def _unique(lines: Mapping[int, str], taken: set[int]) -> dict[str, int]:
    left = {line: text for line, text in lines.items() if line not in taken}
    counts = Counter(left.values())
    return {text: line for line, text in left.items() if counts[text] == 1}


def _same_callees(
    a: Mapping[int, tuple[str, ...]], b: Mapping[int, tuple[str, ...]], pairs: Mapping[int, int]
) -> dict[int, int]:
    """Return the lines that are left and call the same, in the same order."""
    taken = set(pairs.values())
    left = {line: callees for line, callees in a.items() if line not in pairs}
    right = {line: callees for line, callees in b.items() if line not in taken}
    return _equal_blocks(left, right)


def _equal_blocks(a: Mapping[int, object], b: Mapping[int, object]) -> dict[int, int]:
    counts_a, counts_b = Counter(a.values()), Counter(b.values())
    if sum(count * counts_b[text] for text, count in counts_a.items()) > _MOST_PAIRS:
        return {}
    lines_a, lines_b = list(a), list(b)
    matcher = SequenceMatcher(None, [a[line] for line in lines_a], [b[line] for line in lines_b], autojunk=False)
    return {
        lines_a[block.a + at]: lines_b[block.b + at]
        for block in matcher.get_matching_blocks()
        for at in range(block.size)
    }
