"""The user's functions of two runs as rows, for steps that are compared as a whole: without operators on one side.

Functions are paired by file and name, then by name, then by the function of a library that takes most of their time.
A function without a partner costs one side alone. Every sample is in one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from joulediff.diagnosis.comparison import to_place
from joulediff.diagnosis.significance import ALPHA, LEAST_SHARE, chance, correct
from joulediff.energy.device_time import is_gpu
from joulediff.energy.host_energy import HostPart, host_parts
from joulediff.energy.ledger import Costs
from joulediff.frameworks.framework import outer_path
from joulediff.model.diff import RowVerdict, Thresholds
from joulediff.model.energy import Energy, add_known, agree, difference_j, joules_of
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Run

_LOCALS = "<locals>."
# The file of the step itself is the same program, whatever its name.
_MAIN = ""


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function of each side, or of one side alone."""

    parts: Pair[HostPart | None]
    places: Pair[Place | None]
    """The line with most of its time."""
    p_value: float = 1.0

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(*(None if part is None else part.energy for part in self.parts))

    @property
    def name(self) -> str:
        """The name of the function: `nearest ↔ closest_depots` where it differs."""
        return " ↔ ".join(dict.fromkeys(short_function(part.function) for part in self.parts if part is not None))

    @property
    def where(self) -> str:
        """The lines with most of the time, and the function of a library that they call."""
        texts = []
        for part, place in zip(self.parts, self.places, strict=True):
            line = "" if place is None else f"{PurePath(place.file).name}:{place.line}"
            calls = "" if part is None or not part.calls else f"in {part.calls}"
            texts.append(", ".join(filter(None, (line, calls))))
        return " ↔ ".join(dict.fromkeys(filter(None, texts)))

    def is_in(self, side: SideName, place: Place) -> bool:
        """Return whether a line of a side is in this function."""
        mine = self.places.of(side)
        part = self.parts.of(side)
        return mine is not None and part is not None and (mine.file, part.function) == (place.file, place.function)

    def verdict(self, limits: Thresholds, total_j: float) -> RowVerdict:
        """Return whether the row differs, by the threshold, both intervals and noise."""
        energies = self.energies
        delta_j = abs(difference_j(*energies))
        is_small = delta_j < LEAST_SHARE * total_j or delta_j <= limits.threshold * min(map(joules_of, energies))
        if is_small or self.p_value >= ALPHA or agree(*energies):
            return "noise"
        if None in tuple(energies):
            return "only_b" if energies.a is None else "only_a"
        return "changed"


def compare_functions(a: Run, b: Run, costs: Pair[Costs]) -> tuple[FunctionRow, ...]:
    """Return the rows of two runs, those with the most energy first; empty if a side was not sampled."""
    sides = Pair(*(_parts_of(run, cost) for run, cost in zip((a, b), costs, strict=True)))
    if not sides.a or not sides.b:
        return ()
    rows = [FunctionRow(parts, Pair(_place(a, parts.a), _place(b, parts.b))) for parts in _pair(Pair(a, b), sides)]
    p_values = correct([chance(*row.energies) for row in rows])
    rows = [replace(row, p_value=p_value) for row, p_value in zip(rows, p_values, strict=True)]
    return tuple(sorted(rows, key=lambda row: -max(map(joules_of, row.energies))))


def short_function(function: str) -> str:
    """Return a function's name without the function that it is written in."""
    return function.rpartition(_LOCALS)[2]


def _place(run: Run, part: HostPart | None) -> Place | None:
    return None if part is None or part.frame is None else to_place(run, part.frame)


def _parts_of(run: Run, costs: Costs) -> list[HostPart]:
    """Return the functions of a run; operators of a GPU count to the function that calls them."""
    parts = list(host_parts(run))
    places = {_key(part): at for at, part in enumerate(parts)}
    kernels: dict[int, list[Energy]] = {}
    for domain, energies in costs.books.kernels.items():
        counted = any(each.counted and each.domain == domain for each in costs.books.accounts)
        for kernel, energy in zip(run.kernels, energies, strict=True):
            path = outer_path(run, kernel.op) if is_gpu(domain) and counted and kernel.op is not None else ()
            if not path or energy is None:
                continue
            key = (path[-1].file, path[-1].function)
            if key not in places:
                places[key] = len(parts)
                parts.append(HostPart(path[-1], path[-1].function, "", len(path) == 1, None, 0.0, 0.0, 0))
            kernels.setdefault(places[key], []).append(energy)
    for at, found in kernels.items():
        parts[at] = replace(parts[at], energy=add_known((parts[at].energy, *found)))
    return parts


def _key(part: HostPart) -> tuple[str | None, str]:
    return (None if part.frame is None else part.frame.file, part.function)


def _pair(runs: Pair[Run], sides: Pair[list[HostPart]]) -> Iterator[Pair[HostPart | None]]:
    """Yield the functions of both sides with their partners, each once."""
    mains = Pair(*(_main_file(run) for run in runs))

    def file_of(part: HostPart, side: SideName) -> str | None:
        if part.frame is None:
            return None
        return _MAIN if part.frame.file == mains.of(side) else PurePath(part.frame.file).name

    keys: tuple[Callable[[HostPart, SideName], Hashable | None], ...] = (
        lambda part, _: part.is_step or None,
        lambda part, side: (file_of(part, side), part.function),
        lambda part, _: short_function(part.function),
        lambda part, _: part.calls or None,
    )
    left = Pair(list(sides.a), list(sides.b))
    for key in keys:
        found = Pair(*(_unique(left.of(side), side, key) for side in SIDES))
        for name, part in found.a.items():
            if name in found.b:
                yield Pair(part, found.b[name])
                left.a.remove(part)
                left.b.remove(found.b[name])
    yield from (Pair(part, None) for part in left.a)
    yield from (Pair(None, part) for part in left.b)


def _unique(
    parts: Sequence[HostPart], side: SideName, key: Callable[[HostPart, SideName], Hashable | None]
) -> dict[Hashable, HostPart]:
    """Return functions by a key that no other function of their side has."""
    keys = [key(part, side) for part in parts]
    counts = Counter(keys)
    return {each: part for each, part in zip(keys, parts, strict=True) if each is not None and counts[each] == 1}


def _main_file(run: Run) -> str | None:
    """Return the file of the step: that of the outermost line of the user's in most samples."""
    files: Counter[str] = Counter()
    for sample in run.host_samples:
        own = [frame for frame in run.index.path_to(sample.frame) if frame.owner is None]
        if own:
            files[own[0].file] += sample.count
    return files.most_common(1)[0][0] if files else None
