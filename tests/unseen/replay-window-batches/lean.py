"""Offline reinforcement learning: score windows of a replay buffer with a recurrent-free critic."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"


@dataclass
class Options:
    episodes: int = 40
    steps: int = 200
    observation: int = 48
    actions: int = 6
    window: int = 32
    batch: int = 256 if BIG else 64
    hidden: int = 512 if BIG else 256
    gamma: float = 0.97
    seed: int = 3


class Episode:
    """Arrays recorded by one rollout of the behaviour policy."""

    def __init__(self, rng, options):
        n = options.steps
        self.observations = rng.standard_normal((n, options.observation)).astype(np.float32)
        self.actions = rng.uniform(-1, 1, (n, options.actions)).astype(np.float32)
        self.rewards = rng.standard_normal(n).astype(np.float32)


class ReplayBuffer:
    def __init__(self, options):
        self.options = options
        rng = np.random.default_rng(options.seed)
        self.episodes = [Episode(rng, options) for _ in range(options.episodes)]

    def __len__(self):
        return len(self.episodes) * (self.options.steps - self.options.window)

    def __getitem__(self, index):
        span = self.options.steps - self.options.window
        episode, start = self.episodes[index // span], index % span
        stop = start + self.options.window
        part = slice(start, stop)
        return {
            "observations": episode.observations[part],
            "actions": episode.actions[part],
            "rewards": episode.rewards[part],
        }


def collate(items):
    """Join sampled windows; every entry gets a leading batch dimension."""
    batch = {}
    for key in items[0]:
        values = [item[key] for item in items]
        batch[key] = torch.from_numpy(np.stack(values))
    return batch


class Critic(nn.Module):
    """Value of each step of a window from observation and action."""

    def __init__(self, options):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(options.observation + options.actions, options.hidden),
            nn.LayerNorm(options.hidden),
            nn.SiLU(),
            nn.Linear(options.hidden, options.hidden),
            nn.SiLU(),
        )
        self.value = nn.Linear(options.hidden, 1)

    def forward(self, observations, actions):
        return self.value(self.body(torch.cat([observations, actions], -1))).squeeze(-1)


class Evaluator:
    def __init__(self, options):
        self.options = options
        self.buffer = ReplayBuffer(options)
        self.critic = Critic(options).to(DEVICE).eval()

    def sample(self):
        rng = np.random.default_rng(self.options.seed)
        return rng.integers(0, len(self.buffer), self.options.batch)

    def td_errors(self, values, rewards):
        current, following = values[:, :-1], values[:, 1:]
        return rewards[:, :-1] + self.options.gamma * following - current

    @torch.no_grad()
    def run(self):
        items = [self.buffer[int(i)] for i in self.sample()]
        batch = {key: value.to(DEVICE) for key, value in collate(items).items()}
        values = self.critic(batch["observations"], batch["actions"])
        errors = self.td_errors(values, batch["rewards"])
        return values, errors, errors.square().mean()


def build():
    torch.manual_seed(0)
    evaluator = Evaluator(Options())

    def step():
        return evaluator.run()

    return step
