"""Settings of PyTorch: each flag that can be set shows, reading sets nothing, and CUDA is not started for it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from joulediff.frameworks.settings import collect_settings  # noqa: E402
from joulediff.frameworks.torch.switches import read as torch_settings  # noqa: E402


def torch_flags() -> dict[str, Any]:
    return {k: v for k, v in collect_settings().items() if k.startswith(("torch.", "device."))}


@contextlib.contextmanager
def setting(holder: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextlib.contextmanager
def calling(change: Callable[[Any], None], value: object, before: object) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


FLAGS = {
    "torch.backends.cudnn.benchmark": (lambda: setting(torch.backends.cudnn, "benchmark", True), True),
    "torch.backends.cudnn.deterministic": (lambda: setting(torch.backends.cudnn, "deterministic", True), True),
    "torch.backends.mkldnn.enabled": (lambda: setting(torch.backends.mkldnn, "enabled", False), False),
    "torch.backends.mha.get_fastpath_enabled": (
        lambda: calling(torch.backends.mha.set_fastpath_enabled, False, True),
        False,
    ),
    "torch.backends.cuda.flash_sdp_enabled": (
        lambda: calling(torch.backends.cuda.enable_flash_sdp, False, True),
        False,
    ),
    "torch.backends.cuda.math_sdp_enabled": (lambda: calling(torch.backends.cuda.enable_math_sdp, False, True), False),
    "torch.backends.cuda.mem_efficient_sdp_enabled": (
        lambda: calling(torch.backends.cuda.enable_mem_efficient_sdp, False, True),
        False,
    ),
    "torch.backends.cuda.cudnn_sdp_enabled": (
        lambda: calling(torch.backends.cuda.enable_cudnn_sdp, False, True),
        False,
    ),
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (
        lambda: setting(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        False,
    ),
    "torch.default_dtype": (lambda: calling(torch.set_default_dtype, torch.float64, torch.float32), "float64"),
    "torch.default_device": (lambda: torch.device("meta"), "meta"),
    "torch.deterministic.enabled": (lambda: calling(torch.use_deterministic_algorithms, True, False), True),
    "torch.deterministic.fill_uninitialized_memory": (
        lambda: setting(torch.utils.deterministic, "fill_uninitialized_memory", False),
        False,
    ),
    "torch.grad_enabled": (torch.no_grad, False),
    "torch.inference_mode": (torch.inference_mode, True),
    "torch.autocast.cpu.enabled": (lambda: torch.autocast("cpu", torch.float16), True),
    "torch.autocast.cpu.dtype": (lambda: torch.autocast("cpu", torch.float16), "float16"),
    "torch.num_threads": (
        lambda: calling(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
        torch.get_num_threads() + 1,
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_is_set_shows(name: str) -> None:
    before = torch_flags()
    change, value = FLAGS[name]
    assert before[name] != value
    with change():
        assert torch_flags()[name] == value
    after = torch_flags()  # some setters load the compiler, which has flags of its own
    assert {each: after[each] for each in before} == before


def test_every_public_flag_with_a_setter_is_found() -> None:
    """A backend's properties are its flags: none may be missing, whatever the release adds."""
    found, checked = torch_flags(), 0
    for path, backend in torch_settings._backends():
        for name, member in vars(type(backend)).items():
            if hasattr(member, "__set__") and not name.startswith("_"):
                value = getattr(backend, name)
                if isinstance(value, bool | int | float | str | None):
                    assert found[f"{path}.{name}"] == value
                    checked += 1
    assert checked > 0


def test_versions_and_threads() -> None:
    found = collect_settings()
    assert found["torch.version.git"] == torch.version.git_version
    assert found["package.torch"] == torch.__version__
    assert found["torch.num_interop_threads"] == torch.get_num_interop_threads()
    assert found["torch.float32_matmul_precision"] == torch.get_float32_matmul_precision()


# Each in a process of its own: the two interfaces to TF32 cannot be unmixed again.
TF32 = """
import json, sys, warnings
import torch
{change}
from joulediff.frameworks.settings import collect_settings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    found = collect_settings()
    again = collect_settings()
assert found == again
assert not seen, [str(w.message) for w in seen]
assert not torch.cuda.is_initialized()
print(json.dumps({{k: v for k, v in found.items() if k.startswith("torch.")}}))
"""


def flags_after(change: str) -> dict[str, Any]:
    import json

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TF32.format(change=change)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_tf32_by_the_old_interface() -> None:
    found = flags_after("torch.backends.cuda.matmul.allow_tf32 = True")
    assert found["torch.backends.cuda.matmul.allow_tf32"] is True
    assert found["torch.float32_matmul_precision"] == "high"


