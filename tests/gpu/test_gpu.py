"""On a real NVIDIA card: `pytest -m gpu`. Energy against the card's own counter, time against its own events."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch


@pytest.fixture(scope="module")
def meters():
    from joulediff.measuring.meters import open_meters

    with open_meters("nvml") as opened:
        yield opened


def test_samples_and_counter_are_both_there(meters):
    kinds = {d.kind: d for d in meters.meters[0].domains if d.name == "gpu0"}
    assert 0.005 < kinds["power"].period_s < 0.2
    state = meters.meters[0].states()[0]
    assert state.temperature_c > 10
    assert state.power_limit_w > 50


def test_energy_matches_power_times_time(torch, meters):
    from joulediff.measuring.step import measure

    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    found = measure(lambda: torch.nn.functional.gelu(x), meter=meters, wait_s=20)
    gpu = found.domains["gpu0"]
    assert found.energy.joules == pytest.approx(gpu.power_w * found.step_s, rel=0.01)
    assert 0 < found.net_energy.joules < found.energy.joules
    assert found.energy.half_width_share < 0.03
    assert found.sampling_share < 0.01


def test_queued_steps_are_counted_as_the_device_runs_them(torch, meters):
    from joulediff.measuring.step import measure, measure_idle

    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    quiet = measure_idle(meters, wait_s=20)
    for step in (lambda: x @ x, lambda: (x @ x) @ x):
        found = measure(step, seconds=1, meter=meters, idle=quiet)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(400):
            step()
        start.record()
        for _ in range(400):
            step()
        end.record()
        torch.cuda.synchronize()
        assert found.step_s == pytest.approx(start.elapsed_time(end) / 400 * 1e-3, rel=0.08)


def test_twice_the_work_is_twice_the_energy(torch, meters):
    from joulediff.measuring.step import measure, measure_idle

    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    quiet = measure_idle(meters, wait_s=20)

    def once():
        return torch.nn.functional.softmax(x, -1)

    def twice():
        once()
        return once()

    one, two = (measure(step, seconds=1.5, meter=meters, idle=quiet) for step in (once, twice))
    assert two.energy.joules / one.energy.joules == pytest.approx(2, rel=0.03)


def test_jax_work_is_waited_for(meters):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    from joulediff.measuring.step import measure

    product = jax.jit(lambda a: a @ a)  # with the matrix as argument: a constant would be folded while compiling
    x = jax.numpy.ones((4096, 4096), dtype="bfloat16")
    found = measure(lambda: product(x), seconds=1, meter=meters, wait_s=20)
    assert found.step_s > 1e-4  # 137 GFLOP: faster than this no card is
    assert found.domains["gpu0"].power_w > 1.5 * found.domains["gpu0"].idle.power_w


def test_a_card_is_found_by_its_uuid():
    import pynvml

    pynvml.nvmlInit()
    uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    command = [sys.executable, "-m", "joulediff", "doctor", "--meter", "nvml", "--wait", "0", "--json", "-"]
    done = subprocess.run(
        command, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid}, capture_output=True, text=True, check=False
    )
    meter = json.loads(done.stdout)["meters"][0]
    assert meter["available"], meter
    assert {d["name"] for d in meter["domains"]} == {"gpu0"}
    hidden = subprocess.run(
        command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False
    )
    assert hidden.returncode == 1
    assert "hides all" in json.loads(hidden.stdout)["meters"][0]["reason"]
