"""Marks for the part of a script that `joulediff record --loop` records: `jd.step()` and `jd.steps()`.

They are read in the source of the script. When it runs they do nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

T = TypeVar("T")
_NOTHING = nullcontext()


def step() -> AbstractContextManager[None]:
    """Mark the body of a `with` statement as the step that `joulediff record --loop` records."""
    return _NOTHING


def steps(iterable: T) -> T:
    """Mark a loop whose body is the step: `for batch in jd.steps(loader)`. Returns its argument itself."""
    return iterable
