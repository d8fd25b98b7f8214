"""Graph convolutions on papers that cite each other."""

import torch
import torch.nn as nn
from citations import collection

SIZES = {"cuda": (50_000, 1_000_000, 128), "cpu": (1_000, 16_000, 64)}


def spread(h, src, dst, edge_weight):
    """Sum what arrives at each node over its weighted edges."""
    arriving = h[src] * edge_weight[:, None]
    return h.new_zeros(h.shape).index_add_(0, dst, arriving)


class GraphConv(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.lin = nn.Linear(channels, channels, bias=False)
        self.b = nn.Parameter(torch.randn(channels))

    def forward(self, x, src, dst, edge_weight):
        return (spread(self.lin(x), src, dst, edge_weight) + self.b).relu()


def build():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, m, channels = SIZES[device]
    torch.manual_seed(0)
    convs = [GraphConv(channels).to(device) for _ in range(3)]
    features, src, dst, edge_weight = (each.to(device) for each in collection(n, m, channels))

    def step():
        with torch.no_grad():
            x = features
            for conv in convs:
                x = conv(x, src, dst, edge_weight)
            return x

    return step
