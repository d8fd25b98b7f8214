"""The recording that the parent asks the child for: plain data, passed as a command-line argument."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from joulediff.measuring.meters import FILE_METERS
from joulediff.model.options import RecordOptions
from joulediff.model.run import Setting

# Packages that recording needs in the program's environment.
PACKAGES = ("numpy", "psutil", "scipy")


@dataclass(frozen=True, slots=True)
class Request:
    """One program to record, and how. `arguments` are the program's `sys.argv`."""

    program: str
    options: RecordOptions
    arguments: tuple[str, ...] = ()
    serve: bool = False
    """Wait for the command to record, and answer commands afterwards."""
    quiet: bool = False
    """Show nothing that the program prints."""
    hold: bool = False
    """Run the program's file, and wait for the command to build the step."""
    fix: Mapping[str, Setting] = field(default_factory=dict)
    """Settings to apply once the program is built; it is built again if they shape a model."""


def to_text(request: Request) -> str:
    """Return a request as JSON, with full paths of files: a program may change the current folder."""
    options = replace(request.options, meter=absolute_meters(request.options.meter))
    return json.dumps(asdict(replace(request, options=options)))


def from_text(text: str) -> Request:
    """Return the request that `to_text` wrote."""
    fields = json.loads(text)
    options, arguments = RecordOptions(**fields.pop("options")), tuple(fields.pop("arguments"))
    return Request(options=options, arguments=arguments, **fields)


def file_of(program: str) -> str:
    """Return the file of `FILE.py[:name]`, as the user wrote it."""
    place, colon, name = program.rpartition(":")
    return place if colon and name.isidentifier() else program


def absolute_meters(meters: str) -> str:
    """Return the names of meters with full paths of their files."""
    parts = (part.strip().partition(":") for part in meters.split(","))
    return ",".join(
        f"{name}:{os.path.abspath(path)}" if name in FILE_METERS and path else name + colon + path  # noqa: PTH100
        for name, colon, path in parts
    )
