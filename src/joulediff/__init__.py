"""joulediff finds the code that wastes energy in machine-learning programs.

    import joulediff as jd
    print(jd.measure(step).energy)
    run = jd.record(step, label="mine", path="mine.jd")
    found = jd.diff(run, "other.jd")

Names are loaded when they are first used: importing joulediff loads no framework and no device library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from joulediff.version import __version__

if TYPE_CHECKING:
    from joulediff.archive import load, save
    from joulediff.diagnosis.diagnose import diff
    from joulediff.diffs import Diff
    from joulediff.errors import JoulediffError
    from joulediff.findings import Finding
    from joulediff.metering import measure
    from joulediff.recorders.regions import region
    from joulediff.records import Checkup, Energy, Measurement
    from joulediff.report.diff_render import render
    from joulediff.runs import Run
    from joulediff.session import record
    from joulediff.stability.checkup import check_machine

__all__ = [
    "Checkup",
    "Diff",
    "Energy",
    "Finding",
    "JoulediffError",
    "Measurement",
    "Run",
    "__version__",
    "check_machine",
    "diff",
    "load",
    "measure",
    "record",
    "region",
    "render",
    "save",
]

_HOMES = {
    "Checkup": "joulediff.records",
    "Diff": "joulediff.diffs",
    "Energy": "joulediff.records",
    "Finding": "joulediff.findings",
    "JoulediffError": "joulediff.errors",
    "Measurement": "joulediff.records",
    "Run": "joulediff.runs",
    "check_machine": "joulediff.stability.checkup",
    "diff": "joulediff.diagnosis.diagnose",
    "load": "joulediff.archive",
    "measure": "joulediff.metering",
    "record": "joulediff.session",
    "region": "joulediff.recorders.regions",
    "render": "joulediff.report.diff_render",
    "save": "joulediff.archive",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'joulediff' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
