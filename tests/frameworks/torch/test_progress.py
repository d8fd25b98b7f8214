"""The share of the traced and the captured pass that is done."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from joulediff.frameworks.torch.capture.capture import REPORTED_OPS, capture_step  # noqa: E402
from joulediff.frameworks.torch.trace.trace import STEPS, WARM_UPS, trace_step  # noqa: E402
from joulediff.model.progress import ProgressListener  # noqa: E402
from joulediff.session.record import record  # noqa: E402


class Heard(ProgressListener):
    def __init__(self) -> None:
        self.stages: list[tuple[str, float | None]] = []

    def stage(self, text: str, share: float | None = None) -> None:
        self.stages.append((text, share))


def shares(stages: list[tuple[str, float | None]], begin: str) -> list[float]:
    return [share for text, share in stages if text.startswith(begin) and share is not None]


def test_the_traced_pass_reports_each_step() -> None:
    heard, x = Heard(), torch.ones(2)
    trace_step(lambda: x + 1, listener=heard)
    found = shares(heard.stages, "step ")
    assert found[0] == 0.0
    assert found == sorted(found)
    assert 2 <= len(found) <= WARM_UPS + STEPS
    assert heard.stages[-1] == ("reading the trace", None)


def test_the_captured_pass_reports_operators_now_and_then() -> None:
    told: list[int] = []

    def step() -> None:
        x = torch.ones(2)
        for _ in range(2 * REPORTED_OPS):
            x = x + 1

    capture_step(step, report=told.append)
    assert told == [0, REPORTED_OPS, 2 * REPORTED_OPS]


def test_a_recording_reports_the_operators_of_the_trace_as_the_whole() -> None:
    heard, x = Heard(), torch.ones(2)

    def step() -> object:
        y = x
        for _ in range(2 * REPORTED_OPS):
            y = y + 1
        return y

    record(step, seconds=0.1, wait_s=0.0, meter="estimated", replay=False, listener=heard)
    found = shares(heard.stages, "captured 4/5: ")
    assert found == sorted(found)
    assert found[0] == 0.0
    assert 0.4 < found[1] < 0.6
    assert shares(heard.stages, "traced 3/5: step ")
