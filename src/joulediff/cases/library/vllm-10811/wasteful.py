"""The kernel allocates its result, which is then copied to the buffer."""

from shared import make_step
from torch.nn import functional as F


def attend(q, k, v, buffer):
    buffer.copy_(F.scaled_dot_product_attention(q, k, v))
    return buffer


def build():
    return make_step(attend)
