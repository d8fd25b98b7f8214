"""Fast style transfer: train a small image transformer against a fixed feature network."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"


@dataclass
class Options:
    size: int = 256 if BIG else 32
    batch: int = 16 if BIG else 2
    width: int = 64 if BIG else 48
    transform_width: int = 32 if BIG else 8
    content_weight: float = 1.0
    style_weight: float = 50.0
    lr: float = 1e-4
    log_level: str = "warning"


class FeatureNet(nn.Module):
    """VGG-like feature extractor; returns one map for each block."""

    def __init__(self, width, requires_grad=False):
        super().__init__()
        plan = [(3, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 4 * width)]
        self.blocks = nn.ModuleList(self._block(a, b) for a, b in plan)
        for param in self.parameters():
            param.requires_grad = requires_grad

    @staticmethod
    def _block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, image):
        maps = []
        for index, block in enumerate(self.blocks):
            if index:
                image = F.avg_pool2d(image, 2)
            image = block(image)
            maps.append(image)
        return maps


def gram(features):
    """Gram matrix of the channels, averaged over the positions."""
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[1:].numel()


class Transformer(nn.Module):
    """The network being trained; adds its result to the input image."""

    def __init__(self, width):
        super().__init__()
        self.head = nn.Conv2d(3, width, 5, padding=2)
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.InstanceNorm2d(width, affine=True)
        self.tail = nn.Conv2d(width, 3, 5, padding=2)

    def forward(self, image):
        hidden = F.relu(self.head(image))
        hidden = hidden + F.relu(self.norm(self.body(hidden)))
        return image + self.tail(hidden)


class StyleTrainer:
    def __init__(self, options, style):
        self.options = options
        self.net = Transformer(options.transform_width).to(DEVICE)
        self.features = FeatureNet(options.width).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=options.lr)
        with torch.no_grad():
            self.style_grams = [gram(f) for f in self.features(style)]

    def losses(self, output, content):
        with torch.no_grad():
            target = self.features(content)[2]
        maps = self.features(output)
        content_loss = F.mse_loss(maps[2], target)
        style_loss = sum(F.mse_loss(gram(f), g.expand(len(f), -1, -1)) for f, g in zip(maps, self.style_grams))
        return self.options.content_weight * content_loss, self.options.style_weight * style_loss

    def train_step(self, content):
        self.optimizer.zero_grad()
        output = self.net(content)
        content_loss, style_loss = self.losses(output, content)
        total = content_loss + style_loss
        total.backward()
        self.optimizer.step()
        return output.detach(), content_loss.detach(), style_loss.detach()


def build():
    torch.manual_seed(0)
    options = Options()
    content = torch.rand(options.batch, 3, options.size, options.size).to(DEVICE)
    style = torch.rand(1, 3, options.size, options.size).to(DEVICE)
    trainer = StyleTrainer(options, style)

    def step():
        return trainer.train_step(content)

    return step
