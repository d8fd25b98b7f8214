"""The child's side of commands: measure the step when asked, and answer commands to the recorded program.

Each command is answered once, with a reason if it cannot be done. Only the end of the program, or of the parent, ends
the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulediff.archive.codec import from_plain, to_plain
from joulediff.archive.snapshot import from_wire
from joulediff.frameworks.jobs import LiveProgram
from joulediff.measuring.conditions import ignore_process
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.measurement import Quiet
from joulediff.model.run import Run
from joulediff.process.protocol import Commands, Disconnected, Sender
from joulediff.process.verbs import AGAIN, APART, BUILD, END, GO_ON, VERBS, Payload
from joulediff.pysource.programs import describe

if TYPE_CHECKING:
    from joulediff.session.record import MeasureTurn


def wait_to_build(sender: Sender, commands: Commands) -> None:
    """Report that everything is imported, and wait for the command to build the step."""
    sender.answer({"ready": True})
    command, _ = commands.next()
    if command.get("do") != BUILD:
        raise Disconnected


def wait_to_start(sender: Sender, commands: Commands) -> Quiet | None:
    """Report that the program is built, and wait for the command to measure it.

    Return the idle power of the machine, if that command brings it.
    """
    sender.answer({"built": True})
    command, _ = commands.next()
    if command.get("do") == END:  # the other program failed
        raise Disconnected
    idle_pids = command.get("idle_pids")
    for pid in idle_pids if isinstance(idle_pids, list) else ():
        ignore_process(int(pid))
    idle = command.get("idle")
    found: Quiet | None = None if idle is None else from_plain(Quiet, idle, "idle")
    return found


def measure_in_turns(measure_turn: MeasureTurn, sender: Sender, commands: Commands) -> Run | None:
    """Report that the step is measured, and measure it again on each command, until the command to record the rest.

    Return the recording of the other program, if that command brings one.
    A GPU profiler can leave a program slower after it is detached, so all turns come before the first profiled pass.
    """
    answer: dict[str, object] = {"metered": True}
    while True:
        sender.answer(answer)
        command, attached = commands.next()
        if command.get("do") == GO_ON:
            return from_wire(attached[0]) if attached else None
        if command.get("do") == APART:
            answer = _measure_apart(measure_turn)
        elif command.get("do") == AGAIN:
            measure_turn(float(command["seconds"]))  # type: ignore[arg-type]
            answer = {"metered": True}
        else:
            raise Disconnected


def _measure_apart(measure_turn: MeasureTurn) -> dict[str, object]:
    """Return the answer with the energy of a turn; a meter that fails must not end the recording."""
    try:
        return {"metered": True, "energy": to_plain(measure_turn().energy)}
    except MeterFailed as error:
        return {"metered": True, "error": error.what}


def answer_commands(program: LiveProgram, sender: Sender, commands: Commands) -> None:
    """Answer commands to a recorded program until its end is asked for."""
    sender.answer({"recorded": True})
    while True:
        command, attached = commands.next()
        if command.get("do") == END:
            return
        try:
            found = _do(program, Payload(command, attached))
            sender.answer({"result": found.content}, found.runs)
        except JoulediffError as error:
            sender.answer({"error": error.what})
        except Exception as error:  # noqa: BLE001 - a changed step may raise anything; the program continues unchanged
            sender.answer({"error": f"it raised {describe(error)}"})


def _do(program: LiveProgram, command: Payload) -> Payload:
    name = command.content.get("do")
    if name not in VERBS:
        raise JoulediffError(f"there is no command {str(name)[:40]}")
    return VERBS[name].do(program, command)
