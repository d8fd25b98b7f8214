"""Gray-Scott patterns by a semi-implicit Fourier method."""

import math

import torch

PARAMETERS = {"dt": 1.0, "F": 0.037, "k": 0.06, "D_u": 0.16, "D_v": 0.08}


def laplacian_symbol(n, device):
    ky = 2 * math.pi * torch.fft.fftfreq(n, device=device)
    kx = 2 * math.pi * torch.fft.rfftfreq(n, device=device)
    return ky.square().unsqueeze(1) + kx.square().unsqueeze(0)


def implicit(field, factor):
    spectrum = torch.fft.rfft2(field)
    return torch.fft.irfft2(spectrum * factor, s=field.shape)


def simulate(u, v, factors, count):
    dt, feed, kill = (PARAMETERS[name] for name in ("dt", "F", "k"))
    for _ in range(count):
        uvv = u * v * v
        du = feed * (1 - u) - uvv
        dv = uvv - (feed + kill) * v
        u, v = implicit(u + dt * du, factors[0]), implicit(v + dt * dv, factors[1])
    return u, v


def build():
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    n, count = (2048, 10) if device.type == "cuda" else (256, 5)
    torch.manual_seed(0)
    u0 = 1 - 0.5 * torch.rand(n, n)
    v0 = 0.25 * torch.rand(n, n)
    u0, v0 = u0.to(device), v0.to(device)
    symbol = laplacian_symbol(n, device)
    factors = [1 / (1 + PARAMETERS["dt"] * PARAMETERS[name] * symbol) for name in ("D_u", "D_v")]

    def step():
        with torch.no_grad():
            return simulate(u0, v0, factors, count)

    return step
