"""Which operators a setting of PyTorch can act on, by the table of switches alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulediff.frameworks.framework import can_act
from joulediff.frameworks.torch.switches.table import SCOPES, SWITCHES
from joulediff.model.run import Op
from run_builders import RunBuilder


def op(name: str, device: str = "cuda:0", *, compiled: bool = False) -> Op:
    made = RunBuilder(device)
    made.op(f"aten::{name}", inputs=[], outputs=[])
    return replace(made.build().ops[0], device=device, compiled=compiled)


@pytest.mark.parametrize(
    ("setting", "name", "device", "acts"),
    [
        ("torch.backends.cuda.matmul.allow_tf32", "mm", "cuda:0", True),
        ("torch.backends.cuda.matmul.allow_tf32", "mm", "cpu", False),
        ("torch.float32_matmul_precision", "mm", "cpu", True),
        ("torch.backends.cudnn.benchmark", "convolution", "cuda:0", True),
        ("torch.backends.cudnn.benchmark", "convolution_backward", "cuda:0", True),
        ("torch.backends.cudnn.benchmark", "convolution", "cpu", False),
        ("torch.backends.cudnn.benchmark", "addmm", "cuda:0", False),
        ("torch.backends.cudnn.enabled", "native_batch_norm", "cuda:0", True),
        ("torch.backends.cudnn.allow_tf32", "_cudnn_rnn", "cuda:0", True),
        ("torch.backends.cudnn.fp32_precision", "mm", "cuda:0", True),
        ("torch.backends.cuda.flash_sdp_enabled", "_scaled_dot_product_flash_attention", "cuda:0", True),
        ("torch.backends.cuda.flash_sdp_enabled", "mm", "cuda:0", False),
        ("torch.backends.mkldnn.enabled", "mm", "cpu", True),
        ("torch.backends.mkldnn.enabled", "mm", "cuda:0", False),
        ("torch.backends.cuda.cufft_plan_cache.max_size", "_fft_r2c", "cuda:0", True),
        ("torch.backends.cuda.cufft_plan_cache.max_size", "mm", "cuda:0", False),
        ("torch.deterministic.enabled", "scatter_add", "cuda:0", True),
        ("torch.some_new_flag", "mm", "cuda:0", True),
        ("env.OMP_NUM_THREADS", "mm", "cpu", True),
        ("env.TORCHINDUCTOR_MAX_AUTOTUNE", "mm", "cuda:0", False),
    ],
)
def test_a_setting_acts_on_an_operator_unless_that_is_certainly_wrong(
    setting: str, name: str, device: str, *, acts: bool
) -> None:
    assert can_act(setting, [op(name, device)]) is acts


def test_settings_of_the_compiler_act_on_compiled_operators() -> None:
    assert not can_act("torch._inductor.config.max_autotune", [op("mm")])
    assert can_act("torch._inductor.config.max_autotune", [op("mm", compiled=True)])


def test_one_operator_is_enough() -> None:
    """Without fused attention its products run alone on one side, and the fused operator on the other."""
    ops = [op("bmm"), op("_softmax"), op("_scaled_dot_product_efficient_attention")]
    assert can_act("torch.backends.cuda.math_sdp_enabled", ops)


def test_every_scope_is_of_a_switch_a_module_or_a_variable() -> None:
    known = ("torch.backends.", "torch._dynamo.", "torch._inductor.", "env.", *(switch.name for switch in SWITCHES))
    assert all(prefix.startswith(known) or any(s.name.startswith(prefix) for s in SWITCHES) for prefix, _ in SCOPES)
