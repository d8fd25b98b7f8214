"""The prompt goes to a kernel that is not made for it."""

import torch
from shared import make_step


def build():
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return make_step()
