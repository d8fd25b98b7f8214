"""The library calls of one cell of a notebook: its code is compiled rewritten, and runs between `start` and `finish`.

Only calls that are written in the cell are noticed. Functions that it defines run on unmeasured after it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import CodeType, TracebackType
from typing import TYPE_CHECKING

from joulediff.instrument.rewriting.libraries import default_libraries, imported_libraries, packages_of
from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.instrument.session import ApiSession, Outcome, outcome_of
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import JoulediffError
from joulediff.model.options import ApisOptions
from joulediff.model.run import SourceText

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class CellSource:
    """A cell as it is compiled: its statements, then the expression at its end, which gives its result."""

    name: str
    """The name in code objects, which differs between two runs of a cell."""
    shown: str
    """The name in tracebacks and reports: `In[3]`."""
    text: str
    trees: tuple[ast.Module | ast.Expression, ...]
    flags: int
    """The flags of the compiler."""


class CellApis:
    """One measured run of a cell, which runs in a `with` block."""

    def __init__(self, cell: CellSource, options: ApisOptions, *, label: str, libraries: Sequence[str]) -> None:
        """Open the meters and compile the cell; raises what the compiler raises."""
        self._cell = cell
        self._session = ApiSession(
            options, program=cell.shown, label=label, libraries=tuple(libraries) or loaded_libraries(cell.text)
        )
        self.result: ApiRun | None = None
        self.failure: str | None = None
        """Why there is no result."""
        self._session.__enter__()
        try:
            self.codes = tuple(map(self._compile, cell.trees))
        except BaseException:
            self._session.__exit__()
            raise

    def __enter__(self) -> Self:
        try:
            self._session.rest()
            self._session.start()
        except BaseException:
            self._session.__exit__()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        try:
            self.result = self._with_source(self._session.finish(self._outcome(error)))
        except JoulediffError as problem:
            self.failure = str(problem)
        finally:
            self._session.__exit__()

    def _compile(self, tree: ast.Module | ast.Expression) -> CodeType:
        cell = self._cell
        return compile_rewritten(
            tree, cell.name, self._session.watcher, flags=cell.flags, text=cell.text, shown=cell.shown
        )

    def _outcome(self, error: BaseException | None) -> Outcome:
        found = outcome_of(error)
        if found.error is None:
            return found
        return replace(found, error=found.error.replace(PurePath(self._cell.name).name, self._cell.shown))

    def _with_source(self, run: ApiRun) -> ApiRun:
        return replace(run, sources=(SourceText(self._cell.shown, 1, self._cell.text), *run.sources))


def loaded_libraries(source: str) -> tuple[str, ...]:
    """Return the known libraries that this process has imported, or that the source imports."""
    known = default_libraries()
    packages, imported = packages_of(known), imported_libraries(source)
    return tuple(name for name in known if name in imported or not sys.modules.keys().isdisjoint(packages[name]))
