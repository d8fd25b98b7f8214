"""A clip and the weights of an action spotter."""

import torch

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
FRAMES, SIDE, WINDOW, STRIDE = (256, 224, 32, 12) if LARGE else (24, 128, 8, 4)
WIDTHS = (64, 128, 256) if LARGE else (24, 48, 64)
HIDDEN, ACTIONS = (512, 17) if LARGE else (64, 17)


def clip():
    torch.manual_seed(0)
    return torch.randn(FRAMES, 3, SIDE, SIDE).to(DEVICE)


def spotter_weights():
    """Return the kernels of the frame encoder, the matrices of the temporal mixer, and the classifier."""
    torch.manual_seed(1)
    lows = (3, *WIDTHS[:-1])
    kernels = [torch.randn(high, low, 3, 3) * (2 / (9 * low)) ** 0.5 for low, high in zip(lows, WIDTHS, strict=True)]
    expand = torch.randn(HIDDEN, WIDTHS[-1] * WINDOW) / (WIDTHS[-1] * WINDOW) ** 0.5
    classify = torch.randn(ACTIONS, HIDDEN) / HIDDEN**0.5
    return [kernel.to(DEVICE) for kernel in kernels], expand.to(DEVICE), classify.to(DEVICE)
