"""Runs a script as it is until one of its loops has run a few times, and gives the body of the loop as a step.

The step repeats one iteration: before each call the variables that the body binds, and the schedules of a training, are
as they were at the begin of that iteration. The script is ended when the step was used. Its exceptions, `finally` and
`with` blocks work as ever.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import UserDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from joulediff.frameworks.framework import loaded_frameworks
from joulediff.frameworks.model_calls import ModelCalls
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.pysource.loops.find_loops import FoundLoop
from joulediff.pysource.loops.rewrite_loop import HOOK, rewrite_loops
from joulediff.pysource.programs import Step, UserCodeFailed, describe
from joulediff.pysource.run_script import run_as_main
from joulediff.session.choose_loop import Choice, choose_loops, list_loops, read_script

Values = Callable[[], dict[str, Any]]
"""Returns the values of the names that a body binds; raises NameError if one is not bound."""
# What iterations of loops inside of the step call: written in C, it takes three arguments and changes nothing.
NO_HOOK = slice
NOT_BUILT_AGAIN = "the step is a loop of a script, which is not built again"

UseStep = Callable[[Step, str], None]
"""Called with the step, and a sentence that says which part of the script it is."""


class StepUsed(SystemExit):
    """Ends the script after its step was used. It is no error, so the script's own handlers let it pass."""


@dataclass(slots=True)
class _Count:
    """How often a loop has run. Iterations of other threads and processes do not count."""

    iterations: int = 0
    """Those that count towards the choice of the loop."""
    begun: int = 0
    spent_s: float = 0.0
    body: Any = None
    """The function of the loop under way; each time that the loop begins it has a new one."""
    begin_s: float = 0.0
    model_calls: int = 0


@dataclass(slots=True)
class _Watch:
    """Counts the iterations of the loops of a script, and uses the body of the first that has run often enough."""

    name: str
    after: int
    use: UseStep
    choice: Choice = field(default_factory=lambda: Choice(()))
    counts: dict[int, _Count] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)
    over: bool = False
    used: bool = False
    error: BaseException | None = None
    """What using the step raised."""
    model_calls: ModelCalls | None = None

    def compile(self, where: str, source: bytes, file: str) -> CodeType:
        script = read_script(source, self.name)
        self.choice = choose_loops(script, where, self.name)
        self.counts = {each.number: _Count() for each in self.choice.loops}
        return rewrite_loops(script, self.choice.loops, file)

    def begin_iteration(self, number: int, body: FunctionType, values: Values) -> None:
        """Note that an iteration begins. The script gives the loop's number and the functions made for it."""
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self.pid:
            return
        if self.over:  # the script caught the end
            raise StepUsed
        count = self.counts[number]
        if self._is_due(count, body):
            self._use(number, count, body, values)
        count.begun += 1

    def _is_due(self, count: _Count, body: FunctionType) -> bool:
        if not self.choice.needs_model:
            count.iterations = count.begun
            return count.iterations >= self.after
        now_s, calls = time.perf_counter(), self._count_models()
        if count.body is body:
            count.spent_s += now_s - count.begin_s
            is_inside = self.model_calls is not None and self.model_calls.is_inside
            count.iterations += calls > count.model_calls and not is_inside
        count.body, count.begin_s, count.model_calls = body, now_s, calls
        return count.iterations >= max(1, self.after)

    def _count_models(self) -> int:
        if self.model_calls is None:
            counting = (each.count_model_calls for each in loaded_frameworks())
            self.model_calls = next((each() for each in counting if each is not None), None)
        return 0 if self.model_calls is None else self.model_calls.calls

    def _use(self, number: int, count: _Count, body: FunctionType, values: Values) -> None:
        loop = next(each for each in self.choice.loops if each.number == number)
        self.close()
        body.__globals__[HOOK] = NO_HOOK  # loops inside of the body need not be counted any more
        what = f"the step is the {loop.kind} at {self.name}:{loop.line} ({loop.text[:60]}), iteration {count.begun + 1}"
        try:
            self.use(repeated(body, values, loop), what)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over = True
            body.__globals__[HOOK] = self.begin_iteration
        self.used = True
        raise StepUsed

    def close(self) -> None:
        if self.model_calls is not None:
            self.model_calls.close()
            self.model_calls = None


def use_loop(path: str, arguments: Sequence[str], *, where: str, after: int, use: UseStep) -> None:
    """Run a script until a loop of it has run `after` times, and call `use` with its body as a step.

    `where` is the loop's line, its function, or `ANY_LOOP`. Raises ProgramError if there is no such iteration.
    """
    if after < 0:
        raise JoulediffError(f"cannot record a loop after {after} iterations", fix="give a number from 0 on")
    watch = _Watch(path, after, use)
    try:
        run_as_main(
            path,
            arguments,
            compile=lambda source, file: watch.compile(where, source, file),
            names={HOOK: watch.begin_iteration},
        )
    except BaseException as error:
        if watch.error is None and not watch.used:
            raise _explain(error, watch) from error
    finally:
        watch.close()
    if watch.error is not None:
        raise watch.error
    if not watch.used:
        raise _never_due(watch)


