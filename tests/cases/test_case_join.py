"""The case with two ranks: both programs compute the same in every step, and no rank outlives the other."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import paths

pytest.importorskip("torch")

FOLDER = paths.ROOT / "src/joulediff/cases/library/pytorch-181115"
# Runs a program by hand: `print` and `input` are how the test and it take turns.
BEGIN = """
import sys, importlib
import psutil, torch
torch.set_num_threads(1)
sys.path.insert(0, {folder!r})
program = importlib.import_module({name!r})
"""
OUTPUTS = """
step = program.build()
first, second = [[x.clone() for x in step()] for _ in range(2)]
assert all(torch.equal(x, y) for x, y in zip(first, second)), "it drifts"
assert program.build()()[0] == first[0], "not a second time"
torch.save(second, {file!r})
print(psutil.Process().children()[0].pid)
"""
STAYS = """
step = program.build()
step()
print(psutil.Process().children()[0].pid, flush=True)
{then}
"""
FAILS = """
import shared
def fail(rank):
    print(psutil.Process().children()[0].pid)
    raise ValueError("no batches")
shared.make_batches = fail
program.build()
"""


def start(name: str, text: str) -> subprocess.Popen[str]:
    code = BEGIN.format(folder=str(FOLDER), name=name) + text
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def is_gone(pid: int, *, within_s: float = 20.0) -> bool:
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_both_programs_compute_the_same_in_every_step(tmp_path: Path) -> None:
    import torch

    found = {}
    for name in ("wasteful", "lean"):
        file = tmp_path / f"{name}.pt"
        out, err = start(name, OUTPUTS.format(file=str(file))).communicate(timeout=120)
        assert file.exists(), err
        assert is_gone(int(out)) and not err
        found[name] = torch.load(file)
    assert len(found["lean"]) > 0
    for a, b in zip(found["wasteful"], found["lean"], strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-6) and a.abs().max() > 0


@pytest.mark.parametrize("then", ["input()", "while True: step()"], ids=["between steps", "within one"])
def test_rank_1_ends_with_a_program_that_is_killed(then: str) -> None:
    program = start("wasteful", STAYS.format(then=then))
    assert program.stdout is not None
    peer = int(program.stdout.readline())
    program.kill()
    _, err = program.communicate(timeout=60)
    assert is_gone(peer) and "Traceback" not in err


def test_rank_1_ends_with_a_build_that_fails() -> None:
    out, err = start("lean", FAILS).communicate(timeout=60)
    assert "no batches" in err and is_gone(int(out))


def test_rank_1_ends_with_a_step_that_fails() -> None:
    text = STAYS.format(then="program.dist.all_reduce = None\nstep()")
    out, err = start("lean", text).communicate(timeout=60)
    assert "not callable" in err and is_gone(int(out))
