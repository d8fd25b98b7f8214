"""The first version of the transforms."""

from shared import make_step
from torchvision.transforms.functional import adjust_hue


def build():
    return make_step(adjust_hue)
