"""The same block as in wasteful.py, with GELU in one operator and without the copy."""

import torch


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other make a CPU's energy hard to repeat
    on_gpu = torch.cuda.is_available()
    kind = {"device": "cuda" if on_gpu else "cpu", "dtype": torch.bfloat16 if on_gpu else torch.float32}
    rows, width = (8192, 2048) if on_gpu else (512, 256)
    x, weight = torch.randn(rows, width, **kind), torch.randn(width, 4 * width, **kind) / width**0.5

    def step():
        with torch.no_grad():
            hidden = torch.nn.functional.gelu(x @ weight, approximate="tanh")
            return torch.sigmoid(hidden.t())

    return step
