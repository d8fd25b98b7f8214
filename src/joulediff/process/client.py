"""The parent's side of a program that is recorded on command, and answers commands afterwards.

A program that ends, crashes or does not answer raises a `JoulediffError`; its recording up to then is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from joulediff.archive.codec import from_plain, to_plain
from joulediff.archive.snapshot import Snapshot, to_wire
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.measurement import Measurement, Quiet
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.process.guarded import END_S
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import ChildProcess, ReceivedRecording
from joulediff.process.protocol import Answer, Done, InvalidMessage, Message, to_command
from joulediff.process.request import Request, to_text
from joulediff.process.verbs import AGAIN, APART, BUILD, END, GO_ON, START, Payload, asks_for_every_verb


@asks_for_every_verb
class RemoteProgram(LiveProgram):
    """A program in a separate process, which `with` starts and ends. `verbs` makes the methods of `LiveProgram`."""

    def __init__(
        self,
        request: Request,
        *,
        interpreter: Interpreter,
        keep: Callable[[Snapshot], None],
        listener: ProgressListener | None = None,
    ) -> None:
        self._child = ChildProcess(interpreter, request, to_text(request))
        self._received = ReceivedRecording(keep, listener or ProgressListener())
        self._messages: Iterator[Message] = iter(())
        self.run: Run | None = None
        self.is_live = False
        """Whether the recorded program answers commands; one without operators has nothing to try."""
        self._closed = self._is_metered = self._is_done = self._is_asked_to_end = False
        self._is_held = request.hold

    def __enter__(self) -> RemoteProgram:
        self._messages = self._child.__enter__().messages()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask_to_end(self) -> None:
        """Ask the program to end, and do not wait for it."""
        if not self._closed and not self._is_asked_to_end:
            self._is_asked_to_end = True
            self._child.send(to_command({"do": END}))

    def close(self) -> None:
        """End the program if it still runs."""
        if self._closed:
            return
        self.ask_to_end()
        self._closed = True
        if self.run is not None:
            self._child.wait(END_S)
        self._child.__exit__()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._child.program.pid

    def set_listener(self, listener: ProgressListener) -> None:
        """Report progress to another listener from now on."""
        self._received.listener = listener

    def begin(self) -> None:
        """Let a program that waits before its build go on."""
        if self._is_held:
            self._is_held = False
            self._next_answer()
            self._child.send(to_command({"do": BUILD}))

    def wait_built(self) -> None:
        """Return once the program is built."""
        self.begin()
        self._next_answer()

    def meter(self, idle_pids: Sequence[int] = (), *, idle: Quiet | None = None) -> None:
        """Measure the step. `idle_pids` are processes that wait meanwhile, so they do not count as load.

        `idle` is the idle power of the machine, known from a moment ago.
        """
        self._is_metered = True
        self._command({"do": START, "idle_pids": list(idle_pids), "idle": None if idle is None else to_plain(idle)})

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of the step so far."""
        return None if self._received.snapshot is None else self._received.snapshot.run.measurement

    def meter_again(self, seconds: float) -> None:
        """Measure the step once more, before it is profiled."""
        self._command({"do": AGAIN, "seconds": seconds})

    def measure_apart(self) -> Energy:
        """Return the energy of a step in a short turn, which is no part of the recording, before it is profiled."""
        answer = self._command({"do": APART}).content
        if "energy" not in answer:
            raise MeterFailed(str(answer.get("error", "the program ended before it was measured"))[:2000])
        found: Energy = from_plain(Energy, answer["energy"], "energy")
        return found

    def record(self, idle_pids: Sequence[int] = (), *, known: Run | None = None) -> Run:
        """Return the record of the program, which is measured first if it was not.

        Operators that `known`, a recording of this machine, has measured are not replayed again.
        """
        if not self._is_metered:
            self.meter(idle_pids)
        if not self._is_done:
            attached = [] if known is None else [to_wire(known)]
            self.is_live = "recorded" in self._command({"do": GO_ON}, attached).content
        assert self._received.snapshot is not None
        self.run = self._received.snapshot.run
        return self.run

    def _command(self, command: dict[str, object], attached: Sequence[bytes] = ()) -> Payload:
        """Send a command of the recording; if it fails, keep the recording with the pass that failed."""
        try:
            self._child.send(to_command(command, attached))
            return self._next_answer()
        except JoulediffError as error:
            self._received.keep_failed(error.what)
            raise

    def ask(self, command: Payload) -> Payload:
        """Return the result of a command to the recorded program; raises JoulediffError if it answers with an error."""
        self._child.send(to_command(command.content, command.runs))
        answer = self._next_answer()
        if "error" in answer.content:
            raise JoulediffError(str(answer.content["error"])[:2000])
        return Payload(answer.content.get("result"), answer.runs)

    def _next_answer(self) -> Payload:
        """Return the next answer; raises JoulediffError if the child ends before it."""
        last: Message | None = None
        try:
            for last in self._messages:
                if isinstance(last, Answer) and isinstance(last.content, dict):
                    return Payload(last.content, last.attached)
                self._received.receive(last)
        except InvalidMessage:
            self._child.program.kill()
        if isinstance(last, Done) and self._received.snapshot is not None:
            self._is_done = True
            return Payload({})
        code = self._child.wait(END_S)
        raise self._child.explain_end(last, self._received.stage, code)
