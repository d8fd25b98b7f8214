"""Run a notebook's code cells in order as the program `__main__`.

With IPython in the program's environment, magics and shell lines work as in Jupyter. Without it, a notebook that needs
it is refused before its first cell runs. An exception of a cell passes through unchanged and ends the run.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import builtins
import importlib.util
import inspect
import linecache
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from joulediff.instrument.notebook.magics import Magic, to_plain
from joulediff.instrument.notebook.read import Cell, read_notebook
from joulediff.model.errors import ProgramError
from joulediff.pysource.source_files import split_lines

CompileCell = Callable[[ast.Module, str, str, int], CodeType]
"""Returns the code of a cell, given its tree, its source, its name and the flags of the compiler."""
Note = Callable[[str], None]

# `from __future__ import annotations` in a cell holds for the cells behind it too.
_KEPT_FLAGS = __future__.annotations.compiler_flag
# The method of the shell that `%time` becomes: its code is compiled with the cell and not by IPython.
_TIMER = "joulediff_time"

# Modules that were `__main__` before. Their functions still run, and need their globals.
_replaced: list[ModuleType | None] = []


def compile_plain(tree: ast.Module, _source: str, name: str, flags: int) -> CodeType:
    """Return the code of a cell as Python compiles it."""
    code: CodeType = compile(tree, name, "exec", flags=flags, dont_inherit=True)
    return code


class NotebookProgram:
    """A notebook whose cells Python can read. Nothing of it has run yet, and IPython is loaded if it is there."""

    def __init__(self, path: str, *, note: Note | None = None, use_ipython: bool | None = None) -> None:
        """Read the notebook at `path`. `note` is called with each magic that is left out; with IPython none is."""
        has_ipython = importlib.util.find_spec("IPython") is not None if use_ipython is None else use_ipython
        self._path = path
        self._main = ModuleType("__main__")
        vars(self._main).update(__builtins__=builtins)
        notebook = read_notebook(str(Path(path).absolute()))
        self._folder = Path(notebook.path).resolve().parent
        named = [(cell, notebook.name_cell(cell)) for cell in notebook.cells]
        self.source = "\n".join(to_plain(cell.source, name).source for cell, name in named)
        """The code of all cells, without magics."""
        self._cells: Sequence[_InShell | _Plain]
        self._shell: Any = None
        with ExitStack() as stack:
            if has_ipython:
                self._shell = stack.enter_context(_open_shell(self._main))
                self._cells = [_InShell(cell, name, self._shell) for cell, name in named]
            else:
                self._cells = [_Plain(cell, name, note) for cell, name in named]
            self._stack = stack.pop_all()

    def run(self, compile_cell: CompileCell = compile_plain, arguments: Sequence[str] = ()) -> ModuleType:
        """Run the cells in order in the folder of the notebook, as Jupyter does, and return the module `__main__`.

        `sys.argv` has `arguments`. It, `sys.path[0]`, the folder and the module stay as they are afterwards: threads
        and exit handlers of the program may need them.
        """
        with self._stack as stack:
            if self._shell is not None:
                stack.enter_context(self._shell.builtin_trap)
                stack.enter_context(self._shell.display_trap)
            _replaced.append(sys.modules.get("__main__"))
            sys.modules["__main__"] = self._main
            sys.argv[:] = [self._path, *arguments]
            sys.path.insert(0, str(self._folder))
            os.chdir(self._folder)
            runner = _Runner(self._main, compile_cell, stack)
            for cell in self._cells:
                cell.run(runner)
        return self._main


def run_notebook(path: str, compile_cell: CompileCell = compile_plain, arguments: Sequence[str] = ()) -> ModuleType:
    """Run the notebook at `path` as `NotebookProgram` does."""
    return NotebookProgram(path).run(compile_cell, arguments)


class _Runner:
    """Compiles and runs cells in one namespace, and keeps what a cell leaves for the next: flags and the event loop."""

    def __init__(self, main: ModuleType, compile_cell: CompileCell, stack: ExitStack) -> None:
        self._names = main.__dict__
        self._compile = compile_cell
        self._stack = stack
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, tree: ast.Module, source: str, name: str) -> None:
        """Run a cell in the namespace of the program."""
        code = self._compile(tree, source, name, self._flags)
        self._flags |= code.co_flags & _KEPT_FLAGS
        if not code.co_flags & inspect.CO_COROUTINE:
            exec(code, self._names)  # noqa: S102 - the program's own code
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._stack.callback(self._loop.close)
        self._loop.run_until_complete(eval(code, self._names))  # noqa: S307 - the program's own code


def _show_source(name: str, source: str) -> None:
    """Let tracebacks and reports show the lines of a cell."""
    linecache.cache[name] = (len(source), None, split_lines(source), name)


class _Plain:
    """A cell that runs without IPython."""

    def __init__(self, cell: Cell, name: str, note: Note | None) -> None:
        """Raise if the cell needs IPython, and leave its harmless magics out."""
        plain = to_plain(cell.source, name)
        magics: list[Magic] = [*([plain.cell_magic] if plain.cell_magic is not None else []), *plain.magics]
        for magic in magics:
            if not magic.is_harmless:
                raise ProgramError(
                    f"{name}, line {magic.line} is no Python, and IPython is not installed: {magic.text}",
                    fix="install it in the environment of the program: pip install ipython",
                )
            if note is not None:
                note(f"{name}, line {magic.line}: left out {magic.text} (it needs IPython)")
        self._cell, self._name = cell, name
        self._tree = ast.parse(plain.source, name)

    def run(self, runner: _Runner) -> None:
        _show_source(self._name, self._cell.source)
        runner.run(self._tree, self._cell.source, self._name)


class _InShell:
    """A cell that runs with IPython's shell, but for the display of its last value."""

    def __init__(self, cell: Cell, name: str, shell: Any) -> None:
        """Raise if Python cannot read the cell: then no cell runs."""
        self._cell, self._name, self._shell = cell, name, shell
        self._parse()

    def run(self, runner: _Runner) -> None:
        _show_source(self._name, self._cell.source)
        self._shell.events.trigger("pre_execute")
        try:
            runner.run(self._parse(), self._cell.source, self._name)
        finally:
            self._shell.events.trigger("post_execute")
            self._shell.execution_count += 1

    def _parse(self) -> ast.Module:
        """Return the tree of the cell with its magics as calls of IPython. The lines are those of the cell."""
        try:
            source = _leading_lines(self._cell.source) + self._shell.transform_cell(self._cell.source)
            tree = _OpenTimers(self._shell, self._cell.source).visit(ast.parse(source, self._name))
        except SyntaxError as error:
            shown = (error.text or "").strip()
            raise ProgramError(
                f"{self._name}, line {error.lineno or 1}: {error.msg}" + (f": {shown}" if shown else ""),
                fix="correct the line: a notebook is run only if Python can read each cell",
            ) from error
        assert isinstance(tree, ast.Module)
        return tree


