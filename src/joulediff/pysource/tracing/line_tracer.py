"""Traces one call of a function line by line: its statements, the values they read, and the origins of the values.

Only lines of the target function are traced; of any other function only the name is compared, once per call.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from joulediff.pysource.call_path import name_file
from joulediff.pysource.framework_hints import FrameworkHints
from joulediff.pysource.line_trace import LineTrace, Target, TraceLine
from joulediff.pysource.tracing.expression_reads import atoms_of
from joulediff.pysource.tracing.scopes import FrameScope, function_name
from joulediff.pysource.tracing.statements import FunctionNode, Statement, first_line, function_of, statement_at
from joulediff.pysource.tracing.value_origin import Binding, Origins

# Longer traces come from loops, whose iterations are alike.
MAX_LINES = 2000
MAX_STEPS = 50_000

Tracer = Callable[[FrameType, str, Any], Any]


def watch_lines(
    step: Callable[[], object],
    target: Target,
    *,
    hints: FrameworkHints,
    begin: Callable[[], None] | None = None,
    root: Path | None = None,
    calls: int = 1,
) -> LineTrace | None:
    """Run `step` once and return the trace of one call of the target; None if there was no such call.

    Call number `calls` is traced, of the calls that run the target's line, or of all calls if it has no line. `begin`
    runs just before, untraced. The user's own files are named relative to `root`, as in call paths.
    """
    if begin is not None:
        begin()
    listener = _Tracer(target, root, calls, hints)
    before = sys.gettrace()
    sys.settrace(listener.on_call)
    try:
        step()
    finally:
        sys.settrace(before)
        listener.over = True
    return listener.found.to_trace(target) if listener.found else None


class _Tracer:
    """Decides which calls are traced. Only the frame of a call refers to it, so that both are freed together."""

    def __init__(self, target: Target, root: Path | None, calls: int, hints: FrameworkHints) -> None:
        self.target = target
        self.over = False
        self.found: _Call | None = None
        self.root = root
        self.hints = hints
        self._prefix = str(root or Path.cwd()) + os.sep
        self._left = calls
        self._wanted: dict[CodeType, FunctionNode | None] = {}

    def on_call(self, frame: FrameType, _event: str, _argument: Any) -> Tracer | None:
        """Return the tracer of a frame of the target, None for every other frame. A callback of `sys.settrace`."""
        if frame.f_code.co_name not in self.target.function or self.over:
            return None
        try:
            return self._follow(frame)
        except Exception:  # noqa: BLE001 - raised here, it would end up in the program
            return None

    def _follow(self, frame: FrameType) -> Tracer | None:
        code = frame.f_code
        followed = getattr(frame.f_trace, "__self__", None)
        if isinstance(followed, _Call):  # a generator that is resumed
            return followed.on_line
        node = self._node(code)
        if node is None or self.found is not None:
            return None
        call = _Call(self, code, node)
        if self.target.line is None:
            self.choose(call)
        return call.on_line

    def choose(self, call: _Call) -> None:
        """Select a call, if its number is the wanted one."""
        self._left -= 1
        if self._left == 0:
            self.found = call

    def _node(self, code: CodeType) -> FunctionNode | None:
        if code not in self._wanted:
            named = function_name(code) == self.target.function
            here = named and name_file(code.co_filename, self._prefix, self.hints)[0] == self.target.file
            self._wanted[code] = function_of(code) if here else None
        return self._wanted[code]


class _Call:
    """Records one call. It refers to no frame, since the frame of the call refers to it."""

    def __init__(self, listener: _Tracer, code: CodeType, node: FunctionNode) -> None:
        self._tracer = listener
        self._code = code
        self._node = node
        self._origins = Origins(listener.root, listener.hints)
        self._lines: list[TraceLine] = []
        self._bound: dict[str, Binding] = {}
        self._running: Statement | None = None
        self._bindings: dict[str, Binding] = {}
        self._led: int | None = None
        self._full = False

    def on_line(self, frame: FrameType, event: str, _argument: Any) -> Tracer | None:
        """Record a line before it runs. A callback of `sys.settrace`."""
        listener = self._tracer
        if listener.over or self._full or (listener.found is not None and listener.found is not self):
            frame.f_trace = None
            return None
        try:
            self._note(frame, event)
        except Exception:  # noqa: BLE001 - raised here, it would end up in the program
            self._full = True
        return self.on_line

    def _note(self, frame: FrameType, event: str) -> None:
        statement = statement_at(self._node, frame.f_lineno) if event == "line" else None
        if statement is self._running or event not in ("line", "return"):
            return
        scope = FrameScope(frame, 0, self._bound)
        self._finish(scope)
        if statement is not None:
            self._begin(statement, scope)

    def _begin(self, statement: Statement, scope: FrameScope) -> None:
        atoms = atoms_of(statement.reads)
        called = self._origins.read([atom for atom in atoms if atom.callee], scope)
        read = [at for at in self._origins.read(atoms, scope) if at not in called]
        names = tuple(bind.name for bind in statement.binds)
        line_atoms = (*called, *read)
        self._lines.append(TraceLine(statement.first, statement.text, statement.branch, line_atoms, len(called), names))
        self._running = statement
        self._bindings = {bind.name: self._binding(statement, bind.value, scope) for bind in statement.binds}
        line = self._tracer.target.line
        if line is not None and self._led is None and statement_at(self._node, line) is statement:
            self._led = len(self._lines) - 1
            self._tracer.choose(self)
        self._full = len(self._lines) >= MAX_LINES or len(self._origins.steps) >= MAX_STEPS

    def _binding(self, statement: Statement, value: ast.expr | None, scope: FrameScope) -> Binding:
        place = self._origins.place(scope.file, statement.first, scope.function)
        text = ast.unparse(value) if value is not None else statement.text
        return Binding(len(self._lines), text, place, self._origins.sources(value, scope))

    def _finish(self, scope: FrameScope) -> None:
        """Make the names that the last statement set visible to the next ones."""
        self._bound.update(self._bindings)
        late = [bind for bind in self._running.binds if bind.late] if self._running else []
        if late:
            atoms = self._origins.read(atoms_of([ast.Name(bind.name, ast.Load()) for bind in late]), scope)
            line = self._lines[-1]
            self._lines[-1] = replace(line, atoms=tuple(dict.fromkeys((*line.atoms, *atoms))))
        self._running, self._bindings = None, {}

    def to_trace(self, target: Target) -> LineTrace:
        """Return the recorded call."""
        first, last = first_line(self._node), self._node.end_lineno or self._node.lineno
        source = tuple(each.rstrip("\n") for each in linecache.getlines(self._code.co_filename)[first - 1 : last])
        lines, steps = tuple(self._lines), tuple(self._origins.steps)
        return LineTrace(target.file, target.function, first, source, lines, steps, self._led, not self._full)
