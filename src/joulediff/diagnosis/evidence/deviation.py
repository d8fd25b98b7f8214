"""The deviation point: where the ways to two operators part.

Both ways begin in the user's own code, which may be two files. From there on they are compared frame by frame: the
last function they share, at another line or with another callee, is where something was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from joulediff.model.run import Frame


@dataclass(frozen=True, slots=True)
class Deviation:
    """Where two call paths part: the last frames in common, and the first that are not."""

    common_a: Frame
    common_b: Frame
    first_a: Frame | None
    first_b: Frame | None

    @property
    def is_branch(self) -> bool:
        """Whether the common function went on at another line."""
        return self.common_a.line != self.common_b.line


def find_deviation(a: Sequence[Frame], b: Sequence[Frame]) -> Deviation | None:
    """Return where two paths, outermost first, part; None where they share nothing or never do."""
    start = _find_start(a, b)
    if start is None:
        return None
    at_a, at_b = start
    while at_a + 1 < len(a) and at_b + 1 < len(b) and a[at_a].line == b[at_b].line:
        if not _is_alike(a[at_a + 1], b[at_b + 1]):
            break
        at_a, at_b = at_a + 1, at_b + 1
    first_a, first_b = (path[at + 1] if at + 1 < len(path) else None for path, at in ((a, at_a), (b, at_b)))
    if first_a is None and first_b is None and a[at_a].line == b[at_b].line:
        return None
    return Deviation(a[at_a], b[at_b], first_a, first_b)


def shared_frames(a: Sequence[Frame], b: Sequence[Frame]) -> list[tuple[Frame, Frame]]:
    """Return the frames of libraries that two paths have in common, line by line, the innermost first."""
    start = _find_start(a, b)
    if start is None:
        return []
    pairs = zip(a[start[0] :], b[start[1] :], strict=False)
    shared = list(takewhile(lambda pair: _is_alike(*pair) and pair[0].line == pair[1].line, pairs))
    return [pair for pair in reversed(shared) if pair[0].owner is not None]


def _find_start(a: Sequence[Frame], b: Sequence[Frame]) -> tuple[int, int] | None:
    """Return the first frames to compare: where both enter one library, or the last of the user's own in common."""
    enter_a, enter_b = _own_frames(a), _own_frames(b)
    if enter_a < len(a) and enter_b < len(b) and _is_alike(a[enter_a], b[enter_b]):
        return enter_a, enter_b
    pairs = [(i, j) for i in range(enter_a) for j in range(enter_b) if _is_alike(a[i], b[j])]
    return max(pairs, key=sum, default=None)


def _own_frames(path: Sequence[Frame]) -> int:
    """Return how many frames of the user's own code a path begins with."""
    return next((at for at, frame in enumerate(path) if frame.owner is not None), len(path))


def _is_alike(a: Frame, b: Frame) -> bool:
    return (a.file, a.function) == (b.file, b.function)
