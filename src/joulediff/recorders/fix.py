"""A program with a fix in force, whatever its framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from joulediff.errors import JoulediffError
from joulediff.runs import Setting

Step = Callable[[], object]


def fixed_step(step: Step, build: Callable[[], Step], fix: Mapping[str, Setting]) -> Step:
    """Return a step with a fix; `build` makes the program again, for what only then can be set.

    The environment is no matter of the step: it is set before the process begins.
    """
    if all(name.startswith("env.") for name in fix):
        return step
    if "torch" not in sys.modules:
        raise JoulediffError(f"{', '.join(fix)} cannot be changed: the program uses no framework that is known")
    from joulediff.recorders.torch.fix import fixed_step as fixed_torch_step

    return fixed_torch_step(step, build, fix)
