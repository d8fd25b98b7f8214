"""Settings that a step changes for a part of itself are tracked by operator, stored, and checked when read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from joulediff.archive.reader import load
from joulediff.archive.snapshot import Snapshot, from_wire, to_wire
from joulediff.archive.tables import from_tables
from joulediff.archive.writer import save
from joulediff.frameworks.framework import settings_at
from joulediff.model.errors import ArchiveError
from joulediff.model.run import Run, Setting, SettingSpan
from run_builders import RunBuilder

FLASH = "torch.backends.cuda.flash_sdp_enabled"
MATH = "torch.backends.cuda.math_sdp_enabled"
BENCHMARK = "torch.backends.cudnn.benchmark"


def run_of(ops: int, *spans: SettingSpan, **changes: Any) -> Run:
    builder = RunBuilder("cpu")
    for _ in range(ops):
        builder.op("aten::add")
    return builder.build(spans=spans, **changes)


def test_settings_at_an_operator() -> None:
    settings: dict[str, Setting] = {FLASH: True, MATH: True, "env.X": "1"}
    run = run_of(4, SettingSpan(1, 2, {FLASH: False}), SettingSpan(3, 3, {MATH: None}), settings=settings)
    assert settings_at(run, 0) == settings
    assert settings_at(run, 1) == settings_at(run, 2) == {**settings, FLASH: False}
    assert settings_at(run, 3) == {**settings, MATH: None}
    assert run.settings == settings


def test_modes_at_an_operator_are_its_own() -> None:
    builder = RunBuilder("cpu")
    builder.op("aten::add", grad=True)
    builder.op("aten::add", inference=True)
    settings = {"torch.grad_enabled": True, "torch.inference_mode": False}
    run = builder.build(settings=settings)
    assert settings_at(run, 0) == settings
    assert settings_at(run, 1) == {"torch.grad_enabled": False, "torch.inference_mode": True}
    assert settings_at(builder.build(), 0) == {}


def test_spans_and_places_are_stored(tmp_path: Path) -> None:
    places = {FLASH: "hf.py:3:build"}
    run = run_of(3, SettingSpan(0, 0, {FLASH: False}), SettingSpan(1, 2, {FLASH: None, MATH: 1}), set_places=places)
    save(run, tmp_path / "run.jd")
    assert load(tmp_path / "run.jd") == run
    assert from_wire(to_wire(run)) == run


def test_a_file_without_them_is_read() -> None:
    tables = Snapshot.of(run_of(2)).tables
    del tables.manifest["spans"], tables.manifest["set_places"]
    assert from_tables(tables) == run_of(2)


BAD: list[list[tuple[int, int]]] = [
    [(0, 3)],
    [(-1, 0)],
    [(2, 1)],
    [(3, 3)],
    [(0, 10**15)],
    [(0, 1), (1, 2)],
    [(2, 2), (0, 0)],
]


@pytest.mark.parametrize("bounds", BAD)
def test_a_span_that_is_not_among_the_operators_is_refused(bounds: list[tuple[int, int]], tmp_path: Path) -> None:
    spans = tuple(SettingSpan(first, last, {}) for first, last in bounds)
    with pytest.raises(ArchiveError, match=r"spans\[\d\] in its manifest"):
        save(run_of(3, *spans), tmp_path / "run.jd")
    tables = Snapshot.of(run_of(3)).tables
    tables.manifest["spans"] = [{"first": first, "last": last, "settings": {}} for first, last in bounds]
    with pytest.raises(ArchiveError, match=r"spans\[\d\] in its manifest"):
        from_tables(tables)


@pytest.mark.parametrize(
    "spans", [None, {}, [1], [{"first": 0, "last": 0}], [{"first": 0.5, "last": 1, "settings": {}}]]
)
def test_a_span_that_is_none_is_refused(spans: Any) -> None:
    tables = Snapshot.of(run_of(3)).tables
    tables.manifest["spans"] = spans
    with pytest.raises(ArchiveError, match="spans"):
        from_tables(tables)


torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from joulediff.frameworks.torch.capture.capture import capture_step  # noqa: E402
from joulediff.frameworks.torch.recorder import TorchRecorder  # noqa: E402
from joulediff.frameworks.torch.switches.change import changed  # noqa: E402
from joulediff.frameworks.torch.switches.read import put_torch  # noqa: E402
from joulediff.frameworks.torch.switches.spans import MAX_SPANS, to_spans  # noqa: E402


def spans_of(step: Callable[[], object]) -> list[tuple[list[str], dict[str, Setting]]]:
    """Return the names of the operators of each span, and its settings."""
    settings: dict[str, Setting] = {}
    put_torch(settings)
    found = capture_step(step)
    spans, notes = to_spans(found.flags, settings)
    assert notes == ()
    return [([op.name for op in found.ops[s.first : s.last + 1]], dict(s.settings)) for s in spans]


def test_a_step_that_changes_nothing_has_no_spans() -> None:
    x = torch.ones(3)
    assert spans_of(lambda: (x + x).relu()) == []
    assert spans_of(lambda: None) == []


def test_a_flag_set_inside_the_step_is_seen_where_it_holds() -> None:
    x = torch.ones(3)

    def step() -> object:
        y = x + x
        with sdpa_kernel(SDPBackend.MATH):
            y = y.relu().exp()
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            y = y.sin()
        return y.cos()

    math_alone = {f"torch.backends.cuda.{kind}_sdp_enabled": False for kind in ("flash", "mem_efficient", "cudnn")}
    assert spans_of(step) == [(["aten::relu", "aten::exp"], math_alone), (["aten::sin"], {BENCHMARK: True})]


def test_a_flag_that_goes_on_and_off_has_a_span_each_time() -> None:
    x = torch.ones(3)

    def step() -> None:
        for _ in range(5):
            with sdpa_kernel(SDPBackend.MATH):
                x.relu()
            x.exp()

    assert [names for names, _ in spans_of(step)] == [["aten::relu"]] * 5


def test_a_precision_set_inside_the_step_shows_under_all_its_names() -> None:
    x = torch.ones(3, 3)

    def step() -> object:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return x @ x
        finally:
            torch.set_float32_matmul_precision(before)

    with changed({"torch.float32_matmul_precision": "highest"}):
        ((names, settings),) = spans_of(step)
    assert names == ["aten::mm"]
    assert settings["torch.float32_matmul_precision"] == "high"
    assert settings["torch.backends.cuda.matmul.allow_tf32"] is True


def test_threads_and_determinism() -> None:
    x = torch.ones(3)
    threads = torch.get_num_threads()

    def step() -> None:
        torch.set_num_threads(threads + 1)
        torch._C._set_deterministic_algorithms(True)
        x.relu()
        torch._C._set_deterministic_algorithms(False)
        torch.set_num_threads(threads)
        x.exp()

    assert spans_of(step) == [(["aten::relu"], {"torch.deterministic.enabled": True, "torch.num_threads": threads + 1})]


def test_backward_belongs_to_the_span_it_runs_in() -> None:
    w = torch.ones(3, requires_grad=True)

    def step() -> None:
        loss = w.exp().sum()
        with sdpa_kernel(SDPBackend.MATH):
            loss.backward()
        w.grad = None

    ((names, _),) = spans_of(step)
    assert "aten::mul" in names
    assert "aten::exp" not in names


def test_a_step_that_changes_settings_too_often_says_so() -> None:
    readings = [(op, op, {FLASH: bool(op % 2)}) for op in range(3 * MAX_SPANS)]
    spans, notes = to_spans(readings, {FLASH: True})
    assert len(spans) == MAX_SPANS
    assert [note.split(":")[0] for note in notes] == [f"the step changes settings {3 * MAX_SPANS // 2} times"]


PROGRAM = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

def build():
    torch.backends.cudnn.benchmark = False
    x = torch.ones(3)
    def step():
        with sdpa_kernel(SDPBackend.MATH):
            return x.relu()
    return step
"""


@pytest.mark.parametrize("source", [True, False])
def test_a_recorded_run_says_where_settings_are_set(tmp_path: Path, source: bool) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile(PROGRAM, str(file), "exec"), scope)
    step = scope["build"]()
    recorder = TorchRecorder(step, names=step, root=tmp_path, source=source, cpp=False)
    run = replace(run_of(0), settings=recorder.settings())
    run = recorder.capture(run, lambda: None)
    assert [(span.first, span.last) for span in run.spans] == [(0, 0)]
    assert settings_at(run, 0)[FLASH] is False
    if source:
        assert run.set_places[BENCHMARK] == "program.py:6:build"
        assert run.set_places[FLASH] == "program.py:9:step"
        assert run.set_places.keys() <= run.settings.keys()
    else:
        assert run.set_places == {}
