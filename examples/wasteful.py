"""One block of a network with two wastes: GELU written out as eight operators, and an unnecessary copy."""

import math

import torch


def gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other make a CPU's energy hard to repeat
    on_gpu = torch.cuda.is_available()
    kind = {"device": "cuda" if on_gpu else "cpu", "dtype": torch.bfloat16 if on_gpu else torch.float32}
    rows, width = (8192, 2048) if on_gpu else (512, 256)
    x, weight = torch.randn(rows, width, **kind), torch.randn(width, 4 * width, **kind) / width**0.5

    def step():
        with torch.no_grad():
            hidden = gelu(x @ weight)
            return torch.sigmoid(hidden.t().contiguous())

    return step
