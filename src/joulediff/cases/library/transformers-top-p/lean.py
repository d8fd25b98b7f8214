"""The second processor on the 50 that are left."""

import torch
from shared import TOP_K, TOP_P, make_step
from transformers import TopPLogitsWarper


def build():
    top_p = TopPLogitsWarper(TOP_P)

    def choose(scores):
        best, indices = scores.topk(TOP_K)
        chosen = top_p(None, best).softmax(-1)
        return torch.zeros_like(scores).scatter_(1, indices, chosen)

    return make_step(choose)
