"""`%%joules` and `%joules`: the energy of a cell or a line of a notebook, which runs once and as it would without.

Names, the result and exceptions of the cell are those of a plain cell. With `--apis` the result has the energy of each
library call in it.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import CO_COROUTINE
from types import CodeType, TracebackType
from typing import Any, NoReturn, cast

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class, output_can_be_silenced

from joulediff.instrument.rewriting.plain_code import mode_of
from joulediff.integrations.cell_apis import CellApis, CellSource
from joulediff.measuring.blocks.measure import measure
from joulediff.measuring.blocks.shared_meters import shared_meters
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement
from joulediff.model.options import ApisOptions, MeasureOptions
from joulediff.report.show import show

_WITH_VALUE = ("-n", "--name", "-o", "--output", "--meter", "--cpu-watts", "--library", "--wait")
_FLAGS = ("-q", "--quiet", "--no-sync", "--apis")
_USAGE = (
    "%%joules [-n NAME] [-o VARIABLE] [-q] [--meter M] [--cpu-watts W] [--no-sync]\n"
    "         [--apis [--library NAME]... [--wait SECONDS]]"
)
_CALL_OF_MAGIC = "get_ipython().run_cell_magic('joules', "
# `from __future__ import annotations` in a cell holds for the cells behind it too.
_KEPT_FLAGS = __future__.annotations.compiler_flag


@magics_class
class JouleMagics(Magics):
    """The magics of joulediff."""

    shell: Any

    @output_can_be_silenced
    @line_cell_magic
    def joules(self, line: str, cell: str | None = None) -> object:
        """Measure the energy of a cell, or of the rest of the line, which runs once.

        %%joules -n load
        data = load()

        -n NAME names it in the report, -o VARIABLE stores the measurement, -q shows no report. --meter and --cpu-watts
        are those of `joulediff measure`. --no-sync does not wait for devices at the begin and the end.

        --apis measures each library call that is written in the cell: of the libraries that the kernel has imported, or
        of those named with --library, which may be repeated. --wait SECONDS is the longest wait for a quiet machine.
        """
        __tracebackhide__ = True  # a traceback of the cell does not show this frame
        with self._measure(line, cell, may_await=False) as run:
            return _run(run.codes, self.shell.user_ns)

    @cell_magic
    async def joules_awaited(self, line: str, cell: str) -> object:
        """Do the same with a cell that has `await` outside of a function: `%%joules` becomes this there."""
        __tracebackhide__ = True
        with self._measure(line, cell, may_await=True) as run:
            result = await _run_awaited(run.codes, self.shell.user_ns)
        is_silent = DisplayHook.semicolon_at_end_of_expression(cell)  # type: ignore[no-untyped-call]
        return None if is_silent else result

    def _measure(self, line: str, cell: str | None, *, may_await: bool) -> _MeasuredCell:
        __tracebackhide__ = True
        options, code = _read(line, is_cell=cell is not None)
        label = options.name or ("line" if cell is None else "cell")
        source = _parse(self.shell, code if cell is None else cell, None if cell is None else line, may_await=may_await)
        run = _open_apis(source, options, label) if options.apis else _open_block(self.shell, source, options, label)
        for each in run.codes:
            self.shell.compile.flags |= each.co_flags & _KEPT_FLAGS
        return _MeasuredCell(self.shell, run, options)


class _CellBlock:
    """A cell that is measured as one block."""

    def __init__(self, codes: tuple[CodeType, ...], label: str, options: Any) -> None:
        self.codes = codes
        self.failure: str | None = None
        self.result: BlockMeasurement | None = None
        self._block = measure(label, meter=options.meter, cpu_watts=options.cpu_watts, synchronise=not options.no_sync)

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._block.__exit__(kind, error, trace)
        self.result = self._block.result


class _MeasuredCell:
    """Measures a cell while it runs, then stores and shows the result."""

    def __init__(self, shell: Any, run: CellApis | _CellBlock, options: Any) -> None:
        self._shell, self._run, self._options = shell, run, options
        self.codes = run.codes

    def __enter__(self) -> _MeasuredCell:
        self._run.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run.__exit__(kind, error, trace)
        result: BlockMeasurement | ApiRun | None = self._run.result
        if self._options.output:
            self._shell.user_ns[self._options.output] = result
        if result is None:
            sys.stderr.write(f"joulediff: {self._run.failure}\n")
        elif not self._options.quiet:
            show(result)


def _read(line: str, *, is_cell: bool) -> tuple[Any, str]:
    """Return the options of the magic, and the code after them."""
    words, rest = [], line.strip()
    while (found := re.match(r"(-\S*)\s*", rest)) is not None and (is_cell or _is_option(found[1])):
        words.append(found[1])
        rest = rest[found.end() :]
        if found[1] in _WITH_VALUE and (value := re.match(r"""("[^"]*"|'[^']*'|\S+)\s*""", rest)) is not None:
            words += shlex.split(value[1])
            rest = rest[value.end() :]
    options = _parser().parse_args(words)
    if options.library and not options.apis:
        raise UsageError(f"--library names what --apis measures: add --apis\n{_USAGE}")
    if is_cell and rest:
        raise UsageError(f"%%joules takes no code in its line: {rest}\n{_USAGE}")
    if not is_cell and not rest:
        raise UsageError(f"%joules has nothing to run\n{_USAGE.replace('%%', '%', 1)} CODE")
    if options.output is not None and not options.output.isidentifier():
        raise UsageError(f"{options.output} cannot be the name of a variable")
    return options, rest


