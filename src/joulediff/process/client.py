"""The parent's side of a program that stays: recorded when told, and asked for more afterwards.

A program that ends, crashes or does not answer raises a `JoulediffError`; what arrived before is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from joulediff.archive import to_wire
from joulediff.archive.codec import from_plain, to_plain
from joulediff.frameworks.jobs import Job, JobCost
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run, Setting
from joulediff.process.exit_reasons import explain_failure, explain_silence
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import END_S, Arrived, Child
from joulediff.process.protocol import Answer, Done, Failure, Garbled, Message, to_command
from joulediff.process.request import Request
from joulediff.process.server import AGAIN, BUILD, END, GO_ON, START
from joulediff.pysource.line_trace import LineTrace, Target


class RemoteProgram:
    """A program in a process of its own. Used with `with`; the process is started there."""

    def __init__(
        self,
        request: Request,
        *,
        interpreter: Interpreter,
        keep: Callable[[Run], None],
        listener: ProgressListener | None = None,
    ) -> None:
        self._child = Child(interpreter, request)
        self._arrived = Arrived(keep, listener or ProgressListener())
        self._messages: Iterator[Message] = iter(())
        self.run: Run | None = None
        self.stays = False
        """Whether the recorded program can be asked for more; one without operators has nothing to try."""
        self._closed = self._is_metered = self._is_done = False
        self._seconds, self._wait_s = request.options.seconds, request.options.wait_s
        self._is_held = request.hold

    def __enter__(self) -> RemoteProgram:
        self._messages = self._child.__enter__().messages()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program, if it is still there."""
        if self._closed:
            return
        self._closed = True
        self._child.send(to_command({"do": END}))
        if self.run is not None:
            self._child.wait(END_S)
        self._child.__exit__()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    def tell(self, listener: ProgressListener) -> None:
        """Tell another one how it goes from now on."""
        self._arrived.listener = listener

    def begin(self) -> None:
        """Let a program that was held build its step."""
        if self._is_held:
            self._is_held = False
            self._await()
            self._child.send(to_command({"do": BUILD}))

    def wait_built(self) -> None:
        """Return once the program is built."""
        self.begin()
        self._await()

    def meter(self, kin: Sequence[int] = ()) -> None:
        """Measure the step. `kin` are processes that only wait meanwhile."""
        self._is_metered = True
        self._tell({"do": START, "kin": list(kin)})

    def meter_again(self, seconds: float) -> None:
        """Measure the step once more, before anything watches it."""
        self._tell({"do": AGAIN, "seconds": seconds})

    def record(self, kin: Sequence[int] = ()) -> Run:
        """Return the record of the program, measured first if it was not; it stays for more."""
        if not self._is_metered:
            self.meter(kin)
        if not self._is_done:
            self.stays = "recorded" in self._tell({"do": GO_ON})
        assert self._arrived.run is not None
        self.run = self._arrived.run
        return self.run

    def _tell(self, command: dict[str, object]) -> dict[str, Any]:
        """Send a command of the recording, and keep what arrived where it breaks off."""
        try:
            self._child.send(to_command(command))
            return self._await()
        except JoulediffError as error:
            self._arrived.break_off(error.what)
            raise

    def take_other(self, run: Run) -> None:
        """Give the program the other one's recording."""
        self._ask({"do": "other"}, to_wire(run))

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        """Let the program write tensors that operators of its step read to a file."""
        self._ask({"do": "lend", "ops": list(ops), "values": list(values), "path": str(path)})

    def import_tensors(self, path: Path) -> None:
        """Let the program take tensors that the other one wrote."""
        self._ask({"do": "borrow", "path": str(path)})

    def measure(self, *, seconds: float, wait_s: float, settings: Mapping[str, Setting] | None = None) -> Measurement:
        """Return the energy of the step, measured again."""
        command = {"do": "measure", "seconds": seconds, "wait_s": wait_s, "settings": dict(settings or {})}
        found: Measurement = from_plain(Measurement, self._ask(command), "measurement")
        return found

    def measure_without_sync(self, file: str, line: int) -> Measurement:
        """Return the energy of the step if a line of it does not wait for what it reads from a device."""
        limits: dict[str, object] = {"seconds": self._seconds, "wait_s": self._wait_s}
        found: Measurement = from_plain(
            Measurement, self._ask({"do": "unwaited", "file": file, "line": line, **limits}), "measurement"
        )
        return found

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        """Return the recording of the step under other settings, and its name there."""
        kept, self._arrived.keep = self._arrived.keep, _do_nothing
        before = self._arrived.run
        try:
            name = self._ask({"do": "capture", "settings": dict(settings)})
            found = self._arrived.run
        finally:
            self._arrived.keep, self._arrived.run = kept, before
        assert found is not None
        return str(name), found

    def trace_lines(self, target: Target) -> LineTrace | None:
        """Return the lines of a function that the step takes."""
        found = self._ask({"do": "walk", "target": to_plain(target)})
        walk: LineTrace | None = None if found is None else from_plain(LineTrace, found, "walk")
        return walk

    def measure_job(self, job: Job, *, window_s: float, as_other: bool = False) -> JobCost:
        """Return what a job costs."""
        command = {"do": "weigh", "job": to_plain(job), "window_s": window_s, "as_other": as_other}
        found: JobCost = from_plain(JobCost, self._ask(command), "weighed")
        return found

    def _ask(self, command: dict[str, object], attached: bytes = b"") -> Any:
        self._child.send(to_command(command, attached))
        answer = self._await()
        if "error" in answer:
            raise JoulediffError(str(answer["error"])[:2000])
        return answer.get("result")

    def _await(self) -> dict[str, Any]:
        """Return the next answer; raises for a child that has none to give any more."""
        last: Message | None = None
        try:
            for last in self._messages:
                if isinstance(last, Answer) and isinstance(last.content, dict):
                    return last.content
                self._arrived.take(last)
        except Garbled:
            self._child.kill()
        if isinstance(last, Done) and self._arrived.run is not None:
            self._is_done = True
            return {}
        code = self._child.wait(END_S)
        if isinstance(last, Failure):
            raise explain_failure(last)
        raise explain_silence(self._arrived.stage, code, self._child.asked)


def _do_nothing(_: Run) -> None:
    pass
