"""Learner of proximal policy optimisation: gradients of one pass over a rollout, for the parameter server."""

import torch
from rollouts import collected, trained
from torch import nn


def linear(weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


class ActorCritic(nn.Module):
    def __init__(self, weights):
        super().__init__()
        first, second, actor, critic = (linear(*pair) for pair in weights)
        self.body = nn.Sequential(first, nn.Tanh(), second, nn.Tanh())
        self.actor = actor
        self.critic = critic

    def forward(self, observations):
        hidden = self.body(observations)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def estimate_advantages(rewards, values, dones, last_value, gamma, trace):
    """Return generalised advantages of a trajectory."""
    alive = 1.0 - dones
    following = torch.cat([values[1:], last_value.unsqueeze(0)])
    deltas = rewards + gamma * following * alive - values
    decays = gamma * trace * alive
    running = torch.zeros_like(last_value)
    swept = []
    for delta, decay in zip(deltas.flip(0).unbind(), decays.flip(0).unbind(), strict=True):
        running = torch.addcmul(delta, decay, running)
        swept.append(running)
    return torch.stack(swept).flip(0)


class Learner:
    def __init__(self, model, gamma=0.99, trace=0.95, clip=0.2):
        self.model = model
        self.gamma, self.trace, self.clip = gamma, trace, clip

    def advantages(self, rollout):
        columns = [
            estimate_advantages(rewards, values, dones, last_value, self.gamma, self.trace)
            for rewards, values, dones, last_value in zip(
                rollout.rewards.T, rollout.values.T, rollout.dones.T, rollout.last_values, strict=True
            )
        ]
        return torch.stack(columns, dim=1)

    def gradients(self, rollout):
        with torch.no_grad():
            advantages = self.advantages(rollout)
            returns = advantages + rollout.values
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        logits, values = self.model(rollout.observations)
        policy = logits.log_softmax(-1)
        chosen = policy.gather(-1, rollout.actions.unsqueeze(-1)).squeeze(-1)
        ratio = torch.exp(chosen - rollout.log_probabilities)
        bounded = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        gain = torch.minimum(ratio * advantages, bounded * advantages).mean()
        loss = 0.5 * (returns - values).square().mean() - gain
        self.model.zero_grad()
        loss.backward()
        return {
            "loss": loss.detach(),
            "gradients": [parameter.grad for parameter in self.model.parameters()],
        }


def build():
    torch.manual_seed(0)
    weights = trained()
    rollout = collected()
    learner = Learner(ActorCritic(weights))

    def step():
        return learner.gradients(rollout)

    return step
