"""Reports of the progress of long work. The default listener ignores them."""

from __future__ import annotations

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
