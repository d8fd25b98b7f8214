"""TF32 is allowed: the product runs on tensor cores."""

import torch
from shared import make_step


def build():
    torch.set_float32_matmul_precision("high")
    return make_step()
