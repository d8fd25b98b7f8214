"""Call paths: the Python frames from the step to an operator, each frame stored once.

A path is identified by its code objects and instructions. It is turned into files and lines only when it is seen for
the first time: most operators of a loop or of a layer share one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType

from joulediff.model.place import Place
from joulediff.model.run import Frame, SourceText
from joulediff.pysource.code_owner import is_ours, name_case_file
from joulediff.pysource.framework_hints import NO_HINTS, FrameworkHints

STANDARD_LIBRARY = "python"

_PACKAGE_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _folders(*kinds: str) -> tuple[str, ...]:
    """Return Python's own folders, also with symbolic links resolved: frames may show either name."""
    paths = [Path(sysconfig.get_path(kind)) for kind in kinds]
    return tuple(dict.fromkeys(str(path) + os.sep for each in paths for path in (each, each.resolve())))


_SITES = _folders("purelib", "platlib")
_STANDARD = _folders("stdlib", "platstdlib")
# Modules of Python's import system have this in place of a file.
_FROZEN = ("<frozen", STANDARD_LIBRARY)
# Libraries that are often installed from a source folder.
_LIBRARIES = ("transformers", "diffusers", "vllm", "sglang", "megatron")


class Base:
    """A running frame that stays in place while other frames run above it: the call of a module.

    It keeps the frame and all its variables alive: drop it before the frame returns.
    """

    __slots__ = ("frame", "key", "outer")

    def __init__(self, frame: FrameType, outer: Base | None) -> None:
        self.frame = frame
        self.outer = outer
        self.key: int | None = None


class CallPaths:
    """Collects call paths. `stop` is the code that calls the step; its frame and those above it are left out.

    `others` is further code at which paths end: that which calls the step's functions in other threads.

    Files of libraries are named relative to their package, the user's own relative to `root`: a program has the same
    paths in another environment. Frames of `hidden` code are left out.
    """

    def __init__(
        self,
        stop: CodeType,
        *,
        others: Iterable[CodeType] = (),
        root: Path | None = None,
        hidden: Callable[[CodeType], bool] | None = None,
        hints: FrameworkHints = NO_HINTS,
    ) -> None:
        self._stops = {id(code): code for code in (stop, *others)}
        self._hints = hints
        self._hidden = hidden or _never
        self._root = str(root or Path.cwd()) + os.sep
        self._paths: dict[tuple[int | None, tuple[int, ...]], int | None] = {}
        self._places: dict[tuple[int | None, int, int], int] = {}
        self._numbers: dict[Frame, int] = {}
        self._bases: dict[tuple[int, ...], int] = {}
        self._codes: list[CodeType] = []
        self._named: dict[str, tuple[str, str | None]] = {}
        self.frames: list[Frame] = []

    @property
    def files(self) -> dict[str, str]:
        """Return the real path of each file, by the name that frames have it under."""
        return {shown: real for real, (shown, _) in self._named.items()}

    def here(self, frame: FrameType | None, base: Base | None = None, *, after: int | None = None) -> int | None:
        """Return the index in `frames` of the path that ends in `frame`; None for an empty path.

        If `base` is on the path, the frames above it are not visited again. `after` is the path that this one
        continues: that of the call which started this thread's work.
        """
        path = after, self._key(frame, base)
        try:
            return self._paths[path]
        except KeyError:
            found = self._paths[path] = self._add(frame, after)
            return found

    def _key(self, frame: FrameType | None, base: Base | None) -> tuple[int, ...]:
        stops, known, at = self._stops, base and base.frame, frame
        key: list[int] = []
        while at is not None:
            if at is known:
                assert base is not None
                key.append(self._key_of(base))
                break
            code = at.f_code
            if id(code) in stops:
                break
            key += (id(code), at.f_lasti)
            at = at.f_back
        return tuple(key)

    def _key_of(self, base: Base) -> int:
        if base.key is None:
            path = self._key_above(base)
            base.key = self._bases.setdefault(path, -1 - len(self._bases))  # below zero: no code has such an id
            self._codes.append(base.frame.f_code)
        return base.key

    def _key_above(self, base: Base) -> tuple[int, ...]:
        frame = base.frame
        return (id(frame.f_code), frame.f_lasti, *self._key(frame.f_back, base.outer))

    def _add(self, frame: FrameType | None, parent: int | None) -> int | None:
        chain = []
        while frame is not None and id(frame.f_code) not in self._stops:
            chain.append(frame)
            frame = frame.f_back
        for each in reversed(chain):
            code = each.f_code
            self._codes.append(code)  # its id is part of a key, so it must not be reused
            if is_ours(code.co_filename) or self._hidden(code):
                continue
            place = (parent, id(code), each.f_lasti)
            if place not in self._places:
                self._places[place] = self._number(self._frame(each, parent))
            parent = self._places[place]
        return parent

    def _number(self, frame: Frame) -> int:
        """Return the index of a frame in `frames`: two calls in one line share one."""
        if frame not in self._numbers:
            self._numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return self._numbers[frame]

    def _frame(self, frame: FrameType, parent: int | None) -> Frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11
        file = code.co_filename
        if file not in self._named:
            self._named[file] = name_file(file, self._root, self._hints)
        shown, owner = self._named[file]
        return Frame(shown, frame.f_lineno or code.co_firstlineno, name, owner, parent)


