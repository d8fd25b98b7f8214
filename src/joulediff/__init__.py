"""joulediff finds the code that wastes energy in machine-learning programs.

    import joulediff as jd
    print(jd.measure(step).energy)
    with jd.measure("load") as m: ...
    run = jd.record(step, label="mine", path="mine.jd")
    jd.show(jd.diff(run, other_step))

Names are loaded when they are first used: importing joulediff loads no framework and no device library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from joulediff.model.display import set_html
from joulediff.version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from joulediff.archive.reader import load
    from joulediff.archive.writer import save
    from joulediff.diagnosis.diff import diff
    from joulediff.frameworks.named_regions import region
    from joulediff.measuring.blocks.calls import measured
    from joulediff.measuring.blocks.measure import measure
    from joulediff.measuring.doctor import check_machine
    from joulediff.measuring.scaling.series import scale
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.apis.scaling import Scaling
    from joulediff.model.diff import Diff
    from joulediff.model.energy import Energy
    from joulediff.model.errors import JoulediffError
    from joulediff.model.finding import Finding
    from joulediff.model.measurement import Checkup, Measurement
    from joulediff.model.run import Run
    from joulediff.pysource.loops.marks import step, steps
    from joulediff.report.render import render
    from joulediff.report.show import show
    from joulediff.session.record import record

__all__ = [
    "ApiRun",
    "Checkup",
    "Diff",
    "Energy",
    "Finding",
    "JoulediffError",
    "Measurement",
    "Run",
    "Scaling",
    "__version__",
    "check_machine",
    "diff",
    "load",
    "measure",
    "measured",
    "record",
    "region",
    "render",
    "save",
    "scale",
    "show",
    "step",
    "steps",
]

_HOMES = {
    "ApiRun": "joulediff.model.apis.api_run",
    "Checkup": "joulediff.model.measurement",
    "Diff": "joulediff.model.diff",
    "Energy": "joulediff.model.energy",
    "Finding": "joulediff.model.finding",
    "JoulediffError": "joulediff.model.errors",
    "Measurement": "joulediff.model.measurement",
    "Run": "joulediff.model.run",
    "Scaling": "joulediff.model.apis.scaling",
    "check_machine": "joulediff.measuring.doctor",
    "diff": "joulediff.diagnosis.diff",
    "load": "joulediff.archive.reader",
    "measure": "joulediff.measuring.blocks.measure",
    "measured": "joulediff.measuring.blocks.calls",
    "record": "joulediff.session.record",
    "region": "joulediff.frameworks.named_regions",
    "render": "joulediff.report.render",
    "save": "joulediff.archive.writer",
    "scale": "joulediff.measuring.scaling.series",
    "show": "joulediff.report.show",
    "step": "joulediff.pysource.loops.marks",
    "steps": "joulediff.pysource.loops.marks",
}


def _to_html(record: object) -> str:
    from joulediff.report.notebook import to_html

    return to_html(record)


set_html(_to_html)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics of notebooks: `%load_ext joulediff`."""
    from joulediff.integrations.magics import load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'joulediff' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
