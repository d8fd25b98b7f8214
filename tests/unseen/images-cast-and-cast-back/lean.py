"""Geometric augmentation of byte images, then normalisation for the network."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIDE, CROP = (512, 256, 224) if DEVICE == "cuda" else (24, 192, 160)


class Transform:
    """A transform of byte images that gives byte images."""

    def __call__(self, images):
        return self.move(images)

    def move(self, images):
        raise NotImplementedError


class Crop(Transform):
    def __init__(self, top, left, side):
        self.rows, self.columns = slice(top, top + side), slice(left, left + side)

    def move(self, images):
        return images[:, :, self.rows, self.columns]


class Flip(Transform):
    def move(self, images):
        return images.flip(-1)


class Roll(Transform):
    def __init__(self, shift):
        self.shift = shift

    def move(self, images):
        return images.roll(self.shift, dims=(-2, -1))


def normalise(images, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)):
    mean = torch.tensor(mean, device=images.device).view(3, 1, 1)
    deviation = torch.tensor(deviation, device=images.device).view(3, 1, 1)
    return (images.float() / 255.0 - mean) / deviation


def build():
    torch.manual_seed(0)
    images = torch.randint(256, (BATCH, 3, SIDE, SIDE), dtype=torch.uint8).to(DEVICE)
    transforms = [Roll((3, -5)), Crop(8, 8, CROP), Flip()]

    def step():
        batch = images
        for transform in transforms:
            batch = transform(batch)
        return normalise(batch)

    return step
