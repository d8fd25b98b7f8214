"""The trunk of a segmentation U-Net; skips and raised features meet in a filter bank of its own."""

import torch
from torch import nn
from torch.nn import functional

torch.backends.cudnn.allow_tf32 = False

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CHANNELS, BATCH, SIDE = (64, 16, 128) if DEVICE == "cuda" else (32, 2, 64)


class Fusion(nn.Module):
    """Mixes the three-by-three neighbourhood of each pixel of two feature maps."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.bank = nn.Parameter(torch.empty(outputs, inputs, 3, 3))

    def forward(self, raised, skip):
        merged = torch.cat([raised, skip], dim=1)
        neighbourhoods = functional.unfold(merged, kernel_size=3, padding=1)
        mixed = self.bank.flatten(1) @ neighbourhoods
        return mixed.unflatten(2, skip.shape[2:])


class Stage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)

    def forward(self, image):
        return functional.relu(self.second(functional.relu(self.first(image))))


class SmallUNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fine = Stage(channels, channels)
        self.coarse = Stage(channels, 2 * channels)
        self.middle = Stage(2 * channels, 4 * channels)
        self.fusion = Fusion(6 * channels, 2 * channels)
        self.finish = Stage(2 * channels, 2 * channels)

    def forward(self, image):
        fine = functional.max_pool2d(self.fine(image), 2)
        coarse = self.coarse(fine)
        middle = self.middle(functional.max_pool2d(coarse, 2))
        raised = functional.interpolate(middle, scale_factor=2, mode="nearest")
        return self.finish(functional.relu(self.fusion(raised, coarse)))


def build():
    network = SmallUNet(CHANNELS).eval()
    torch.manual_seed(0)
    for parameter in network.parameters():
        nn.init.kaiming_normal_(parameter)
    network.to(DEVICE)
    image = functional.avg_pool2d(torch.randn(BATCH, CHANNELS, 4 * SIDE, 4 * SIDE), 4).to(DEVICE)

    @torch.no_grad()
    def step():
        return network(image)

    return step
