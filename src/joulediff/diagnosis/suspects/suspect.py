"""A suspect: one thing in which the expensive program differs from the cheap one, and that can be changed alone.

It is an edit of the source, a value of the program's state, or a setting. Several suspects can be changed together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.frameworks.jobs import Variant
from joulediff.model.run import Setting
from joulediff.pysource.edits.edit import Edit, apply_edits, close_over_needs, count_lines
from joulediff.pysource.source_files import SourceFile

_DEFINES = re.compile(r"\s*(@|class |def |async def )")


@dataclass(frozen=True, slots=True)
class Suspect:
    """One difference. `edit` is its place among the edits of the source; None for a value or a setting."""

    text: str
    """The change in words, for a trial."""
    name: str
    """The name of the thing that differs."""
    edit: int | None = None
    state: Mapping[str, Setting] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Differences:
    """The suspects, the likeliest first; the source of both programs, and the edits of the expensive one."""

    suspects: tuple[Suspect, ...]
    files: tuple[SourceFile, ...] = ()
    other_files: tuple[SourceFile, ...] = ()
    edits: tuple[Edit, ...] = ()
    first: Mapping[str, Setting] = field(default_factory=dict)
    """Settings as the expensive program found them when it was built."""

    def to_variant(self, chosen: Iterable[int]) -> Variant:
        """Return the expensive program with suspects changed; they are edits, or none of them is one."""
        suspects = [self.suspects[at] for at in sorted(chosen)]
        edits = [each.edit for each in suspects if each.edit is not None]
        if edits:
            wanted = [self.edits[at] for at in close_over_needs(self.edits, edits)]
            return Variant(files=apply_edits(self.files, wanted), first=self.first)
        return Variant(state=_merged(each.state for each in suspects), settings=_merged(e.settings for e in suspects))

    def edits_of(self, chosen: Iterable[int]) -> list[Edit]:
        """Return the edits of suspects, and those that they need, without names that only support them."""
        wanted = [at for each in sorted(chosen) if (at := self.suspects[each].edit) is not None]
        needed = [at for at in close_over_needs(self.edits, wanted) if at not in wanted]
        return [self.edits[at] for at in (*wanted, *needed) if self.edits[at].kind != "support" or at in wanted]

    def lines_of(self, chosen: Iterable[int]) -> int:
        """Return the number of lines that suspects change, with all edits that they need; 0 without edits."""
        wanted = [at for each in chosen if (at := self.suspects[each].edit) is not None]
        edits = (self.edits[at] for at in close_over_needs(self.edits, wanted))
        return sum(count_lines(edit, self.files) for edit in edits)

    def brings_code(self, chosen: Iterable[int]) -> bool:
        """Return whether suspects put functions or classes of the other program in the place of this one's.

        One expression that calls such a function is small enough to name a cause.
        """
        wanted = [at for each in chosen if (at := self.suspects[each].edit) is not None]
        needed = (self.edits[at] for at in close_over_needs(self.edits, wanted) if at not in wanted)
        texts = [patch.text for edit in needed if edit.kind == "support" for patch in edit.patches]
        is_small = len(wanted) == 1 and self.edits[wanted[0]].kind != "code"
        return not is_small and any(map(_DEFINES.match, texts))

    @property
    def all_lines(self) -> int:
        """The number of lines of the expensive program."""
        return sum(bool(line.strip()) for file in self.files for line in file.text.splitlines())

    def text_of(self, chosen: Sequence[int]) -> str:
        """Return the changes in words."""
        return "; ".join(self.suspects[at].text for at in sorted(chosen))


def _merged(values: Iterable[Mapping[str, Setting]]) -> dict[str, Setting]:
    return {name: value for each in values for name, value in each.items()}
