"""Every call of a function measured while the program runs: `@jd.measured`.

Calls add up. Time in which several calls run at once, in threads, in tasks or by recursion, counts once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from joulediff.measuring.blocks.block import wait_for_devices
from joulediff.measuring.blocks.shared_meters import SharedMeters, Tally, shared_meters
from joulediff.model.display import Displayed
from joulediff.model.errors import WrongType
from joulediff.model.measurement import BlockMeasurement
from joulediff.model.options import MeasureOptions

Function = TypeVar("Function", bound=Callable[..., Any])


class Calls(Displayed):
    """The measured calls of one function."""

    def __init__(self, name: str, open_meters: Callable[[], SharedMeters], *, synchronise: bool) -> None:
        self.name = name
        self._open_meters = open_meters
        self._synchronise = synchronise
        self._tally = Tally(name)
        self._is_inside: ContextVar[bool] = ContextVar("is_inside", default=False)

    @property
    def result(self) -> BlockMeasurement:
        """Return the sum of the calls so far."""
        return self._open_meters().result(self._tally)

    @property
    def calls(self) -> int:
        """Return how often the function was called."""
        return self._tally.calls

    def reset(self) -> None:
        """Forget the calls so far; those that are still running do not count."""
        self._tally = Tally(self.name)

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """Measure one call of the function; a call from within another one belongs to it."""
        if self._is_inside.get():
            yield
            return
        token, tally, meters = self._is_inside.set(True), self._tally, self._open_meters()
        try:
            if self._synchronise:
                wait_for_devices()
            begin_s = meters.begin(tally)
            try:
                yield
                if self._synchronise:
                    wait_for_devices()
            finally:
                meters.end(tally, begin_s)
        finally:
            self._is_inside.reset(token)

    def _to_shown(self) -> BlockMeasurement:
        return self.result

    def __repr__(self) -> str:
        return repr(self.result)


class Measured:
    """The decorator `jd.measured`, and the calls of all functions that it was used on."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Calls] = {}

    @overload
    def __call__(self, function: Function) -> Function: ...
    @overload
    def __call__(
        self,
        function: str | None = None,
        *,
        name: str | None = None,
        meter: str = MeasureOptions.meter,
        cpu_watts: float | None = MeasureOptions.cpu_watts,
        synchronise: bool = True,
    ) -> Callable[[Function], Function]: ...
    def __call__(
        self,
        function: Callable[..., Any] | str | None = None,
        *,
        name: str | None = None,
        meter: str = MeasureOptions.meter,
        cpu_watts: float | None = MeasureOptions.cpu_watts,
        synchronise: bool = True,
    ) -> Any:
        """Measure every call of a function, and add them up in its attribute `measured`.

        `@jd.measured`, `@jd.measured("name")` or with options. The begin and the end of a call wait for devices, unless
        `synchronise` is False.
        """
        if function is None or isinstance(function, str):
            called = function or name
            return lambda each: self._wrap(each, called, meter, cpu_watts, synchronise=synchronise)
        return self._wrap(function, name, meter, cpu_watts, synchronise=synchronise)

    def results(self) -> tuple[BlockMeasurement, ...]:
        """Return the sums of all functions that were called, in the order of their definition."""
        return tuple(each.result for each in self._calls.values() if each.calls)

    def reset(self) -> None:
        """Forget the calls of all functions so far."""
        for each in self._calls.values():
            each.reset()

    def _wrap(
        self, function: Any, name: str | None, meter: str, cpu_watts: float | None, *, synchronise: bool
    ) -> Callable[..., Any]:
        _refuse_uncallable(function)
        place = (function.__module__, function.__qualname__)
        calls = self._calls.get(place) if "<locals>" in place[1] else None
        if calls is None:  # a function that is defined again in a notebook begins anew
            called = name or function.__qualname__.rpartition("<locals>.")[2]
            calls = Calls(called, lambda: shared_meters(meter, cpu_watts), synchronise=synchronise)
            self._calls[place] = calls

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_task(*arguments: Any, **named: Any) -> Any:
                with calls.one_call():
                    return await function(*arguments, **named)

            run_task.measured = calls  # type: ignore[attr-defined]
            return run_task

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            with calls.one_call():
                return function(*arguments, **named)

        run.measured = calls  # type: ignore[attr-defined]
        return run


def _refuse_uncallable(function: Any) -> None:
    if isinstance(function, staticmethod | classmethod | property):
        kind = type(function).__name__
        raise WrongType(f"measured was put on a {kind}", fix=f"write @jd.measured below @{kind}")
    if not inspect.isfunction(function):
        raise WrongType(
            f"measured takes a function, not an object of type {type(function).__name__}",
            fix="decorate a function or a method, or measure a block: with jd.measure(name): ...",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise WrongType(
            f"{function.__qualname__} is a generator function: a call of it returns before its work is done",
            fix="measure the loop that reads it: with jd.measure(name): for each in ...",
        )


measured = Measured()
