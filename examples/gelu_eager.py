"""GELU written out: one kernel for each of eight elementwise operators. Some models still use this form."""

import math

import torch


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other make a CPU's energy hard to repeat
    on_gpu = torch.cuda.is_available()
    shape = (8192, 4096) if on_gpu else (256, 1024)
    x = torch.randn(shape, device="cuda" if on_gpu else "cpu", dtype=torch.bfloat16 if on_gpu else torch.float32)

    def step():
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    return step
