"""The kernel of signatures, run in NumPy: what it computes and how it finds elements. `tests/gpu` runs it on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fake_triton import load_kernel
from interpreter import sign
from joulediff.frameworks.torch.capture import signature as module
from joulediff.model.signature import SIGN_PERIOD, SKETCH
from signature_checks import assert_same

KERNEL = load_kernel()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Signs tensors of the CPU by the kernel."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(KERNEL, "ELEMENTS_PER_PROGRAM", 1000)
    monkeypatch.setattr(KERNEL, "PROGRAMS", 3)
    monkeypatch.setattr(KERNEL, "BUFFER_ROWS", 64)

    def by_kernel(tensor: torch.Tensor) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_open_signer", lambda _: KERNEL.KernelSigner())
            return sign(tensor)

    return by_kernel


def views() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(6, 7, 8, 9) * 3
    long = torch.randn(2 * SIGN_PERIOD + 777)
    return {
        "contiguous": x,
        "transposed": x[0, 0].t(),
        "three dimensions": x[0].permute(2, 0, 1),
        "four dimensions": x.permute(2, 0, 3, 1),
        "five dimensions": torch.randn(3, 4, 5, 6, 7).permute(4, 2, 0, 3, 1),
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "heads": torch.randn(2, 5, 3, 4, 6)[:, :, 1].transpose(1, 2),
        "sliced": x[:, 1:4, ::2, 1:5],
        "expanded": x[:, :, :, :1].expand(6, 7, 8, 9).transpose(0, 1),
        "over periods": long,
        "over periods, transposed": long[:66000].view(200, 330).t(),
        "one element": torch.tensor(3.0),
        "zeros": torch.zeros(40),
        "not finite": torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0, 2.5]),
        "complex": torch.randn(3, 4, dtype=torch.complex64).t(),
        "empty": torch.empty(0, 3),
    }


@pytest.mark.parametrize("view", views().values(), ids=views())
def test_the_kernel_computes_the_signature_of_the_cpu(kernel: Any, view: torch.Tensor) -> None:
    assert_same(kernel(view), sign(view))


KINDS = ["double", "half", "bfloat16", "int", "long", "short", "char", "bool"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type(kernel: Any, kind: str) -> None:
    torch.manual_seed(0)
    made = getattr(torch.randn(30, 40) * 3, kind)().t()
    assert_same(kernel(made), sign(made))
    low = (torch.randn(30, 40) * 3).to(torch.float8_e4m3fn)
    assert_same(kernel(low), sign(low))


def test_a_sketch_alone(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(30, 40)
    signer = KERNEL.KernelSigner()
    views = [x, x.t(), x[:0]]
    sums = [signer.sketch(view, module.extent_of(view.shape, view.stride())) for view in views]
    signer.finish()
    expected = [module._PlainSigner().sketch(v, module.extent_of(v.shape, v.stride()))() for v in views]
    for found, right in zip(sums, expected, strict=True):
        assert found() == pytest.approx(right, rel=1e-12, abs=1e-12)


def test_the_columns_of_the_kernel_fit_its_rows() -> None:
    assert module.WIDTH + SKETCH <= KERNEL.PITCH
    assert KERNEL.BLOCK % SKETCH == 0
    assert SIGN_PERIOD % KERNEL.BLOCK == 0
