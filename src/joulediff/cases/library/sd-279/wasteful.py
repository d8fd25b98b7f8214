"""The UNet as it comes: convolutions use TF32, matrix products do not."""

from shared import make_step


def build():
    return make_step()
