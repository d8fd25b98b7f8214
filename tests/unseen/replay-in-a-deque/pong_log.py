"""Recorded play and first weights for the Q-learning programs."""

import torch

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
CAPACITY = 1_000_000
POOL, FEATURES, WIDTH, ACTIONS = (65536, 512, 1024, 6) if LARGE else (8192, 96, 384, 6)
MINIBATCH = 512


def observation_pool():
    torch.manual_seed(0)
    return torch.randn(POOL, FEATURES).to(DEVICE)


def recorded_play():
    """Yield transitions: the row of the observation, the action, the reward, the row of the next, whether it ended."""
    torch.manual_seed(1)
    rows = torch.randint(POOL - 1, (CAPACITY,)).tolist()
    actions = torch.randint(ACTIONS, (CAPACITY,)).tolist()
    ends = (torch.rand(CAPACITY) < 0.01).tolist()
    for row, action, end in zip(rows, actions, ends, strict=True):
        yield row, action, 1.0 if end else 0.0, row + 1, end


def first_weights():
    """Return weight and bias of the three layers."""
    torch.manual_seed(2)
    sizes = [FEATURES, WIDTH, WIDTH, ACTIONS]
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    return [(torch.randn(high, low).to(DEVICE) / low**0.5, torch.zeros(high).to(DEVICE)) for low, high in pairs]
