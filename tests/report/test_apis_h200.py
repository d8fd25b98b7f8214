"""Two recordings of a training script on an H200 (benchmarks/scripts/torch_mlp.py, 8,192 and 4,096 wide).

Recorded with `joulediff apis train.py --epochs 10 --width 8192 --batch 2048 -o h200_wide.jd`, and with `--width 4096`.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import paths
from golden_files import check_golden
from joulediff.archive.reader import load
from joulediff.diagnosis.api_runs.compare import compare_api_runs
from joulediff.model.apis.api_run import ApiRun
from joulediff.report.apis_markdown import api_run_to_markdown
from joulediff.report.terminal.apis import print_api_run

FOLDER = paths.GOLDEN / "apis"


def read(name: str) -> ApiRun:
    found = load(FOLDER / f"h200_{name}.jd")
    assert isinstance(found, ApiRun)
    return found


@pytest.fixture(scope="module")
def wide() -> ApiRun:
    return read("wide")


@pytest.mark.parametrize("width", [80, 120])
def test_the_report(wide: ApiRun, width: int, pytestconfig: pytest.Config) -> None:
    file = io.StringIO()
    print_api_run(wide, Console(file=file, width=width, color_system=None, highlight=False))
    check_golden(f"apis/h200_wide_{width}.txt", file.getvalue(), pytestconfig)


def test_the_annotated_source(wide: ApiRun, pytestconfig: pytest.Config) -> None:
    check_golden("apis/h200_wide.md", api_run_to_markdown(wide), pytestconfig)


@pytest.mark.parametrize("name", ["wide", "narrow"])
def test_the_books_of_a_real_program_close(name: str) -> None:
    run = read(name)
    for account in run.ledger.values():
        assert account.closure == pytest.approx(1.0, abs=0.02)
    parts = [each.self_net_energy for each in run.apis]
    calls = run.ledger["gpu0"].calls
    assert calls is not None
    assert sum(each.joules for each in parts if each is not None) == pytest.approx(calls.joules, rel=1e-3)


def test_a_long_call_is_certain_and_short_ones_are_marked(wide: ApiRun) -> None:
    apis = {each.api: each for each in wide.apis}
    imports = apis["torch.optim.AdamW"]
    assert imports.self_energy is not None and imports.self_energy.half_width_share < 0.02
    assert not imports.too_short
    backward = apis["torch.Tensor.backward"]
    assert backward.calls == 100
    assert backward.too_short
    assert backward.self_energy is not None and backward.self_energy.low < 0.5 * backward.self_energy.joules


def test_two_recordings_are_compared(wide: ApiRun) -> None:
    diff = compare_api_runs(wide, read("narrow"))
    assert diff.a.label == diff.b.label == "train"
