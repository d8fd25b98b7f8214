"""`%%joules` and `%joules`: the energy of a cell or a line of a notebook, which runs once and as it would without.

Names, the result and exceptions of the cell are those of a plain cell.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from types import CodeType
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, output_can_be_silenced

from joulediff.measuring.blocks.measure import measure
from joulediff.measuring.blocks.shared_meters import shared_meters
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement
from joulediff.model.options import MeasureOptions
from joulediff.report.show import show

_WITH_VALUE = ("-n", "--name", "-o", "--output", "--meter", "--cpu-watts")
_FLAGS = ("-q", "--quiet", "--no-sync")
_USAGE = "%%joules [-n NAME] [-o VARIABLE] [-q] [--meter M] [--cpu-watts W] [--no-sync]"


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
        """
        __tracebackhide__ = True  # a traceback of the cell does not show this frame
        options, code = _read(line, is_cell=cell is not None)
        name = options.name or ("line" if cell is None else "cell")
        _open_meters(options.meter, options.cpu_watts)
        block = measure(name, meter=options.meter, cpu_watts=options.cpu_watts, synchronise=not options.no_sync)
        parts = _compile(self.shell, code if cell is None else cell)
        try:
            with block:
                return _run(parts, self.shell.user_ns)
        finally:
            self._finish(block.result, options)

    def _finish(self, result: BlockMeasurement, options: Any) -> None:
        if options.output:
            self.shell.user_ns[options.output] = result
        if not options.quiet:
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
    return parser


def _open_meters(meter: str, cpu_watts: float | None) -> None:
    try:
        shared_meters(meter, cpu_watts)
    except JoulediffError as error:
        why = str(error)
    else:
        return
    raise UsageError(why)


def _compile(shell: Any, source: str) -> tuple[CodeType | None, CodeType | None]:
    """Return the statements of a cell, and the expression at its end, whose value is the result of the cell."""
    text = shell.transform_cell(source)
    name = shell.compile.cache(text, shell.execution_count, raw_code=source)
    tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = shell.compile(tree, name, "exec") if tree.body else None
    return statements, None if last is None else shell.compile(ast.Expression(last.value), name, "eval")


def _run(parts: tuple[CodeType | None, CodeType | None], names: dict[str, Any]) -> object:
    __tracebackhide__ = True
    statements, last = parts
    if statements is not None:
        exec(statements, names)  # noqa: S102 - the user's own cell
    return None if last is None else eval(last, names)  # noqa: S307


def load(shell: InteractiveShell) -> None:
    """Register the magics: `%load_ext joulediff`."""
    shell.register_magics(JouleMagics)
