"""What a program that `joulediff patch` wrote imports: `measured`, which starts the measurement and notices calls.

`measured(f)(a)` evaluates `f` once and calls it with no Python frame in between. If the measurement cannot start, the
program does not run; what goes wrong at its end changes neither its results nor its exit code.

Environment variables: JOULEDIFF_OUTPUT=FILE writes the run (.jd) or a report (.md, .json, .txt), JOULEDIFF_QUIET=1
shows nothing, JOULEDIFF_METER and JOULEDIFF_WAIT are the options --meter and --wait.
"""

from __future__ import annotations

import atexit
import dis
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from joulediff.model.errors import JoulediffError

if TYPE_CHECKING:
    from joulediff.instrument.patch.frame_sites import FrameSites
    from joulediff.instrument.rewriting.sites import Site
    from joulediff.instrument.session import ApiSession, Outcome
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.options import ApisOptions

_F = TypeVar("_F")


class _Measured:
    """The measurement of this process. Other processes of the program run unmeasured."""

    def __init__(self) -> None:
        self._session: ApiSession | None = None
        self._frames: FrameSites | None = None
        self._main: FrameType | None = None
        """The frame of the module that runs the program; None in a notebook."""
        self._sites: dict[tuple[int, int], Site] = {}
        self._kept: list[CodeType] = []
        """The code objects whose `id` is in `_sites`: another one must not get the same."""
        self._names: dict[str, str] = {}
        """The name in reports of each patched file, by its name in code objects."""

    def __call__(self, callee: _F) -> _F:
        """Return the callee, or what notes the begin and the end of its next call if it is of a measured library."""
        frames = self._frames
        if frames is None:
            return callee
        frame = sys._getframe(1)  # noqa: SLF001
        key = (id(frame.f_code), frame.f_lasti)
        site = self._sites.get(key)
        if site is None:
            site = self._add_site(key, frame, frames)
        found: _F = site.callee(callee)
        return found

    def start(self, program: str, *libraries: str) -> None:
        """Start to measure this process. `program` is the file before the patch, seen from the patched one."""
        if _is_child():
            return
        frame = sys._getframe(1)  # noqa: SLF001
        file = frame.f_code.co_filename
        self._names[file] = _name_program(file, program)
        if self._session is not None:
            return
        try:
            self._open(frame, libraries)
        except JoulediffError as error:
            # A traceback of ours would hide the sentence that says what to do.
            sys.exit(f"joulediff: {error}")

    def stop(self) -> None:
        """End the measurement and show its report; a notebook does so in its last cell, a script when it exits."""
        session, frames = self._session, self._frames
        self._session = self._frames = None
        self._sites.clear()
        if session is None or not session.is_own_process:
            return
        atexit.unregister(self.stop)
        try:
            run = session.finish(_outcome(self._main))
            _report(replace(run, sources=_sources(run, frames)))
        except JoulediffError as error:
            sys.stderr.write(f"joulediff: {error}\n")
        finally:
            self._main = None
            session.__exit__()

    def _open(self, frame: FrameType, libraries: tuple[str, ...]) -> None:
        from joulediff.cli.output import StageLines
        from joulediff.instrument.patch.frame_sites import FrameSites
        from joulediff.instrument.session import ApiSession

        file = frame.f_code.co_filename
        wrapper = next((name for name, value in frame.f_globals.items() if value is self), "")
        frames = FrameSites(wrapper, self._name_file)
        frames.read(file)
        session = ApiSession(
            _options(),
            program=self._names[file],
            label=Path(self._names[file]).stem,
            libraries=libraries,
            arguments=sys.argv[1:],
        )
        session.__enter__()
        session.rest(None if _is_quiet() else StageLines())
        self._session = session
        self._main = None if _shell() is not None else frame
        # Registered before what the program registers, so it runs after that.
        atexit.register(self.stop)
        session.start()
        self._frames = frames

    def _add_site(self, key: tuple[int, int], frame: FrameType, frames: FrameSites) -> Site:
        assert self._session is not None
        self._kept.append(frame.f_code)
        site = self._sites[key] = self._session.watcher.site(frames.site_at(frame), None)
        return site

    def _name_file(self, file: str) -> str:
        """Return the name in reports of the file that a code object names."""
        cell = _number_of_cell(file)
        if cell is None:
            return self._names.get(file, file)
        return f"{next(iter(self._names.values()))}#cell-{cell}"

    def __reduce__(self) -> str:
        """Pickle as this module's `measured`: functions of the program that use it may be sent elsewhere."""
        return "measured"


