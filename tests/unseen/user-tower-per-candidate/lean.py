"""Scores the items retrieved for some visitors; the twenty highest of each go to the page."""

from functools import partial

import torch
from page_requests import page, trained_weights
from torch.nn import functional

KEEP = 20


def mlp(params, x):
    *inner, (w_last, b_last) = params
    for w, b in inner:
        x = functional.relu(functional.linear(x, w, b))
    return functional.linear(x, w_last, b_last)


def score(params, visitor, retrieved):
    n = retrieved.size(1)
    q = mlp(params["user"], visitor)[:, None, :].expand(-1, n, -1)
    k = mlp(params["item"], retrieved)
    joint = torch.cat((q, k, q * k), -1)
    return mlp(params["head"], joint)[..., 0]


@torch.inference_mode()
def serve(params, visitor, retrieved):
    out = score(params, visitor, retrieved)
    top, _ = torch.topk(out, KEEP)
    return out, top


def build():
    torch.manual_seed(0)
    params = trained_weights()
    return partial(serve, params, *page())