def _never(_: CodeType) -> bool:
    return False


def name_file(file: str, root: str, hints: FrameworkHints = NO_HINTS) -> tuple[str, str | None]:
    """Return the name of a file in a recording, and the library it belongs to; None for the user's own code."""
    if file.startswith("<"):
        return file, next((owner for begin, owner in (_FROZEN, *hints.generated) if file.startswith(begin)), None)
    if (case := name_case_file(file)) is not None:
        return case, None
    for folder in (*_SITES, *_PACKAGE_FOLDERS):
        _, found, rest = file.rpartition(folder)
        if found:
            return rest, rest.partition(os.sep)[0].removesuffix(".py")
    for folder in _STANDARD:
        if file.startswith(folder):
            return file.removeprefix(folder), STANDARD_LIBRARY
    for name, folder in _unpacked_libraries(hints.packages):
        if file.startswith(folder):
            return name + os.sep + file.removeprefix(folder), name
    inside = file.removeprefix(root)
    return (inside if inside != file else _without_home(file)), None


def _without_home(file: str) -> str:
    """Return a path without the user's name: recordings are shared."""
    home = str(Path.home()) + os.sep
    return f"~{os.sep}{file.removeprefix(home)}" if file.startswith(home) else file


def _unpacked_libraries(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield libraries that are imported, with their folders: they may be outside of any site-packages."""
    for name in (*packages, *_LIBRARIES):
        place = getattr(sys.modules.get(name), "__file__", None)
        if place:
            yield name, str(Path(place).parent) + os.sep


# Lines embedded before and after a recorded line: the whole call, and for the user's own code its surroundings.
AROUND_OWN = 8
AROUND_LIBRARY = 2
# A line longer than this is data rather than code.
MAX_LINE = 300
MAX_FILE_BYTES = 4_000_000


def read_sources(
    frames: Iterable[Frame], files: Mapping[str, str], places: Iterable[Place] = ()
) -> tuple[SourceText, ...]:
    """Return excerpts around the lines of frames, and the lines of other places, where they can be read.

    `files` has the real path of each file.
    """
    wanted: dict[str, set[int]] = {}
    for place in places:
        wanted.setdefault(place.file, set()).add(place.line)
    for frame in frames:
        around = AROUND_OWN if frame.owner is None else AROUND_LIBRARY
        wanted.setdefault(frame.file, set()).update(range(frame.line - around, frame.line + around + 1))
    found: list[SourceText] = []
    for file, numbers in sorted(wanted.items()):
        lines = _read(Path(files.get(file, file)))
        found += [
            SourceText(file, run[0], "\n".join(lines[number - 1][:MAX_LINE] for number in run))
            for run in _runs(sorted(n for n in numbers if 1 <= n <= len(lines)))
        ]
    return tuple(found)


def _read(path: Path) -> list[str]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return []
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []


def _runs(numbers: list[int]) -> list[list[int]]:
    """Split sorted numbers into runs without gaps."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
