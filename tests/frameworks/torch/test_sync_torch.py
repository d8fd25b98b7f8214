"""PyTorch under measurement: queued work is waited for, and the program is unchanged."""

import sys

import pytest
import torch

from joulediff.frameworks.sync import open_sync
from joulediff.measuring.step import measure


def test_torch_on_the_cpu_needs_no_sync(monkeypatch):
    for name in ("jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has a device")
    assert open_sync() is None


def test_torch_work_is_measured_and_unchanged():
    torch.manual_seed(0)
    x = torch.randn(64, 64, requires_grad=True)
    outputs = []

    def step():
        outputs.append(torch.tanh(x @ x).sum())
        return outputs[-1]

    found = measure(step, seconds=0.3, meter="estimated", wait_s=0)
    assert found.energy.joules > 0
    assert all(torch.equal(o, outputs[0]) for o in outputs)
    assert outputs[-1].requires_grad
