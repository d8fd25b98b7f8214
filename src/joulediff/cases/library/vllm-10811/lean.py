"""The result of the kernel is used without a copy."""

from shared import make_step
from torch.nn import functional as F


def attend(q, k, v, buffer):
    return F.scaled_dot_product_attention(q, k, v)


def build():
    return make_step(attend)
