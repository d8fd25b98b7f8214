"""Reaction and diffusion on a periodic plane: a few steps of a pseudo-spectral Gray-Scott solver."""

import numpy as np
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDE, STEPS = (2048, 10) if DEVICE == "cuda" else (256, 5)


class GrayScott:
    def __init__(self, side, time_step=1.0, feed=0.037, kill=0.06):
        self.time_step, self.feed, self.kill = time_step, feed, kill
        rows = 2.0 * np.pi * np.fft.fftfreq(side)
        columns = 2.0 * np.pi * np.fft.rfftfreq(side)
        squared = torch.from_numpy(rows[:, None] ** 2 + columns[None, :] ** 2).to(DEVICE)
        self.spread_u = 1.0 / (1.0 + time_step * 0.16 * squared)
        self.spread_v = 1.0 / (1.0 + time_step * 0.08 * squared)

    def diffuse(self, field, spread):
        return torch.fft.irfft2(torch.fft.rfft2(field) * spread, s=field.shape)

    def advance(self, u, v):
        reaction = u * v * v
        u_next = u + self.time_step * (self.feed * (1.0 - u) - reaction)
        v_next = v + self.time_step * (reaction - (self.feed + self.kill) * v)
        return self.diffuse(u_next, self.spread_u), self.diffuse(v_next, self.spread_v)


def build():
    torch.manual_seed(0)
    solver = GrayScott(SIDE)
    u_start = (1.0 - 0.5 * torch.rand(SIDE, SIDE)).to(DEVICE)
    v_start = (0.25 * torch.rand(SIDE, SIDE)).to(DEVICE)

    @torch.no_grad()
    def step():
        u, v = u_start, v_start
        for _ in range(STEPS):
            u, v = solver.advance(u, v)
        return u, v

    return step
