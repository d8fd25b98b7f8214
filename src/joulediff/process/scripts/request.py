"""The script that the parent asks the child to run: plain data, passed as a command-line argument."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from joulediff.model.options import ApisOptions
from joulediff.model.run import Setting
from joulediff.process.request import absolute_meters


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """One script to run. `arguments` are its `sys.argv`, `libraries` empty for those that it imports.

    With `is_module`, `script` is the name of a module to run as `python -m` does.
    """

    script: str
    label: str
    options: ApisOptions
    arguments: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    is_module: bool = False
    quiet: bool = False
    """Show nothing that the program prints."""
    fix: Mapping[str, Setting] = field(default_factory=dict)


def to_text(request: ScriptRequest) -> str:
    """Return a request as JSON, with full paths of files: a program may change the current folder."""
    options = replace(request.options, meter=absolute_meters(request.options.meter))
    return json.dumps(asdict(replace(request, options=options)))


def from_text(text: str) -> ScriptRequest:
    """Return the request that `to_text` wrote."""
    fields = json.loads(text)
    options = ApisOptions(**fields.pop("options"))
    lists: dict[str, Any] = {name: tuple(fields.pop(name)) for name in ("arguments", "libraries", "include")}
    return ScriptRequest(options=options, **lists, **fields)
