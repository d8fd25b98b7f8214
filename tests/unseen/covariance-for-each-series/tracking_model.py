"""Matrices of the constant-velocity tracking model that both filters use."""

import torch


def tracking_model(states, outputs):
    half = states // 2
    transition = torch.eye(states)
    transition[:half, half:] = 0.1 * torch.eye(half)
    source = torch.Generator().manual_seed(7)
    emission = torch.randn(outputs, states, generator=source) * states**-0.5
    return {
        "transition": transition * 0.98,
        "emission": emission,
        "process_noise": 0.05 * torch.eye(states),
        "sensor_noise": 0.5 * torch.eye(outputs),
        "prior": torch.eye(states),
    }
