"""TF32 for matrix products too."""

import torch
from shared import make_step


def build():
    torch.backends.cuda.matmul.allow_tf32 = True
    return make_step()