def _leading_lines(source: str) -> str:
    """Return the empty lines that IPython drops from the begin of a cell."""
    lines = split_lines(source)
    count = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n" * count


class _OpenTimers(ast.NodeTransformer):
    """Puts the code that `%time` and `%%time` run into the tree of the cell, so that its calls are seen."""

    def __init__(self, shell: Any, source: str) -> None:
        self._shell = shell
        self._lines = split_lines(source)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Replace the statement `%time ...`, or the whole cell of `%%time`."""
        kind, code = _timed(node.value)
        if code is None or not code.strip():
            return node
        tree = ast.parse(self._shell.transform_cell(code))
        if kind == "run_cell_magic":
            ast.increment_lineno(tree, node.lineno)
        else:
            self._move_behind_magic(tree, node.lineno)
        return self._timed_block(node, tree.body)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Replace `name = %time ...`."""
        _, code = _timed(node.value)
        if code is None:
            return node
        tree = ast.parse(code)
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
            return node
        self._move_behind_magic(tree, node.lineno)
        node.value = tree.body[0].value
        return self._timed_block(node, [node])

    def _move_behind_magic(self, tree: ast.Module, line: int) -> None:
        """Move the code of a magic to its place at the end of a line of the cell."""
        by = len(self._lines[line - 1].rstrip().encode()) - (tree.body[-1].end_col_offset or 0)
        for node in ast.walk(tree):
            if isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg, ast.alias)):
                node.col_offset += by
                node.end_col_offset = (node.end_col_offset or 0) + by
        ast.increment_lineno(tree, line - 1)

    def _timed_block(self, node: ast.stmt, body: Sequence[ast.stmt]) -> ast.With:
        timer = ast.parse(f"get_ipython().{_TIMER}()", mode="eval").body
        for each in ast.walk(timer):
            ast.copy_location(each, node)
        return ast.copy_location(ast.With(items=[ast.withitem(timer)], body=list(body)), node)


def _timed(node: ast.expr) -> tuple[str, str | None]:
    """Return how a cell calls the magic `time`, and the code that it times; None for another expression."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return "", None
    words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    kind = node.func.attr
    if kind not in ("run_line_magic", "run_cell_magic") or not words or words[0] != "time":
        return "", None
    return kind, words[-1] if len(words) == len(node.args) else None


@contextmanager
def _timer() -> Iterator[None]:
    """Print the times of a block as IPython's `%time` does."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        sys.stdout.write(f"CPU times: total: {time.process_time() - cpu_s:.3g} s\n")
        sys.stdout.write(f"Wall time: {time.perf_counter() - wall_s:.3g} s\n")


@contextmanager
def _open_shell(main: ModuleType) -> Iterator[Any]:
    """Give IPython's shell over the program's namespace, without its history and its files in the home folder."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    with tempfile.TemporaryDirectory(prefix="joulediff-ipython-") as folder:
        config = Config()
        config.HistoryManager.enabled = False
        hook, display = sys.excepthook, sys.displayhook
        shell = InteractiveShell.instance(config=config, ipython_dir=folder, user_module=main, user_ns=main.__dict__)
        # `exit` in a cell calls the first one.
        for name, function in (("ask_exit", sys.exit), (_TIMER, _timer)):
            setattr(shell, name, function)
        try:
            yield shell
        finally:
            sys.excepthook, sys.displayhook = hook, display
            InteractiveShell.clear_instance()
