"""Augmentation of a training batch on the device: colours, crop, flip and normalisation."""

import torch
from photographs import CROP, DEVIATION, DEVICE, DISPLAY, MEAN, drawn, photographs
from torch import nn


class LinearLight(nn.Module):
    def forward(self, images, draws):
        return images**DISPLAY


class Brightness(nn.Module):
    def forward(self, images, draws):
        return (images * draws.brightness).clamp(0.0, 1.0)


class Saturation(nn.Module):
    """Moves each pixel away from its grey value, or towards it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("luma", torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1))

    def forward(self, images, draws):
        grey = (images * self.luma).sum(1, keepdim=True)
        return torch.lerp(grey, images, draws.saturation).clamp(0.0, 1.0)


class Gamma(nn.Module):
    def forward(self, images, draws):
        return images**draws.gamma


class RandomCrop(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, images, draws):
        views = [
            image[:, top : top + self.size, left : left + self.size]
            for image, (top, left) in zip(images, draws.corners, strict=True)
        ]
        return torch.stack(views)


class RandomFlip(nn.Module):
    def forward(self, images, draws):
        pairs = zip(images, draws.flips, strict=True)
        return torch.stack([image.flip(-1) if flip else image for image, flip in pairs])


class Normalise(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(1, 3, 1, 1))

    def forward(self, images, draws):
        return (images - self.mean) / self.deviation


class Augmentation(nn.Module):
    def __init__(self, *transforms):
        super().__init__()
        self.transforms = nn.ModuleList(transforms)

    @torch.no_grad()
    def forward(self, images, draws):
        for transform in self.transforms:
            images = transform(images, draws)
        return images


def training_augmentation():
    return Augmentation(
        LinearLight(),
        Brightness(),
        Saturation(),
        Gamma(),
        RandomCrop(CROP),
        RandomFlip(),
        Normalise(),
    )


def build():
    torch.manual_seed(0)
    augmentation = training_augmentation().to(DEVICE)
    images, draws = photographs(), drawn()

    def step():
        return augmentation(images, draws)

    return step
