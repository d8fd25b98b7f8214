"""joulediff finds the code that wastes energy in machine-learning programs.

    import joulediff as jd
    print(jd.measure(step).energy)

Names are loaded when they are first used: importing joulediff loads no framework and no device library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from joulediff.version import __version__

if TYPE_CHECKING:
    from joulediff.errors import JoulediffError
    from joulediff.metering import measure
    from joulediff.records import Checkup, Energy, Measurement
    from joulediff.stability.checkup import check_machine

__all__ = ["Checkup", "Energy", "JoulediffError", "Measurement", "__version__", "check_machine", "measure"]

_HOMES = {
    "Checkup": "joulediff.records",
    "Energy": "joulediff.records",
    "JoulediffError": "joulediff.errors",
    "Measurement": "joulediff.records",
    "check_machine": "joulediff.stability.checkup",
    "measure": "joulediff.metering",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'joulediff' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
