"""How long work tells the one who waits for it. The default says nothing."""

from __future__ import annotations

from joulediff.model.measurement import Measurement


class ProgressListener:
    """Told what is going on. Subclass it to show progress or to keep what was measured so far."""

    def stage(self, text: str, share: float | None = None) -> None:
        """Work has reached `text`; `share` of it is done, where that is known."""

    def failed(self, error: BaseException, call: int) -> None:
        """The user's step raised `error` in its call number `call`. It passes on unchanged."""

    def metered(self) -> None:
        """The programs of a diff are metered: other processes may start without a change of the measured energy."""

    def kept(self, measurement: Measurement) -> None:
        """This much is measured, whatever happens next."""
