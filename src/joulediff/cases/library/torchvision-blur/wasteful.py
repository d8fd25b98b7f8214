"""The library's blur: one convolution with a square kernel of 23 x 23."""

from shared import SIGMA, SIZE, make_step
from torchvision.transforms.v2.functional import gaussian_blur


def build():
    return make_step(lambda images: gaussian_blur(images, SIZE, [SIGMA]))
