"""The weights of the reading model, as its training run stored them."""

import torch


def random_checkpoint(width, depth, vocabulary):
    source = torch.Generator().manual_seed(11)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=source) * columns**-0.5

    state = {"embed.weight": 0.1 * torch.randn(vocabulary, width, generator=source)}
    for index in range(depth):
        state[f"blocks.{index}.attention.qkv.weight"] = matrix(3 * width, width)
        state[f"blocks.{index}.attention.out.weight"] = matrix(width, width)
        state[f"blocks.{index}.up.weight"] = matrix(2 * width, width)
        state[f"blocks.{index}.down.weight"] = matrix(width, 2 * width)
    return state