def _explain(error: BaseException, watch: _Watch) -> BaseException:
    """Return the error for a script that ended before its loop could be used."""
    if isinstance(error, ProgramError | KeyboardInterrupt):
        return error
    if not isinstance(error, SystemExit):
        return UserCodeFailed(f"{watch.name} raised {describe(error)}, before its step could be recorded")
    if not error.code:
        return _never_due(watch)
    what = f"{watch.name} ended itself before its step could be recorded (sys.exit({error.code!r}))"
    return UserCodeFailed(what, fix="check the words after --: they are its arguments")


def _never_due(watch: _Watch) -> ProgramError:
    loops, name = watch.choice.loops, watch.name
    counts = [watch.counts[each.number] for each in loops]
    begun = sum(each.begun for each in counts)
    if not begun:
        what = f"the {loops[0].kind} at {name}:{loops[0].line}" if len(loops) == 1 else f"any loop of {name}"
        fix = "check the arguments after --, and that the loop runs in the main thread of the script itself"
        return ProgramError(f"the script ended before {what} had run", fix=fix)
    if watch.choice.needs_model and not any(each.iterations for each in counts):
        order = sorted(range(len(loops)), key=lambda i: -counts[i].spent_s)
        facts = [f"({counts[i].begun:,} iterations, {counts[i].spent_s:.1f} s)" for i in order]
        listed = list_loops([loops[i] for i in order], facts)
        what = f"cannot tell which loop of {name} is the step: no model was seen to be called in one"
        return ProgramError(what, fix=f"choose one by its line:\n{listed}")
    most = max(range(len(loops)), key=lambda i: counts[i].begun)
    what = f"the {loops[most].kind} at {name}:{loops[most].line} ran {counts[most].begun} times"
    return ProgramError(
        f"{what}, and is recorded after {watch.after} of them",
        fix=f"give the script more work, or --loop-after {max(0, counts[most].begun - 1)}",
    )


def repeated(body: FunctionType, values: Values, loop: FoundLoop) -> Step:
    """Return the step that repeats the iteration that now begins. It returns the values that the body binds, by name.

    The step refers to `body` by `__wrapped__`, so that models and state are found under the names that the script has
    for them, in the closure and the globals of `body`.
    """
    run = _Repeated(body, values, loop)

    def step() -> object:
        return run()

    step.__wrapped__ = body  # type: ignore[attr-defined]
    return step


class _Repeated:
    """One iteration, again and again. Its own attributes are no state of the program, so their names are hidden."""

    def __init__(self, body: FunctionType, values: Values, loop: FoundLoop) -> None:
        cells = dict(zip(body.__code__.co_freevars, body.__closure__ or (), strict=True))
        is_global = not loop.functions
        variables = {
            name: _Variable(name, body.__globals__, cells.get(name))
            for name in (*loop.batch, *loop.bound)
            if name in cells or is_global or name in body.__code__.co_names
        }
        begin = {name: each.read() for name, each in variables.items()}
        # A body may take parts out of its batch: `labels = batch.pop("labels")`.
        whole = [name for name in loop.batch if isinstance(begin.get(name), dict | list | UserDict)]
        self.__batch__ = [(variables[name].write, copy.copy(begin[name])) for name in whole]
        self.__begin__ = [
            (each.write, begin[name])
            for name, each in variables.items()
            if name in loop.continued and name not in whole
        ]
        holding = (each.hold_counters for each in loaded_frameworks())
        self.__counters__ = [hold() for hold in holding if hold is not None]
        self.__body__ = body
        self.__values__ = values
        self.__bound__ = [variables[name] for name in loop.bound if name in variables]
        self.__are_results__ = False

    def __call__(self) -> object:
        for write, value in self.__begin__:
            write(value)
        for write, value in self.__batch__:
            write(copy.copy(value))
        for put_back in self.__counters__:
            put_back()
        self.__body__()
        if self.__are_results__:  # all values of the repeat before
            try:
                return self.__values__()
            except NameError:  # a name that the body does not always bind
                self.__are_results__ = False
        found = {each.name: each.read() for each in self.__bound__}
        results = {name: value for name, value in found.items() if _is_result(value)}
        self.__are_results__ = bool(results) and len(results) == len(found)
        return results or None


_UNBOUND = object()


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of the script: in a cell, or a global one."""

    name: str
    table: dict[str, Any]
    cell: Any

    def read(self) -> Any:
        if self.cell is None:
            return self.table.get(self.name, _UNBOUND)
        try:
            return self.cell.cell_contents
        except ValueError:
            return _UNBOUND

    def write(self, value: Any) -> None:
        if self.cell is None:
            if value is _UNBOUND:
                self.table.pop(self.name, None)
            else:
                self.table[self.name] = value
        elif value is not _UNBOUND:
            self.cell.cell_contents = value
        else:
            with suppress(ValueError):  # unbound already
                del self.cell.cell_contents


def _is_result(value: object) -> bool:
    """Return whether a value may be an output of the step: no function, class, module or model."""
    return not (value is None or value is _UNBOUND or callable(value) or isinstance(value, ModuleType))
