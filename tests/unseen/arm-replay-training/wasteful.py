"""Q-learning for a robot arm from a replay memory of single transitions."""

from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH = 1024 if DEVICE == "cuda" else 256
HIDDEN = 256 if DEVICE == "cuda" else 192
UPDATES = 3
CAPACITY = 4000
SENSORS = 96
ACTIONS = 9
DISCOUNT = 0.95
LEARNING_RATE = 1e-2

Transition = namedtuple("Transition", "state action reward following done")


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SENSORS, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, ACTIONS),
        )

    def forward(self, state):
        return self.layers(state)


class ReplayMemory:
    """Keeps the last transitions, as the control loop delivers them."""

    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def push(self, *values):
        self.items.append(Transition(*values))

    def collate(self, column, dtype):
        batch = torch.tensor(column, dtype=dtype)
        return batch.to(DEVICE)

    def fetch(self, indices):
        rows = [self.items[i] for i in indices]
        columns = Transition(*zip(*rows))
        return Transition(
            state=self.collate(columns.state, torch.float32),
            action=torch.as_tensor(columns.action).to(DEVICE),
            reward=torch.as_tensor(columns.reward).to(DEVICE),
            following=self.collate(columns.following, torch.float32),
            done=torch.as_tensor(columns.done).to(DEVICE),
        )


class Learner:
    def __init__(self, network, memory):
        self.network = network
        self.memory = memory
        self.optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)

    def update(self, indices):
        batch = self.memory.fetch(indices)
        with torch.no_grad():
            future = self.network(batch.following).amax(dim=1)
            target = batch.reward + DISCOUNT * future * (1.0 - batch.done)
        values = self.network(batch.state)
        chosen = values.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), chosen.detach()


def fill(memory):
    path = torch.randn(CAPACITY + 1, SENSORS).numpy()
    actions = torch.randint(ACTIONS, (CAPACITY,)).tolist()
    rewards = torch.randn(CAPACITY).tolist()
    dones = (torch.rand(CAPACITY) < 0.05).float().tolist()
    for t in range(CAPACITY):
        state = np.array(path[t])
        following = np.array(path[t + 1])
        memory.push(state, actions[t], rewards[t], following, dones[t])


def build():
    torch.manual_seed(0)
    network = QNetwork()
    memory = ReplayMemory(CAPACITY)
    fill(memory)
    draws = torch.randint(CAPACITY, (UPDATES, BATCH)).tolist()
    learner = Learner(network.to(DEVICE), memory)

    def step():
        losses, values = zip(*[learner.update(indices) for indices in draws])
        return torch.stack(losses), torch.stack(values)

    return step
