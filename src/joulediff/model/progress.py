"""Reports of the progress of long work. The default listener ignores them."""

from __future__ import annotations

import re
import time

from joulediff.model.measurement import Measurement
from joulediff.model.run import PassName


class ProgressListener:
    """Receives reports of progress. Subclass it to show them, or to keep the measurement so far."""

    def pass_begins(self, name: PassName) -> None:
        """A pass of a recording begins; the stages that follow belong to it."""

    def stage(self, text: str, share: float | None = None) -> None:
        """Work has reached `text`; `share` of it is done, where that is known."""

    def failed(self, error: BaseException, call: int) -> None:
        """The user's step raised `error` in its call number `call`. It passes on unchanged."""

    def metered(self) -> None:
        """The programs of a diff are metered: other processes may start without a change of the measured energy."""

    def kept(self, measurement: Measurement) -> None:
        """Work broke off; `measurement` is of the part before that."""


class Labelled(ProgressListener):
    """Adds the name of the program to each stage."""

    def __init__(self, listener: ProgressListener, label: str) -> None:
        self._listener = listener
        self._label = label

    def pass_begins(self, name: PassName) -> None:
        self._listener.pass_begins(name)

    def stage(self, text: str, share: float | None = None) -> None:
        self._listener.stage(f"{self._label}: {text}", share)


_NUMBER = re.compile(r"\d+")


class StageTimes(ProgressListener):
    """Adds up the seconds of each stage, and passes every report on. Stages that differ in numbers are one."""

    def __init__(self, listener: ProgressListener | None = None) -> None:
        self._listener = listener or ProgressListener()
        self._since_s = time.perf_counter()
        self._stage = "starting the programs"
        self.seconds: dict[str, float] = {}

    def pass_begins(self, name: PassName) -> None:
        self._listener.pass_begins(name)

    def stage(self, text: str, share: float | None = None) -> None:
        self.stop()
        self._stage = _NUMBER.sub("#", text)
        self._listener.stage(text, share)

    def failed(self, error: BaseException, call: int) -> None:
        self._listener.failed(error, call)

    def metered(self) -> None:
        self._listener.metered()

    def kept(self, measurement: Measurement) -> None:
        self._listener.kept(measurement)

    def stop(self) -> None:
        """End the stage under way."""
        now_s = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now_s - self._since_s
        self._since_s = now_s