def _is_option(word: str) -> bool:
    return word.partition("=")[0] in (*_WITH_VALUE, *_FLAGS)


class _Parser(argparse.ArgumentParser):
    """Raises for wrong options, where argparse would end the notebook's process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{_USAGE}")


def _parser() -> _Parser:
    parser = _Parser("%%joules", add_help=False)
    parser.add_argument("-n", "--name")
    parser.add_argument("-o", "--output")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--meter", default=MeasureOptions.meter)
    parser.add_argument("--cpu-watts", type=float, default=MeasureOptions.cpu_watts)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--apis", action="store_true")
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--wait", type=float, default=ApisOptions.wait_s)
    return parser


def _open_block(shell: Any, source: CellSource, options: Any, label: str) -> _CellBlock:
    try:
        shared_meters(options.meter, options.cpu_watts)
    except JoulediffError as error:
        why = str(error)
    else:
        with shell.compile.extra_flags(source.flags):
            codes = tuple(shell.compile(tree, source.name, mode_of(tree)) for tree in source.trees)
        return _CellBlock(codes, label, options)
    raise UsageError(why)


def _open_apis(source: CellSource, options: Any, label: str) -> CellApis:
    wanted = ApisOptions(
        meter=options.meter, cpu_watts=options.cpu_watts, synchronise=not options.no_sync, wait_s=options.wait
    )
    try:
        return CellApis(source, wanted, label=label, libraries=options.library)
    except JoulediffError as error:
        why = str(error)
    raise UsageError(why)


def _parse(shell: Any, source: str, magic: str | None, *, may_await: bool) -> CellSource:
    """Return a cell below the line of its magic, so that its lines are counted as the notebook does."""
    lines = source.splitlines(keepends=True)
    # IPython drops empty lines from the begin.
    blank = next((number for number, line in enumerate(lines) if line.strip()), 0)
    text = "\n" * blank + shell.transform_cell(source)
    above = "" if magic is None else "\n"
    flags = (shell.compile.flags & _KEPT_FLAGS) | (ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if may_await else 0)
    shown_text = text if magic is None else f"{f'%%joules {magic}'.rstrip()}\n{text}"
    number = shell.displayhook.prompt_count  # `execution_count` is that of the next cell in some versions
    name = shell.compile.cache(shown_text, number, raw_code=source)
    with shell.compile.extra_flags(flags):
        tree = shell.transform_ast(shell.compile.ast_parse(above + text, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    trees = [tree] if tree.body else []
    if last is not None:
        trees.append(ast.Expression(last.value))
    return CellSource(name, f"In[{number}]", shown_text, tuple(trees), flags)


def _run(codes: Iterable[CodeType], names: dict[str, Any]) -> object:
    """Run code in order and return the value of the last one, which is None for statements."""
    __tracebackhide__ = True
    value = None
    for code in codes:
        value = eval(code, names)  # noqa: S307 - the user's own cell
    return value


async def _run_awaited(codes: Iterable[CodeType], names: dict[str, Any]) -> object:
    __tracebackhide__ = True
    value = None
    for code in codes:
        value = eval(code, names)  # noqa: S307 - the user's own cell
        if code.co_flags & CO_COROUTINE:
            value = await cast("Any", value)
    return value


@dataclass(frozen=True, slots=True)
class _AwaitCells:
    """Lets IPython await a measured cell that has `await` outside of a function, as it awaits a plain one."""

    shell: Any

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines that run a cell, once IPython has made them from its text."""
        text = "".join(lines)
        if not text.startswith(_CALL_OF_MAGIC):
            return lines
        line, cell = (ast.literal_eval(each) for each in cast("Any", ast.parse(text)).body[0].value.args[1:])
        try:
            is_awaited = self.shell.should_run_async(cell, transformed_cell=self.shell.transform_cell(cell))
        except SyntaxError:  # the magic itself raises it
            return lines
        return [f"await get_ipython().run_cell_magic('joules_awaited', {line!r}, {cell!r})\n"] if is_awaited else lines


def load(shell: InteractiveShell) -> None:
    """Register the magics: `%load_ext joulediff`."""
    shell.register_magics(JouleMagics)
    transform = _AwaitCells(shell)
    if transform not in shell.input_transformers_post:
        shell.input_transformers_post.append(transform)
