"""What the parent asks of the child: plain data, handed over as an argument."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from joulediff.measuring.meters import FILE_METERS
from joulediff.model.options import RecordOptions
from joulediff.model.run import Setting


@dataclass(frozen=True, slots=True)
class Request:
    """One program to record, and how. `arguments` are the program's own."""

    program: str
    options: RecordOptions
    arguments: tuple[str, ...] = ()
    serve: bool = False
    """Wait to be told when to record, and for more to do afterwards."""
    hold: bool = False
    """Run the program's file and import what recording needs, and wait to be told before building the step."""
    fix: Mapping[str, Setting] = field(default_factory=dict)
    """Settings to put in force once the program is built; it is built again where they shape a model."""


def to_text(request: Request) -> str:
    """Return a request as JSON. Files are named in full: a program may change its folder."""
    options = replace(request.options, meter=_absolute(request.options.meter))
    return json.dumps(asdict(replace(request, options=options)))


def from_text(text: str) -> Request:
    """Return the request that `to_text` wrote."""
    fields = json.loads(text)
    options, arguments = RecordOptions(**fields.pop("options")), tuple(fields.pop("arguments"))
    return Request(options=options, arguments=arguments, **fields)


def file_of(program: str) -> str:
    """Return the file of `FILE.py[:name]`, as it was written."""
    place, colon, name = program.rpartition(":")
    return place if colon and name.isidentifier() else program


def _absolute(meters: str) -> str:
    parts = (part.strip().partition(":") for part in meters.split(","))
    return ",".join(
        f"{name}:{os.path.abspath(path)}" if name in FILE_METERS and path else name + colon + path  # noqa: PTH100
        for name, colon, path in parts
    )
