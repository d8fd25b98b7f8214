"""The parent's side: run a script in a child process, and return the record of its calls.

The child sends the record so far from time to time, so that a program that is killed leaves one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from joulediff.archive.codec import Document, from_plain, read_json
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import ArchiveError, JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.process.guarded import END_S
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import LINGER_S, ChildProcess
from joulediff.process.protocol import Done, Failure, InvalidMessage, Message, RunSoFar, Stage
from joulediff.process.scripts.request import ScriptRequest, to_text

_ENTRY = "joulediff.process.scripts.child"
_DOCUMENT = Document(within=" in the record of the program", null_is_nan=True)


def run_script(
    request: ScriptRequest,
    *,
    interpreter: Interpreter,
    keep: Callable[[ApiRun], None] | None = None,
    listener: ProgressListener | None = None,
) -> ApiRun:
    """Return the record of a script. A program that ended in any way after it began has a record.

    `keep` is called with each record so far, the last one included.
    """
    listener = listener or ProgressListener()
    last: Message | None = None
    found: ApiRun | None = None
    stage = "starting"
    with ChildProcess(interpreter, request, to_text(request), entry=_ENTRY) as child:
        try:
            for last in child.messages():
                if isinstance(last, RunSoFar):
                    found = _read(last.wire)
                    if keep is not None:
                        keep(found)
                elif isinstance(last, Stage):
                    stage = last.text
                    listener.stage(last.text, last.share)
        except InvalidMessage:
            child.program.kill()
        code = child.wait(LINGER_S if isinstance(last, Done | Failure) else END_S)
        if isinstance(last, Done) and found is not None:
            return found
        error = child.explain_end(last, stage, code)
        if found is None:
            raise error
        return _cut_off(found, error)


def _read(wire: bytes) -> ApiRun:
    try:
        found: ApiRun = from_plain(ApiRun, read_json(wire), "run", _DOCUMENT)
    except ArchiveError as error:
        raise JoulediffError(
            f"the program's process sent a record that cannot be read: {error.what}",
            fix="it shares its process with the program, which must leave file descriptors above 2 alone",
        ) from error
    return found


def _cut_off(found: ApiRun, error: JoulediffError) -> ApiRun:
    """Return the last record of a program whose process ended without the final one."""
    why = f"the record ends {found.seconds:.0f} s after the begin: {error.what}"
    return replace(
        found, ending="killed", exit_code=1, error=error.what, trustworthy=False, warnings=(why, *found.warnings)
    )
