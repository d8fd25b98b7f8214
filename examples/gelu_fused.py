"""The same GELU in one kernel."""

import torch


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other make a CPU's energy hard to repeat
    on_gpu = torch.cuda.is_available()
    shape = (8192, 4096) if on_gpu else (256, 1024)
    x = torch.randn(shape, device="cuda" if on_gpu else "cpu", dtype=torch.bfloat16 if on_gpu else torch.float32)
    return lambda: torch.nn.functional.gelu(x, approximate="tanh")
