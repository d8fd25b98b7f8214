"""Patch a text in tests, and run it with a `measured` that only notes calls."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import joulediff.patched
from joulediff.instrument.patch.edits import apply_edits
from joulediff.instrument.patch.frame_sites import FrameSites
from joulediff.instrument.patch.header import find_header
from joulediff.instrument.patch.source import PatchRequest, patch_source, unpatch_text
from joulediff.instrument.rewriting.calls import Call
from joulediff.instrument.rewriting.sites import Watcher


def patch(text: str, *libraries: str, **request: Any) -> str:
    found = patch_source(text, "train.py", PatchRequest(libraries or ("numpy",), "train.py", **request))
    return apply_edits(text, found.edits)


def wrapped(line: str, before: str = "") -> str:
    """Return the last line of a patched program; `before` are the lines before it."""
    return patch(f"{before}{line}\nother.call()\n").splitlines()[-2]


def undo(text: str) -> str:
    header = find_header(text)
    assert header is not None
    return unpatch_text(text, "train.py", header.name)


@dataclass
class Noted:
    """Takes the place of `joulediff.patched.measured`, and notes each begin and end."""

    every: bool = True
    libraries: Sequence[str] = ()
    started: tuple[str, ...] = ()
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frames = FrameSites("measured", lambda file: file)
        self.watcher = Watcher(self.libraries, self, every=self.every)

    def start(self, *words: str) -> None:
        self.started = words

    def __call__(self, callee: Any) -> Any:
        return self.watcher.site(self.frames.site_at(sys._getframe(1)), None).callee(callee)

    def begin(self, call: Call) -> None:
        self.calls.append(("begin", call.site))

    def end(self, call: Call) -> None:
        self.calls.append(("end", call.site))


def run(text: str, file: str, noted: Noted | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a text as `file`; with `noted` it is patched."""
    if noted is not None:
        monkeypatch.setattr(joulediff.patched, "measured", noted)
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(keepends=True), file))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return names
