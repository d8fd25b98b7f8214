"""Applies a fix to a program: settings while its step runs, and entries of model configurations while it is built.

A configuration determines how a model is built. So the program is built twice: once to find its configurations, and
again with the entry set in each as soon as it is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from joulediff.frameworks.torch.models import find_holdings
from joulediff.frameworks.torch.switches.change import changed
from joulediff.frameworks.torch.switches.table import GRADIENTS
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Setting
from joulediff.pysource.programs import Step

CONFIG = "config."


def fixed_step(step: Step, build: Callable[[], Step], fix: Mapping[str, Setting]) -> Step:
    """Return a step, which `build` makes again, with a fix: entries are `config.NAME`, or names of settings."""
    entries = {name.removeprefix(CONFIG): value for name, value in fix.items() if name.startswith(CONFIG)}
    settings = {name: value for name, value in fix.items() if not name.startswith((CONFIG, "env."))}
    if entries:
        step = _build_again(step, build, entries)
    return _Fixed(step, settings) if settings else step


class _Fixed:
    """A step under other settings."""

    def __init__(self, step: Step, settings: Mapping[str, Setting]) -> None:
        self.step = step
        self._gradients = settings.get(GRADIENTS)
        self._settings = {name: value for name, value in settings.items() if name != GRADIENTS}

    def __call__(self) -> object:
        import torch

        with ExitStack() as stack:
            if self._settings:
                stack.enter_context(changed(self._settings))
            if self._gradients is not None:
                stack.enter_context(torch.set_grad_enabled(bool(self._gradients)))
            return self.step()


def _build_again(step: Step, build: Callable[[], Step], entries: Mapping[str, Setting]) -> Step:
    configs = [getattr(model, "config", None) for model in find_holdings(step).models.values()]
    kinds = {type(config) for config in configs if any(hasattr(config, name) for name in entries)}
    if not kinds:
        raise JoulediffError(f"no model of the program has {', '.join(entries)} in its configuration")
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(_entries_set(kind, entries))
        again = build()
    for model in find_holdings(again).models.values():  # some entries are read when the model runs
        config: Any = getattr(model, "config", None)
        if type(config) in kinds:
            _set_entries(config, entries)
    return again


@contextmanager
def _entries_set(kind: Any, entries: Mapping[str, Setting]) -> Iterator[None]:
    """Set entries of every configuration of a kind once it is made."""
    before, is_own = kind.__init__, "__init__" in vars(kind)

    def initialise(config: Any, *args: Any, **kwargs: Any) -> None:
        before(config, *args, **kwargs)
        _set_entries(config, entries)

    kind.__init__ = initialise
    try:
        yield
    finally:
        if is_own:
            kind.__init__ = before
        else:
            del kind.__init__


def _set_entries(config: Any, entries: Mapping[str, Setting]) -> None:
    for name, value in entries.items():
        if hasattr(config, name):
            setattr(config, name, value)
