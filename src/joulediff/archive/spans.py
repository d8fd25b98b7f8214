"""What spans of settings must keep to: they lie within the operators, in order, and none reaches into another."""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.errors import ArchiveError
from joulediff.runs import SettingSpan


def check_spans(spans: Sequence[SettingSpan], ops: int) -> None:
    """Raise ArchiveError for a span outside of so many operators, a reversed one, or one that begins too early."""
    free = 0
    for row, span in enumerate(spans):
        if not 0 <= span.first <= span.last < ops:
            raise ArchiveError(f"spans[{row}] in its manifest is from {span.first} to {span.last} of {ops} operators")
        if span.first < free:
            raise ArchiveError(f"spans[{row}] in its manifest begins before the one above it ends")
        free = span.last + 1
