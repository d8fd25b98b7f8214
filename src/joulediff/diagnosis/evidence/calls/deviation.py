"""Where the call paths to two operators part.

Both paths begin in the user's own code, which may be two files. From there they are compared frame by frame: the last
function in common, at another line or with another callee, is where the decision was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from joulediff.model.pair import Pair
from joulediff.model.run import Frame, Run

# In the name of a function that a decorator made.
_WRAPPER = "<locals>"


@dataclass(frozen=True, slots=True)
class Deviation:
    """Where two call paths part: the last frames in common, and the first frames that differ."""

    common_a: Frame
    common_b: Frame
    first_a: Frame | None
    first_b: Frame | None

    @property
    def is_branch(self) -> bool:
        """Whether the common function went on at another line."""
        return self.common_a.line != self.common_b.line


def find_deviation(a: Sequence[Frame], b: Sequence[Frame]) -> Deviation | None:
    """Return where two paths, outermost first, part; None if they share nothing or do not part."""
    start = _find_start(a, b)
    if start is None:
        return None
    at_a, at_b = start
    while at_a + 1 < len(a) and at_b + 1 < len(b) and a[at_a].line == b[at_b].line:
        if not _is_same_function(a[at_a + 1], b[at_b + 1]):
            break
        at_a, at_b = at_a + 1, at_b + 1
    first_a, first_b = (path[at + 1] if at + 1 < len(path) else None for path, at in ((a, at_a), (b, at_b)))
    if first_a is None and first_b is None and a[at_a].line == b[at_b].line:
        return None
    return Deviation(a[at_a], b[at_b], first_a, first_b)


def parting_functions(a: Sequence[Frame], b: Sequence[Frame]) -> Pair[tuple[str, str]] | None:
    """Return the two functions, with their files, to which paths part inside a library; None if they do not."""
    found = find_deviation(a, b)
    if found is None or found.common_a.owner is None or found.first_a is None or found.first_b is None:
        return None
    functions = Pair(*((frame.file, frame.function) for frame in (found.first_a, found.first_b)))
    return None if functions.a == functions.b else functions


def shared_frames(a: Sequence[Frame], b: Sequence[Frame]) -> list[tuple[Frame, Frame]]:
    """Return the frames of libraries that two paths have in common, at the same lines, the innermost first."""
    start = _find_start(a, b)
    if start is None:
        return []
    pairs = zip(a[start[0] :], b[start[1] :], strict=False)
    shared = list(takewhile(lambda pair: _is_same_function(*pair) and pair[0].line == pair[1].line, pairs))
    return [pair for pair in reversed(shared) if pair[0].owner is not None]


def _find_start(a: Sequence[Frame], b: Sequence[Frame]) -> tuple[int, int] | None:
    """Return where to begin: where both paths enter one library, or the last frame of the user's own in common."""
    enter_a, enter_b = _own_frames(a), _own_frames(b)
    if enter_a < len(a) and enter_b < len(b) and _is_same_function(a[enter_a], b[enter_b]):
        return enter_a, enter_b
    own = ([at for at in range(enter) if path[at].owner is None] for enter, path in ((enter_a, a), (enter_b, b)))
    pairs = [(i, j) for i, j in product(*own) if _is_same_function(a[i], b[j])]
    return max(pairs, key=sum, default=None)


def _own_frames(path: Sequence[Frame]) -> int:
    """Return the number of frames before a library is entered: wrappers of the user's functions are left out."""
    last = max((at for at, frame in enumerate(path) if frame.owner is None), default=-1)
    entries = (at for at, frame in enumerate(path) if frame.owner is not None)
    return next((at for at in entries if at > last or _WRAPPER not in path[at].function), len(path))


def _is_same_function(a: Frame, b: Frame) -> bool:
    return (a.file, a.function) == (b.file, b.function)


def library_call(run: Run, op: int) -> tuple[Frame, Frame] | None:
    """Return the user's line that led to an operator, and the library's function that it calls."""
    path = run.call_path(op)
    own = [at for at, frame in enumerate(path) if frame.owner is None]
    if not own or own[-1] + 1 >= len(path):
        return None
    called = path[own[-1] + 1 :]
    # Callers do not write the name of a decorator's wrapper.
    return path[own[-1]], next((frame for frame in called if _WRAPPER not in frame.function), called[0])


def call_key(called: tuple[Frame, Frame]) -> tuple[str, int, str, str]:
    """Return the user's line and the library's function of a call: those of all operators of the call are equal."""
    own, function = called
    return own.file, own.line, function.file, function.function


def ops_of_call(run: Run, called: tuple[Frame, Frame]) -> list[int]:
    """Return the operators that ran in the calls of a library's function from a line of the user's."""
    found: list[int] = []
    for ops in run.index.ops_by_frame.values():  # the operators of a frame have one path
        other = library_call(run, ops[0])
        if other is not None and call_key(other) == call_key(called):
            found += ops
    return found