def _is_child() -> bool:
    """Return whether this process was started by the program's own `multiprocessing`, which imports the program."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def _name_program(file: str, program: str) -> str:
    folder = Path() if _shell() is not None else Path(file).parent
    return os.path.normpath((folder / program).absolute())


def _shell() -> Any:
    """Return the shell of the notebook that runs the program, None for a script."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _number_of_cell(file: str) -> int | None:
    """Return which execution of a cell compiled code under this name; None outside of a notebook."""
    shell = _shell()
    if shell is None or Path(file).is_file():
        return None
    found = shell.compile.format_code_name(file)  # ("Cell", "In[3]"); None for code of a magic, which runs now
    digits = "".join(each for each in found[1] if each.isdigit()) if found is not None else ""
    return int(digits) if digits else len(shell.user_ns.get("In", ())) - 1


def _options() -> ApisOptions:
    from joulediff.model.options import ApisOptions

    found = ApisOptions(meter=os.environ.get("JOULEDIFF_METER", ApisOptions.meter))
    wait = os.environ.get("JOULEDIFF_WAIT")
    if wait is None:
        return found
    try:
        return replace(found, wait_s=float(wait))
    except ValueError:
        raise JoulediffError(f"JOULEDIFF_WAIT={wait} is no number of seconds", fix="set it to 0, 10 or so") from None


def _is_quiet() -> bool:
    return os.environ.get("JOULEDIFF_QUIET", "0") not in ("", "0")


def _outcome(main: FrameType | None) -> Outcome:
    """Return how the program ended, by the exception that Python reported last, and by where its module ended."""
    from joulediff.instrument.session import Outcome, outcome_of

    if main is None:
        return Outcome()
    error = getattr(sys, "last_value", None)
    if error is None and not _has_returned(main):
        return Outcome("exit", 0, "its exit code is not known, since the program measures itself")
    return outcome_of(error)


def _has_returned(frame: FrameType) -> bool:
    """Return whether the last instruction of a frame was a return. Python reports `SystemExit` nowhere."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


def _sources(run: ApiRun, frames: FrameSites | None) -> Any:
    """Return the files of the run without the patch: its lines are theirs."""
    from joulediff.model.run import SourceText

    texts = {} if frames is None else frames.original_texts()
    used = {site.file for api in run.apis for site in api.sites} | {gap.file for gap in run.gaps}
    plain = [SourceText(file, 1, text) for file, text in sorted(texts.items()) if file in used]
    return (*plain, *(each for each in run.sources if each.file not in texts))


def _report(run: ApiRun) -> None:
    from joulediff.archive.writer import save
    from joulediff.report.render import form_of, render
    from joulediff.report.show import print_result, show
    from joulediff.report.terminal.text import open_console

    output = os.environ.get("JOULEDIFF_OUTPUT")
    if output and Path(output).suffix == ".jd":
        save(run, output)
    elif output:
        try:
            Path(output).write_text(render(run, form_of(output)), encoding="utf-8")
        except OSError as error:
            raise JoulediffError(
                f"cannot write {output}: {error.strerror}", fix="choose another file for JOULEDIFF_OUTPUT"
            ) from error
    if _is_quiet():
        return
    if _shell() is not None:
        show(run)
        return
    with suppress(OSError):  # a closed terminal
        print_result(run, open_console(stderr=True), path=output)


measured = _Measured()
