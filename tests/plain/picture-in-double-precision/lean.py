"""Blur a picture with a separable filter, some rounds."""

import numpy as np

DTYPE = np.float32


def load(size):
    rng = np.random.default_rng(6)
    return rng.uniform(0.0, 1.0, (size, size)).astype(DTYPE)


def blur(picture, kernel):
    rows = sum(weight * np.roll(picture, at - 2, axis=0) for at, weight in enumerate(kernel))
    return sum(weight * np.roll(rows, at - 2, axis=1) for at, weight in enumerate(kernel))


def build():
    picture = load(900)
    kernel = np.array([1, 4, 6, 4, 1], dtype=DTYPE) / DTYPE(16)

    def step():
        return blur(picture, kernel)

    return step
