"""Deep Q-learning from replayed play: one update of the online network per step."""

import random
from collections import deque, namedtuple

import torch
from pong_log import (
    ACTIONS,
    CAPACITY,
    DEVICE,
    FEATURES,
    MINIBATCH,
    WIDTH,
    first_weights,
    observation_pool,
    recorded_play,
)
from torch import nn

Transition = namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    """The latest transitions; the oldest one leaves when the memory is full."""

    def __init__(self, capacity, seed=0):
        self.memory = deque(maxlen=capacity)
        self.random = random.Random(seed)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, size):
        transitions = self.random.sample(self.memory, size)
        return Transition(*zip(*transitions, strict=True))

    def __len__(self):
        return len(self.memory)


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)
        self.fc3 = nn.Linear(WIDTH, ACTIONS)
        with torch.no_grad():
            for layer, (weight, bias) in zip((self.fc1, self.fc2, self.fc3), first_weights(), strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


class Agent:
    """An online network that learns, and a target network that it learns from."""

    def __init__(self, memory, observations, gamma=0.99, lr=1e-4):
        self.memory = memory
        self.observations = observations
        self.gamma = gamma
        self.online = QNetwork().to(DEVICE)
        self.target = QNetwork().to(DEVICE)
        self.optimizer = torch.optim.SGD(self.online.parameters(), lr=lr)

    def learn(self):
        batch = self.memory.sample(MINIBATCH)
        states = self.observations[torch.tensor(batch.state, device=DEVICE)]
        next_states = self.observations[torch.tensor(batch.next_state, device=DEVICE)]
        actions = torch.tensor(batch.action, device=DEVICE)
        rewards = torch.tensor(batch.reward, device=DEVICE)
        going_on = 1.0 - torch.tensor(batch.done, device=DEVICE).float()

        values = self.online(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            expected = rewards + self.gamma * going_on * self.target(next_states).amax(dim=1)
        loss = nn.functional.smooth_l1_loss(values, expected)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def build():
    memory = ReplayMemory(CAPACITY)
    for transition in recorded_play():
        memory.push(*transition)
    agent = Agent(memory, observation_pool())
    return agent.learn
