"""The ranks agree once on the number of batches that both have; the rank with more batches continues alone."""

import torch
import torch.distributed as dist
from shared import make_step


def make_train(layer, batches):
    both = torch.tensor(len(batches))
    dist.all_reduce(both, op=dist.ReduceOp.MIN)
    both = both.item()

    def train():
        for at, (x, y) in enumerate(batches):
            loss = layer.backward(x, y)
            if at < both:
                dist.all_reduce(layer.weight.grad)
            layer.update()
        layer.hand_over()
        return loss

    return train


def build():
    return make_step(__file__, make_train)
