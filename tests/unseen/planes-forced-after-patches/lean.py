"""A pooling network for images: patches to tokens, then blocks that mix by pooling and by a feed-forward network."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIDE, WIDTH, DEPTH = (64, 512, 64, 8) if DEVICE == "cuda" else (4, 256, 64, 4)
PATCH = 8


class PatchStem(nn.Module):
    """Cut images into patches and embed each patch; gives (batch, channels, rows, columns)."""

    def __init__(self):
        super().__init__()
        self.cut = nn.PixelUnshuffle(PATCH)
        self.embed = nn.Linear(3 * PATCH * PATCH, WIDTH)

    def forward(self, images):
        patches = self.cut(images).permute(0, 2, 3, 1)
        return self.embed(patches).permute(0, 3, 1, 2)


class PoolingBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 2 * WIDTH)
        self.activation = nn.ReLU()
        self.project = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, maps):
        maps = self.pool(maps)
        rows = self.norm(maps.permute(0, 2, 3, 1))
        rows = self.project(self.activation(self.expand(rows)))
        return maps + rows.permute(0, 3, 1, 2)


class PoolingNetwork(nn.Module):
    def __init__(self, classes=100):
        super().__init__()
        self.stem = PatchStem()
        self.blocks = nn.Sequential(*(PoolingBlock() for _ in range(DEPTH)))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))


def build():
    torch.manual_seed(0)
    network = PoolingNetwork().to(DEVICE).eval()
    images = torch.randn(BATCH, 3, SIDE, SIDE).to(DEVICE)

    @torch.no_grad()
    def step():
        return network(images)

    return step
