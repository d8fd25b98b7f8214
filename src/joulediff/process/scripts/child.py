"""The child's side: run a script as `__main__` with its calls rewritten, and send the record to the parent.

The script runs as under `python SCRIPT`: its exceptions, exit code, threads, exit handlers and standard streams are its
own. The record is sent by the exit handler that was registered first, which Python runs last.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING

from joulediff.archive.codec import to_plain
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.process.protocol import Commands, Disconnected, Failure, Sender
from joulediff.process.request import PACKAGES
from joulediff.process.scripts.request import ScriptRequest, from_text
from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.programs import describe

if TYPE_CHECKING:
    from joulediff.instrument.session import ApiSession, Outcome
    from joulediff.model.apis.api_run import ApiRun


def main() -> None:
    """Run the script that `sys.argv` names, and exit as it does."""
    commands_fd, fd, text = sys.argv[-3:]
    request, sender = from_text(text), Sender(int(fd))
    Commands(int(commands_fd))  # its pipe must not be inherited by processes that the script starts
    try:
        code = _run(request, sender)
    except Disconnected:
        os._exit(1)
    except JoulediffError as error:
        sender.failed(Failure("error", error.what, error.fix, trace=traceback.format_exc()))
        sys.exit(error.exit_code)
    sys.exit(code)


def _run(request: ScriptRequest, sender: Sender) -> int | str | None:
    sender.stage("opening the meters")
    _load_joulediff()
    from joulediff.instrument.notebook.run import NotebookProgram
    from joulediff.instrument.rewriting.include import included
    from joulediff.instrument.rewriting.libraries import default_libraries, imported_libraries
    from joulediff.instrument.rewriting.rewrite import compile_rewritten
    from joulediff.instrument.session import ApiSession, Outcome, outcome_of
    from joulediff.pysource.run_script import find_module, run_as_main
    from joulediff.pysource.scripts import NOTEBOOK

    spec = find_module(request.script) if request.is_module else None
    path = Path(request.script if spec is None else spec.origin or "")
    folder = path.resolve().parent if spec is None else Path.cwd()
    notebook = NotebookProgram(request.script, note=sender.stage) if path.suffix == NOTEBOOK else None
    imported = imported_libraries(path.read_bytes() if notebook is None else notebook.source)
    session = ApiSession(
        request.options,
        program=str(path),
        label=request.label,
        # Modules of the program may use any known library.
        libraries=request.libraries or (default_libraries() if request.include else imported),
        expected=request.libraries or imported,
        arguments=request.arguments,
        keep=lambda run: _send(sender, run),
    )
    session.__enter__()

    def compile_script(content: bytes, file: str) -> CodeType:
        return compile_rewritten(content, file, session.watcher)

    def compile_cell(tree: ast.Module, source: str, name: str, flags: int) -> CodeType:
        return compile_rewritten(tree, name, session.watcher, flags=flags, text=source)

    if request.options.wait_s > 0:
        session.rest(_Stages(sender))
    finish = _Finish(session, sender, Outcome())
    atexit.register(finish)
    sender.stage("running the program")
    with included(session.watcher, request.include, folder):
        session.start()
        try:
            if notebook is None:
                run_as_main(path, request.arguments, compile=compile_script, spec=spec)
            else:
                notebook.run(compile_cell, request.arguments)
        except SystemExit as error:
            finish.outcome = outcome_of(error)
            return error.code
        except BaseException as error:  # noqa: BLE001 - its end is the program's, as Python would report it
            finish.outcome = outcome_of(error)
            error.__traceback__ = _without_ours(error.__traceback__)
            sys.excepthook(type(error), error, error.__traceback__)
            return finish.outcome.exit_code
    return 0


class _Stages(ProgressListener):
    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def stage(self, text: str, share: float | None = None) -> None:
        self._sender.stage(text, share)


class _Finish:
    """Ends the measurement at the exit of the process that was measured; does nothing in forked copies."""

    def __init__(self, session: ApiSession, sender: Sender, outcome: Outcome) -> None:
        self.outcome = outcome
        self._session, self._sender = session, sender

    def __call__(self) -> None:
        if not self._session.is_own_process:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._sender.stage("adding up")
            _send(self._sender, self._session.finish(self.outcome))
            self._sender.done()
        except Disconnected:
            return
        except JoulediffError as error:
            self._sender.failed(Failure("error", error.what, error.fix, trace=traceback.format_exc()))
        except BaseException as error:  # noqa: BLE001 - the parent explains any end
            self._sender.failed(Failure("fault", describe(error), trace=traceback.format_exc()))
        finally:
            self._session.__exit__()


def _send(sender: Sender, run: ApiRun) -> None:
    sender.run(json.dumps(to_plain(run)).encode())


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's own first frame on."""
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _load_joulediff() -> None:
    """Import the modules that measuring needs, before the program can change `sys.path`."""
    try:
        for name in ("scipy.special", "joulediff.instrument.session", "joulediff.instrument.build"):
            importlib.import_module(name)
    except ImportError as error:
        raise JoulediffError(
            f"joulediff cannot run under {sys.executable}: {error}",
            fix=f"{sys.executable} -m pip install --upgrade {' '.join(PACKAGES)}",
        ) from error
