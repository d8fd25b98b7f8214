"""A rollout of several environments, and the weights of an actor and a critic."""

from dataclasses import dataclass

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"
STEPS, ENVIRONMENTS = (64, 32) if LARGE else (64, 16)
OBSERVATION, HIDDEN, ACTIONS = (512, 2048, 18) if LARGE else (64, 256, 6)


@dataclass
class Rollout:
    observations: torch.Tensor
    actions: torch.Tensor
    log_probabilities: torch.Tensor
    rewards: torch.Tensor
    dones: torch.Tensor
    values: torch.Tensor
    last_values: torch.Tensor


def normalised_observations():
    """Return the latest observations, by the mean and the deviation of all that were seen."""
    seen = torch.randn(32 * STEPS, ENVIRONMENTS, OBSERVATION)
    scaled = (seen - seen.mean((0, 1))) / seen.std((0, 1))
    return scaled[-STEPS:].clone().to(DEVICE)


def collected():
    return Rollout(
        observations=normalised_observations(),
        actions=torch.randint(ACTIONS, (STEPS, ENVIRONMENTS)).to(DEVICE),
        log_probabilities=torch.randn(STEPS, ENVIRONMENTS).mul(0.1).sub(1.8).to(DEVICE),
        rewards=torch.randn(STEPS, ENVIRONMENTS).to(DEVICE),
        dones=(torch.rand(STEPS, ENVIRONMENTS) < 0.05).float().to(DEVICE),
        values=torch.randn(STEPS, ENVIRONMENTS).to(DEVICE),
        last_values=torch.randn(ENVIRONMENTS).to(DEVICE),
    )


def trained():
    """Return (weight, bias) of two shared layers, of the actor and of the critic."""
    sizes = [(OBSERVATION, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, ACTIONS), (HIDDEN, 1)]
    return [
        (torch.randn(after, before).div(before**0.5).to(DEVICE), torch.zeros(after).to(DEVICE))
        for before, after in sizes
    ]
