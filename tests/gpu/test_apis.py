"""The energy per library call of a script on a real GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import joulediff

pytestmark = pytest.mark.gpu

SOURCE = Path(joulediff.__file__).parents[1]
SIZE = 8192
CALLS = 900


def run_apis(folder: Path, source: str, *options: str) -> dict:
    script, found = folder / "script.py", folder / "run.json"
    script.write_text(textwrap.dedent(source))
    command = [
        sys.executable,
        "-m",
        "joulediff",
        "apis",
        str(script),
        "--json",
        str(found),
        "--meter",
        "nvml",
        *options,
    ]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=False)
    return json.loads(found.read_text())


def api(run: dict, name: str) -> dict:
    (found,) = [each for each in run["apis"] if each["api"] == name]
    return found


PRODUCTS = f"""
    import torch
    a = torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.bfloat16)
    float((a @ a).sum())
    torch.cuda.synchronize()
    for _ in range({CALLS}):
        b = torch.mm(a, a)
    """


@pytest.mark.parametrize("options", [(), ("--no-sync",)], ids=["sync", "no-sync"])
def test_the_books_close(tmp_path, options):
    run = run_apis(tmp_path, PRODUCTS, *options)
    account = run["ledger"]["gpu0"]
    parts = [account[name] for name in ("calls", "between", "idle") if account[name] is not None]
    assert sum(part["joules"] for part in parts) == pytest.approx(account["metered"]["joules"], rel=0.02)


def test_calls_cost_what_a_step_of_the_same_work_costs(tmp_path):
    import torch

    # Waiting for each call would leave the GPU idle in between, and then its clock is higher at the power limit.
    source = PRODUCTS.replace(f"range({CALLS})", f"range({3 * CALLS})") + "    total = b.sum().item()\n"
    run = run_apis(tmp_path, source, "--no-sync")
    found = api(run, "torch.mm")
    calls_j = sum(each["self_energy"]["joules"] for each in run["apis"] if each["api"] != "torch.randn")
    assert found["calls"] == 3 * CALLS
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    step = joulediff.measure(lambda: torch.mm(a, a), meter="nvml", seconds=4.0, wait_s=5.0)
    assert calls_j / found["calls"] == pytest.approx(step.energy.joules, rel=0.05)
    assert found["input_bytes"] == 3 * CALLS * 2 * 2 * SIZE * SIZE


def test_work_is_counted_in_the_call_that_queued_it(tmp_path):
    source = PRODUCTS + "    total = b.sum().item()\n"
    with_sync, without = run_apis(tmp_path, source), run_apis(tmp_path, source, "--no-sync")
    waited = api(without, "torch.Tensor.item")["self_seconds"]
    assert api(with_sync, "torch.Tensor.item")["self_seconds"] < 0.1 * waited
    assert api(with_sync, "torch.mm")["self_seconds"] == pytest.approx(waited, rel=0.3)
    assert not api(with_sync, "torch.mm")["too_short"]


def test_a_short_call_alone_is_seen_in_full(tmp_path):
    source = f"""
        import torch
        a = torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.bfloat16)
        for _ in range(3):
            torch.linalg.multi_dot([a] * 60)  # 59 products
        """
    run = run_apis(tmp_path, source, "--isolated", "3")
    found = api(run, "torch.linalg.multi_dot")
    assert found["isolated_calls"] == 3
    # 59 products of about 2 ms at 600 to 700 W, 120 W of them idle.
    assert 30 < found["isolated_energy"]["joules"] < 120
    account = run["ledger"]["gpu0"]
    assert account["measuring"]["joules"] > 0
