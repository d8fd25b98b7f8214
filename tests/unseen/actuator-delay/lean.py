"""Rolls a walking policy out in many simulated robots whose motors obey with a delay."""

import logging
from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = logging.getLogger("walker")


@dataclass
class SimOptions:
    robots: int = 16384 if DEVICE == "cuda" else 1024
    joints: int = 12
    hidden: int = 32
    max_delay: int = 128
    steps: int = 20
    dt: float = 0.005
    stiffness: float = 25.0
    damping: float = 0.5
    limit: float = 8.0
    render: bool = False


class DelayLine:
    """Commands of the last steps of every robot; each robot obeys with a delay of its own."""

    def __init__(self, options, delays):
        self.delays = delays
        self.depth = options.max_delay
        self.robots = torch.arange(options.robots, device=delays.device)
        self.buffer = torch.zeros(self.depth, options.robots, options.joints, device=delays.device)
        self.newest = 0

    def reset(self):
        self.buffer.zero_()
        self.newest = 0

    def push(self, command):
        self.newest = (self.newest + 1) % self.depth
        self.buffer[self.newest] = command

    def read(self):
        return self.buffer[(self.newest - self.delays) % self.depth, self.robots]


class Policy(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * options.joints, options.hidden),
            nn.ELU(),
            nn.Linear(options.hidden, options.joints),
        )

    def forward(self, angle, speed):
        return torch.tanh(self.net(torch.cat([angle, 0.1 * speed], dim=-1)))


class Walker:
    def __init__(self, options, policy, delays, start):
        self.options = options
        self.policy = policy
        self.line = DelayLine(options, delays)
        self.start = start

    def torque(self, target, angle, speed):
        o = self.options
        return (o.stiffness * (target - angle) - o.damping * speed).clamp(-o.limit, o.limit)

    def advance(self, angle, speed):
        """One tick: decide, obey the delayed command, integrate."""
        self.line.push(self.policy(angle, speed))
        target = self.line.read()
        speed = speed + self.options.dt * self.torque(target, angle, speed)
        angle = angle + self.options.dt * speed
        return angle, speed

    @torch.no_grad()
    def rollout(self):
        self.line.reset()
        angle = self.start.clone()
        speed = torch.zeros_like(angle)
        energy = torch.zeros(len(angle), device=angle.device)
        for _ in range(self.options.steps):
            angle, speed = self.advance(angle, speed)
            energy += speed.square().sum(dim=-1)
        return angle, speed, energy


def draw_delays(options):
    """Delay of each robot, in ticks."""
    return torch.randint(0, options.max_delay // 8, (options.robots,)).to(DEVICE)


def build():
    torch.manual_seed(0)
    options = SimOptions()
    policy = Policy(options).to(DEVICE).eval()
    delays = draw_delays(options)
    start = (0.3 * torch.randn(options.robots, options.joints)).to(DEVICE)
    walker = Walker(options, policy, delays, start)
    log.info("%d robots with %d joints", options.robots, options.joints)

    def step():
        return walker.rollout()

    return step
