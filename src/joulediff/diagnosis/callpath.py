"""The deviation point: where the ways to two operators part.

Both ways begin in the user's own code, which may be two files. From there on they are compared frame by frame: the
last function they share, at another line or with another callee, is where something was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.runs import Frame


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
    common: tuple[Frame, Frame] | None = None
    at = 0
    while at < min(len(a), len(b)):
        left, right = a[at], b[at]
        if not _is_alike(left, right):
            if left.owner is None and right.owner is None and left.file != right.file:
                at += 1  # the users' own ways in, in two files
                continue
            break
        common = (left, right)
        at += 1
        if left.line != right.line:
            break
    if common is None:
        return None
    first_a, first_b = (path[at] if at < len(path) else None for path in (a, b))
    if first_a is None and first_b is None and common[0].line == common[1].line:
        return None
    return Deviation(*common, first_a, first_b)


def _is_alike(a: Frame, b: Frame) -> bool:
    return (a.file, a.function) == (b.file, b.function)
