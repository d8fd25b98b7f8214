"""Spot actions in a video of a rally: a score per action for each overlapping window of frames."""

import torch
from rally_clip import ACTIONS, DEVICE, HIDDEN, STRIDE, WIDTHS, WINDOW, clip, spotter_weights
from torch import nn


def conv_block(low, high):
    return nn.Sequential(nn.Conv2d(low, high, 3, stride=2, padding=1, bias=False), nn.ReLU(inplace=True))


class FrameEncoder(nn.Module):
    """A vector for each frame."""

    def __init__(self):
        super().__init__()
        lows = (3, *WIDTHS[:-1])
        self.blocks = nn.Sequential(*(conv_block(low, high) for low, high in zip(lows, WIDTHS, strict=True)))

    def forward(self, frames):
        return self.blocks(frames).mean(dim=(2, 3))


class TemporalHead(nn.Module):
    """The scores of a window from the vectors of its frames."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTHS[-1] * WINDOW, HIDDEN, bias=False)
        self.classify = nn.Linear(HIDDEN, ACTIONS, bias=False)

    def forward(self, vectors):
        return self.classify(torch.tanh(self.mix(vectors.flatten(1))))


class ActionSpotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = FrameEncoder()
        self.head = TemporalHead()

    def load(self, kernels, mix, classify):
        with torch.no_grad():
            for block, kernel in zip(self.encoder.blocks, kernels, strict=True):
                block[0].weight.copy_(kernel)
            self.head.mix.weight.copy_(mix)
            self.head.classify.weight.copy_(classify)

    def forward(self, video):
        starts = range(0, len(video) - WINDOW + 1, STRIDE)
        windows = torch.stack([video[start : start + WINDOW] for start in starts])
        vectors = self.encoder(windows.flatten(0, 1)).view(len(starts), WINDOW, -1)
        return self.head(vectors).softmax(dim=-1)


def build():
    spotter = ActionSpotter().to(DEVICE).eval()
    spotter.load(*spotter_weights())
    video = clip()

    @torch.no_grad()
    def step():
        return spotter(video)

    return step
