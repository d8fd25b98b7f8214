"""Images in the default memory format, channel by channel."""

import torch
from shared import make_step


def build():
    return make_step(torch.contiguous_format)
