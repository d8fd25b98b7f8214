"""Random views of a batch of pictures for contrastive training, made in one function."""

import torch
from photographs import CROP, DEVIATION, DEVICE, DISPLAY, MEAN, drawn, photographs


def channel_constants(*values):
    return (torch.tensor(v, device=DEVICE).reshape(3, 1, 1) for v in values)


def cut(batch, corners):
    return torch.stack([picture[:, y : y + CROP, x : x + CROP] for picture, (y, x) in zip(batch, corners, strict=True)])


def mirror(batch, which):
    return torch.stack([torch.flip(v, (2,)) if yes else v for v, yes in zip(batch.unbind(0), which, strict=True)])


def make_views(draws):
    rgb_to_y, mu, sigma = channel_constants((0.299, 0.587, 0.114), MEAN, DEVIATION)

    def views(batch):
        v = cut(batch, draws.corners)
        v = torch.clamp(v.pow(DISPLAY) * draws.brightness, 0, 1)
        y = torch.sum(v * rgb_to_y, dim=1, keepdim=True)
        v = torch.clamp(y.lerp(v, draws.saturation), 0, 1)
        v = torch.pow(v, draws.gamma)
        return (mirror(v, draws.flips) - mu) / sigma

    return views


def build():
    torch.manual_seed(0)
    pictures = photographs()
    views = make_views(drawn())

    def step():
        with torch.no_grad():
            return views(pictures)

    return step
