"""Run a script under a profile function, and write the lines from which it calls functions of libraries.

    python benchmarks/apis_sites.py FOUND.json LIBRARY[,LIBRARY] SCRIPT [ARGUMENTS]

Used by apis_books.py: what Python itself reports of calls, without any rewriting.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from pathlib import Path

place, libraries, script = sys.argv[1], frozenset(sys.argv[2].split(",")), sys.argv[3]
sys.argv[:] = sys.argv[3:]
sys.path[0] = str(Path(script).resolve().parent)
lines: set[int] = set()
me = os.getpid()


def top(name: object) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""


def library_of(function: object) -> str:
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type(sys)):
        kind = owner if isinstance(owner, type) else type(owner)
        return top(kind.__module__)
    return top(getattr(function, "__module__", None))


def note(frame, event, argument):
    if event == "c_call":
        caller, library = frame, library_of(argument)
    elif event == "call":
        caller, library = frame.f_back, top(frame.f_globals.get("__name__"))
        # Operators, attributes and the parts of a class statement are no call expressions.
        if frame.f_code.co_name.startswith("__") and frame.f_code.co_name not in ("__init__", "__call__", "__new__"):
            return
    else:
        return
    if caller is not None and caller.f_code.co_filename == script and library in libraries:
        lines.add(caller.f_lineno)


@atexit.register
def write() -> None:
    if os.getpid() == me:
        sys.setprofile(None)
        Path(place).write_text(json.dumps(sorted(lines)))


code = compile(Path(script).read_bytes(), script, "exec")
space = {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__}
threading.setprofile(note)
sys.setprofile(note)
exec(code, space)