def test_tf32_by_the_new_interface_and_by_both() -> None:
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has one interface")
    new = "torch.backends.cuda.matmul.fp32_precision = 'tf32'"
    found = flags_after(new)
    assert found["torch.backends.cuda.matmul.fp32_precision"] == "tf32"
    assert found["torch.backends.cudnn.benchmark"] is False
    mixed = flags_after(f"{new}; torch.backends.cudnn.allow_tf32 = False; torch.backends.fp32_precision = 'ieee'")
    assert mixed["torch.backends.fp32_precision"] == "ieee"
    assert len(mixed) > 50


def test_nothing_of_torch_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    found = collect_settings()
    assert "torch" not in sys.modules
    assert not any(name.startswith(("torch.", "device.")) for name in found)


def test_a_default_device_without_an_index_makes_no_tensor() -> None:
    with torch.device("cuda"):
        assert torch_flags()["torch.default_device"] == "cuda"
    assert not torch.cuda.is_initialized()


def test_warnings_as_errors_lose_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn() -> bool:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return True

    monkeypatch.setattr(torch.backends.openmp, "is_available", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch_flags()["torch.backends.openmp.is_available"] is True


def test_a_flag_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise RuntimeError("mixed")

    before = torch_flags()
    monkeypatch.setattr(torch, "get_float32_matmul_precision", fail)
    monkeypatch.setattr(torch.backends.openmp, "is_available", fail)
    lost = {"torch.float32_matmul_precision", "torch.backends.openmp.is_available"}
    assert torch_flags() == {name: value for name, value in before.items() if name not in lost}


def test_only_functions_that_tell_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in ("enable_all", "clear_cache", "set_enabled_now", "version"):
        monkeypatch.setattr(torch.backends.openmp, name, lambda name=name: called.append(name), raising=False)
    monkeypatch.setattr(
        torch.backends.openmp, "is_set_by", lambda value=None: called.append("is_set_by"), raising=False
    )
    torch_flags()
    assert called == []


def test_compiler_flags_only_where_the_compiler_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(max_autotune=True, triton=SimpleNamespace(cudagraphs=True))
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    found = torch_flags()
    assert found["torch._inductor.config.max_autotune"] is True
    assert found["torch._inductor.config.triton.cudagraphs"] is True
    monkeypatch.delitem(sys.modules, "torch._inductor.config")
    assert not any(name.startswith("torch._inductor") for name in torch_flags())


class FakeDriver:
    """libcuda as far as the schedule needs it."""

    def __init__(self, flags: int, *, active: int = 1, error: int = 0) -> None:
        self.flags, self.active, self.error = flags, active, error

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return self.error

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:
        flags._obj.value, active._obj.value = self.flags, self.active
        return 0


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (FakeDriver(0), "auto"),
        (FakeDriver(1), "spin"),
        (FakeDriver(2), "yield"),
        (FakeDriver(4 | 8), "blocking_sync"),
        (FakeDriver(3), None),
        (FakeDriver(4, active=0), None),
        (FakeDriver(4, error=101), None),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a real card would be told that it is started")
def test_started_devices(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, expected: str | None) -> None:
    card = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, total_memory=150_754_820_096, multi_processor_count=132
    )
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index == 0, raising=False)
    monkeypatch.setattr("ctypes.CDLL", lambda name: driver)
    monkeypatch.setattr(torch_settings, "_driver_version", lambda: "580.95.05")
    found = {k: v for k, v in torch_flags().items() if k.startswith("device.")}
    assert found.pop("device.cuda:0.schedule", None) == expected
    assert found == {
        "device.cuda:0.name": "NVIDIA H200",
        "device.cuda:0.capability": "9.0",
        "device.cuda:0.memory_gib": 140.4,
        "device.cuda:0.multiprocessors": 132,
        "device.cuda:0.driver": "580.95.05",
    }


def test_a_model_of_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1).half()).eval()
    found = collect_settings({"net": model})
    assert found["model.net.class"] == "torch.nn.modules.container.Sequential"
    assert found["model.net.parameters"] == 13
    assert found["model.net.dtype"] == "float16,float32"
    assert found["model.net.training"] is False


@pytest.mark.gpu
def test_a_real_card() -> None:
    torch.zeros(1, device="cuda")
    before = torch_flags()
    assert before["device.cuda:0.schedule"] in ("auto", "spin", "yield", "blocking_sync")
    assert before["device.cuda:0.name"] == torch.cuda.get_device_name(0)
    assert before["torch.backends.cudnn.version"] == torch.backends.cudnn.version()
    assert before["torch.cuda.allocator"] in ("native", "cudaMallocAsync")
    assert torch_flags() == before
