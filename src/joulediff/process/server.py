"""What the child does when it is told: its turns at being measured, and after its recording what the parent asks for.

Each command is answered once. What cannot be done is answered with the reason: only the end of the program, or of
the parent, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from joulediff.archive import from_wire, to_wire
from joulediff.archive.codec import from_plain, to_plain
from joulediff.frameworks.jobs import Job
from joulediff.measuring.conditions import ignore_process
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.process.protocol import Commands, Disconnected, Sender
from joulediff.pysource.line_trace import Target
from joulediff.pysource.programs import describe
from joulediff.session.live_program import LocalProgram

BUILD, START, AGAIN, GO_ON, END = "build", "start", "again", "go on", "end"


def await_build(sender: Sender, commands: Commands) -> None:
    """Tell that everything is imported, and wait until the step may be built."""
    sender.answer({"ready": True})
    command, _ = commands.next()
    if command.get("do") != BUILD:
        raise Disconnected


def await_start(sender: Sender, commands: Commands) -> None:
    """Tell that the program is built, and wait until it may be recorded."""
    sender.answer({"built": True})
    command, _ = commands.next()
    if command.get("do") == END:  # the other program failed
        raise Disconnected
    kin = command.get("kin")
    for pid in kin if isinstance(kin, list) else ():
        ignore_process(int(pid))


def take_turns(measure_for: Callable[[float], None], sender: Sender, commands: Commands) -> None:
    """Tell that the step is measured, and measure it again as often as asked, until it may be watched.

    What watches a program may slow it down for good: profilers of GPUs do. So turns come before.
    """
    while True:
        sender.answer({"metered": True})
        command, _ = commands.next()
        if command.get("do") == GO_ON:
            return
        if command.get("do") != AGAIN:
            raise Disconnected
        measure_for(float(command["seconds"]))  # type: ignore[arg-type]


def serve(bench: LocalProgram, sender: Sender, commands: Commands, listener: ProgressListener) -> None:
    """Answer commands until there are no more."""
    sender.answer({"recorded": True})
    while True:
        command, attached = commands.next()
        if command.get("do") == END:
            return
        try:
            sender.answer({"result": _do(bench, sender, listener, command, attached)})
        except JoulediffError as error:
            sender.answer({"error": error.what})
        except Exception as error:  # noqa: BLE001 - a step that is changed may raise anything, and goes on unchanged
            sender.answer({"error": f"it raised {describe(error)}"})


def _do(
    bench: LocalProgram, sender: Sender, listener: ProgressListener, command: dict[str, Any], attached: bytes
) -> object:
    task = command.get("do")
    if task == "other":
        bench.other = from_wire(attached)
        bench.trial_runner.take_other(bench.other)
        return None
    if task == "lend":
        bench.trial_runner.export_tensors(command["ops"], command["values"], Path(command["path"]))
        return None
    if task == "borrow":
        bench.trial_runner.import_tensors(Path(command["path"]))
        return None
    if task == "measure":
        found = bench.measure(
            seconds=float(command["seconds"]),
            wait_s=float(command["wait_s"]),
            settings=dict(command["settings"]),
            listener=listener,
        )
        return to_plain(found)
    if task == "unwaited":
        limits = {"seconds": float(command["seconds"]), "wait_s": float(command["wait_s"])}
        return to_plain(
            bench.measure_without_sync(str(command["file"]), int(command["line"]), **limits, listener=listener)
        )
    if task == "capture":
        name, run = bench.trial_runner.capture(dict(command["settings"]))
        sender.run(to_wire(run))
        return name
    if task == "walk":
        return to_plain(bench.trace_lines(from_plain(Target, command["target"], "target")))
    if task == "weigh":
        job = from_plain(Job, command["job"], "job")
        at = bench.other.measurement if command.get("as_other") and bench.other is not None else None
        return to_plain(bench.measure_job(job, window_s=float(command["window_s"]), at=at))
    raise JoulediffError(f"nobody here knows how to {str(task)[:40]}")
