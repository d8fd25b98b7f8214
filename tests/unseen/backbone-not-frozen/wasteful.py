"""A linear probe: one training step of a new classifier on the features of a pretrained network."""

from dataclasses import dataclass, field

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class ProbeConfig:
    freeze_backbone: bool = False
    classes: int = 37
    channels: list[int] = field(default_factory=lambda: [64, 128, 256] if DEVICE == "cuda" else [8, 16, 32])
    batch: int = 64 if DEVICE == "cuda" else 4
    side: int = 160 if DEVICE == "cuda" else 48


class Backbone(nn.Sequential):
    def __init__(self, channels):
        blocks, previous = [], 3
        for number, width in enumerate(channels):
            stride = 1 if number == 0 else 2
            blocks += [nn.Conv2d(previous, width, 3, stride, 1), nn.GroupNorm(4, width), nn.ReLU()]
            blocks += [nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(4, width), nn.ReLU()]
            previous = width
        super().__init__(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Probe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.backbone = Backbone(config.channels)
        self.head = nn.Linear(config.channels[-1], config.classes)
        if config.freeze_backbone:
            self.backbone.requires_grad_(False)

    def forward(self, images):
        return self.head(self.backbone(images))


def build():
    torch.manual_seed(0)
    config = ProbeConfig()
    model = Probe(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
    images = torch.randn(config.batch, 3, config.side, config.side).to(DEVICE)
    labels = torch.randint(config.classes, (config.batch,)).to(DEVICE)

    def step():
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach(), model.head.weight.grad

    return step
